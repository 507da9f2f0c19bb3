// Gives this tab every entry once, whichever tab reads the stream.
//
// The leading tab stores entries, then shows them, then tells the others. A tab that opens listens
// first and reads the stored ones then; a new leader makes all tabs read the stored ones again,
// since the former one may have gone between storing and telling. `Sequence` drops what came twice.

import type { Entry } from "./entries";
import type { EntryLog } from "./entry_log";
import type { Leadership } from "./leader";
import type { ReaderParts, StreamStatus } from "./reader";
import { StreamReader } from "./reader";
import { Sequence } from "./sequence";

export interface Channel {
  postMessage(message: HubMessage): void;
  onmessage: ((event: { data: HubMessage }) => void) | null;
  close(): void;
}

export type HubMessage =
  | { type: "entries"; entries: Entry[] }
  | { type: "status"; status: StreamStatus }
  | { type: "leader" }
  | { type: "hello" }
  | { type: "nudge" };

export interface HubParts extends Pick<ReaderParts, "connect" | "wait" | "now" | "random"> {
  log: EntryLog;
  channel: Channel;
  leadership: Leadership;
  /** A cursor for a browser that has none yet: the present end of the stream. */
  firstCursor(): Promise<string>;
  /** New entries; `stored` are those that were shown before this page was loaded. */
  show(entries: Entry[], stored: boolean): void;
  status(status: StreamStatus): void;
}

export class Hub {
  readonly #parts: HubParts;
  readonly #sequence = new Sequence();
  #reader: StreamReader | null = null;
  #status: StreamStatus = "connecting";

  constructor(parts: HubParts) {
    this.#parts = parts;
  }

  get leads(): boolean {
    return this.#parts.leadership.leads;
  }

  async start(): Promise<void> {
    const { channel, leadership } = this.#parts;
    channel.onmessage = (event) => this.#hear(event.data);
    await this.#readStored();
    channel.postMessage({ type: "hello" });
    await leadership.run((signal) => this.#lead(signal));
  }

  stop(): void {
    this.#parts.leadership.stop();
    this.#parts.channel.close();
  }

  /** The computer woke up, or is back online: whoever leads should look at its connection. */
  nudge(): void {
    this.#reader?.nudge();
    this.#parts.channel.postMessage({ type: "nudge" });
  }

  async #lead(signal: AbortSignal): Promise<void> {
    const { log, channel } = this.#parts;
    await this.#readStored();
    channel.postMessage({ type: "leader" });
    let cursor = (await log.tail()).cursor;
    while (!cursor && !signal.aborted) {
      cursor = await this.#firstCursor(signal);
      if (cursor) await log.append([], cursor);
    }
    if (signal.aborted) return;
    this.#reader = new StreamReader(
      {
        ...this.#parts,
        store: (entries, next) => this.#store(entries, next),
        status: (status) => this.#announce(status),
      },
      cursor,
    );
    await this.#reader.run(signal);
    this.#reader = null;
  }

  async #firstCursor(signal: AbortSignal): Promise<string> {
    try {
      return await this.#parts.firstCursor();
    } catch {
      this.#announce("waiting");
      await this.#parts.wait(2_000, signal);
      return "";
    }
  }

  async #store(entries: Entry[], cursor: string): Promise<void> {
    const fresh = entries.filter((entry) => this.#sequence.accept(entry));
    try {
      await this.#parts.log.append(fresh, cursor);
    } catch {
      // The disk is full: what has come is shown all the same, and a reload reads it again.
    }
    if (fresh.length === 0) return;
    this.#parts.show(fresh, false);
    this.#parts.channel.postMessage({ type: "entries", entries: fresh });
  }

  async #readStored(): Promise<void> {
    const { entries } = await this.#parts.log.tail();
    this.#take(entries, true);
  }

  #take(entries: Entry[], stored: boolean): void {
    const fresh = entries.filter((entry) => this.#sequence.accept(entry));
    if (fresh.length > 0) this.#parts.show(fresh, stored);
  }

  #announce(status: StreamStatus): void {
    this.#status = status;
    this.#parts.status(status);
    this.#parts.channel.postMessage({ type: "status", status });
  }

  #hear(message: HubMessage): void {
    if (message.type === "entries") this.#take(message.entries, false);
    else if (message.type === "status") this.#parts.status(message.status);
    else if (message.type === "leader") void this.#readStored();
    else if (message.type === "nudge") this.#reader?.nudge();
    else if (this.leads) this.#announce(this.#status);
  }
}
