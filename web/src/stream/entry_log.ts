// The last entries and the cursor after them, kept on this computer: a reload shows what was there,
// and reads on from where it was. Entries and cursor are stored in one transaction.

import type { Entry } from "./entries";

export const KEPT = 1_000;
export const KEPT_BY_TAB = 200; // all of them are written each time
const SLACK = 200;

export interface Tail {
  entries: Entry[];
  /** Empty if nothing was ever read. */
  cursor: string;
}

export interface EntryLog {
  tail(): Promise<Tail>;
  append(entries: Entry[], cursor: string): Promise<void>;
  clear(): Promise<void>;
}

/** For browsers that keep nothing, such as some private windows. */
export class MemoryLog implements EntryLog {
  #entries: Entry[] = [];
  #cursor = "";

  async tail(): Promise<Tail> {
    return { entries: [...this.#entries], cursor: this.#cursor };
  }

  async append(entries: Entry[], cursor: string): Promise<void> {
    this.#entries = [...this.#entries, ...entries].slice(-KEPT);
    this.#cursor = cursor;
  }

  async clear(): Promise<void> {
    this.#entries = [];
    this.#cursor = "";
  }
}

/** For one tab only, where tabs cannot agree on a reader: no secure context, and so no locks. */
export class TabLog implements EntryLog {
  readonly #storage: Pick<Storage, "getItem" | "setItem" | "removeItem">;
  readonly #name: string;

  constructor(storage: Pick<Storage, "getItem" | "setItem" | "removeItem">, name: string) {
    this.#storage = storage;
    this.#name = name;
  }

  async tail(): Promise<Tail> {
    const stored = this.#storage.getItem(this.#name);
    return stored ? (JSON.parse(stored) as Tail) : { entries: [], cursor: "" };
  }

  async append(entries: Entry[], cursor: string): Promise<void> {
    const before = await this.tail();
    const tail = { entries: [...before.entries, ...entries].slice(-KEPT_BY_TAB), cursor };
    this.#storage.setItem(this.#name, JSON.stringify(tail));
  }

  async clear(): Promise<void> {
    this.#storage.removeItem(this.#name);
  }
}

export class IndexedLog implements EntryLog {
  readonly #database: IDBDatabase;

  private constructor(database: IDBDatabase) {
    this.#database = database;
  }

  static async open(name: string): Promise<IndexedLog> {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("entries", { autoIncrement: true });
      request.result.createObjectStore("state");
    };
    return new IndexedLog(await done(request));
  }

  async tail(): Promise<Tail> {
    const transaction = this.#database.transaction(["entries", "state"]);
    const entries = done(transaction.objectStore("entries").getAll() as IDBRequest<Entry[]>);
    const cursor = done(transaction.objectStore("state").get("cursor") as IDBRequest<string>);
    return { entries: (await entries).slice(-KEPT), cursor: (await cursor) ?? "" };
  }

  async append(entries: Entry[], cursor: string): Promise<void> {
    const transaction = this.#database.transaction(["entries", "state"], "readwrite");
    const store = transaction.objectStore("entries");
    for (const entry of entries) store.add(entry);
    transaction.objectStore("state").put(cursor, "cursor");
    const count = store.count();
    count.onsuccess = () => {
      if (count.result > KEPT + SLACK) dropOldest(store, count.result - KEPT);
    };
    await ended(transaction);
  }

  async clear(): Promise<void> {
    const transaction = this.#database.transaction(["entries", "state"], "readwrite");
    transaction.objectStore("entries").clear();
    transaction.objectStore("state").clear();
    await ended(transaction);
  }
}

/** The log of a channel; in memory where the browser keeps nothing. */
export async function openLog(name: string): Promise<EntryLog> {
  try {
    return await IndexedLog.open(name);
  } catch {
    return new MemoryLog();
  }
}

function dropOldest(store: IDBObjectStore, count: number): void {
  let left = count;
  const cursor = store.openKeyCursor();
  cursor.onsuccess = () => {
    if (!cursor.result || left-- === 0) return;
    store.delete(cursor.result.primaryKey);
    cursor.result.continue();
  };
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the browser's storage failed"));
  });
}

function ended(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () =>
      reject(transaction.error ?? new Error("the browser's storage failed"));
  });
}
