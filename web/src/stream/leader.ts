// One tab of a browser holds the stream: browsers allow six connections to a server, and the
// seventh tab would hang. Whoever gets the lock leads; when it ends, the browser wakes the next.

export interface Locks {
  request(
    name: string,
    options: { signal: AbortSignal },
    held: () => Promise<void>,
  ): Promise<unknown>;
}

export type Lead = (signal: AbortSignal) => Promise<void>;

export class Leadership {
  readonly #locks: Locks | null;
  readonly #name: string;
  readonly #end = new AbortController();
  leads = false;

  /** Without locks (no secure context) every tab leads, for itself. */
  constructor(locks: Locks | null, name: string) {
    this.#locks = locks;
    this.#name = name;
  }

  /** Resolves when this tab has led and is done, or has stopped waiting. */
  async run(lead: Lead): Promise<void> {
    const { signal } = this.#end;
    const held = async () => {
      if (signal.aborted) return;
      this.leads = true;
      try {
        await lead(signal);
      } finally {
        this.leads = false;
      }
    };
    if (this.#locks === null) return held();
    try {
      await this.#locks.request(this.#name, { signal }, held);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  stop(): void {
    this.#end.abort();
  }
}

/** The locks of this browser; null where there are none. */
export function browserLocks(): Locks | null {
  const locks = globalThis.navigator?.locks;
  if (!locks) return null;
  return {
    request: (name, options, held) => locks.request(name, { signal: options.signal }, held),
  };
}
