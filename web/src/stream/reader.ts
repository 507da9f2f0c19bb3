// Reads the stream of events, and reads on after the last id whenever the connection breaks.

import { Problem } from "../api/problems";
import type { Entry } from "./entries";
import { entryOfFrame } from "./entries";
import { SseParser } from "./sse";

export type StreamStatus = "connecting" | "open" | "waiting" | "signed-out";

export interface ReaderParts {
  /** Opens the stream after a cursor. */
  connect(cursor: string, signal: AbortSignal): Promise<Response>;
  /** Stores entries and the cursor after them; nothing more is read until that is done. */
  store(entries: Entry[], cursor: string): Promise<void>;
  status(status: StreamStatus): void;
  /** Resolves after a time, or at once if the signal is aborted. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
  now(): number;
  random(): number;
}

const SILENCE_MS = 40_000; // bookmarks come every 15 s
const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 15_000;

/** How long to wait before an attempt, after this many failures in a row. */
export function retryMs(failures: number, random: number): number {
  const longest = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.max(0, failures - 1));
  return longest * (0.5 + random / 2);
}

export class StreamReader {
  #parts: ReaderParts;
  #cursor: string;
  #connection: AbortController | null = null;
  #lastByte = 0;
  #wake: () => void = () => {};

  constructor(parts: ReaderParts, cursor: string) {
    this.#parts = parts;
    this.#cursor = cursor;
  }

  get cursor(): string {
    return this.#cursor;
  }

  /** Reads until the signal is aborted, or the credential is refused. */
  async run(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      this.#parts.status("connecting");
      try {
        await this.#connect(signal, () => {
          failures = 0;
        });
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
          this.#parts.status("signed-out");
          return;
        }
      }
      if (signal.aborted) return;
      failures += 1;
      this.#parts.status("waiting");
      await this.#pause(retryMs(failures, this.#parts.random()), signal);
    }
  }

  /** Tries at once if it waits, or if nothing was heard for long: after sleep, or back online. */
  nudge(): void {
    const silent = this.#parts.now() - this.#lastByte > SILENCE_MS / 2;
    if (this.#connection && silent) this.#connection.abort();
    this.#wake();
  }

  async #connect(signal: AbortSignal, opened: () => void): Promise<void> {
    const connection = new AbortController();
    const end = () => connection.abort();
    signal.addEventListener("abort", end);
    this.#connection = connection;
    const watch = setInterval(() => {
      if (this.#parts.now() - this.#lastByte > SILENCE_MS) connection.abort();
    }, SILENCE_MS / 4);
    try {
      this.#lastByte = this.#parts.now();
      const response = await this.#parts.connect(this.#cursor, connection.signal);
      if (!response.body) throw new TypeError("the stream has no body");
      opened();
      this.#parts.status("open");
      await this.#read(response.body);
    } finally {
      clearInterval(watch);
      signal.removeEventListener("abort", end);
      this.#connection = null;
    }
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const parser = new SseParser();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        this.#lastByte = this.#parts.now();
        await this.#take(parser, decoder.decode(value, { stream: true }));
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  async #take(parser: SseParser, text: string): Promise<void> {
    const entries: Entry[] = [];
    let cursor = this.#cursor;
    for (const frame of parser.push(text)) {
      if (frame.kind === "event") {
        const entry = entryOfFrame(frame, this.#parts.now());
        if (entry) entries.push(entry);
      }
      if (frame.id) cursor = frame.id;
    }
    if (entries.length === 0 && cursor === this.#cursor) return;
    await this.#parts.store(entries, cursor);
    this.#cursor = cursor; // only what is stored counts as read
  }

  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const pause = new AbortController();
    const end = () => pause.abort();
    signal.addEventListener("abort", end);
    this.#wake = end;
    await this.#parts.wait(ms, pause.signal);
    this.#wake = () => {};
    signal.removeEventListener("abort", end);
  }
}

/** Waits; the `wait` of a reader in a browser. */
export function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
