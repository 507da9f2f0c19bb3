// The clock of a replay: a time of the past that runs up to 1,000 times as fast as ours.

export const SPEEDS = [1, 10, 60, 300, 1_000] as const;

export class ReplayClock {
  readonly from: number;
  readonly to: number;
  #at: number;
  #speed = 60;
  #playing = false;
  #lastTick = 0;

  /** Times are milliseconds since 1970. */
  constructor(from: number, to: number) {
    this.from = from;
    this.to = Math.max(from, to);
    this.#at = this.from;
  }

  get at(): number {
    return this.#at;
  }

  get speed(): number {
    return this.#speed;
  }

  get playing(): boolean {
    return this.#playing;
  }

  /** How much of the history has passed, from 0 to 1. */
  get share(): number {
    return this.to > this.from ? (this.#at - this.from) / (this.to - this.from) : 1;
  }

  play(now: number): void {
    if (this.#at >= this.to) this.#at = this.from;
    this.#playing = true;
    this.#lastTick = now;
  }

  pause(): void {
    this.#playing = false;
  }

  /** Changes the speed from now on; what has passed keeps the former one. */
  setSpeed(speed: number, now: number): void {
    this.tick(now);
    this.#speed = Math.max(1, Math.min(1_000, speed));
  }

  seek(at: number, now: number): void {
    this.#at = Math.max(this.from, Math.min(this.to, at));
    this.#lastTick = now;
  }

  /** Moves on to now; returns the time of the replay. At the end it stops. */
  tick(now: number): number {
    if (this.#playing) {
      this.#at += Math.max(0, now - this.#lastTick) * this.#speed;
      if (this.#at >= this.to) {
        this.#at = this.to;
        this.#playing = false;
      }
    }
    this.#lastTick = now;
    return this.#at;
  }
}
