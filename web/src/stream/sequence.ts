// Lets every entry through once, whether it comes from the stream, another tab or the disk.

import type { Entry } from "./entries";
import { isAfter, parseId } from "./ids";

export class Sequence {
  #last = "";
  #seen = new Set<string>();
  readonly #kept: number;

  /** `kept` must be more than the entries that may be offered a second time: the stored tail. */
  constructor(kept = 4_000) {
    this.#kept = kept;
  }

  /** The id of the last event that was let through; empty if there was none. */
  get last(): string {
    return this.#last;
  }

  accept(entry: Entry): boolean {
    if (this.#seen.has(entry.id)) return false;
    if (entry.kind !== "gap") {
      // Within one life of the server ids ascend; after a gap they may begin anywhere.
      const sameEpoch = parseId(entry.id)?.[0] === parseId(this.#last)?.[0];
      if (sameEpoch && !isAfter(entry.id, this.#last)) return false;
      this.#last = entry.id;
    }
    this.#seen.add(entry.id);
    if (this.#seen.size > this.#kept) {
      const [oldest] = this.#seen;
      this.#seen.delete(oldest!);
    }
    return true;
  }
}
