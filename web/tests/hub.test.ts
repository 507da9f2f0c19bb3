import { describe, expect, test } from "vitest";
import { MemoryLog, type EntryLog } from "../src/stream/entry_log";
import { Hub, type Channel, type HubMessage } from "../src/stream/hub";
import { Leadership, type Locks } from "../src/stream/leader";
import { wait } from "../src/stream/reader";

/** Locks as browsers have them: one holder, the others wait in order. */
class FakeLocks implements Locks {
  #last: Promise<unknown> = Promise.resolve();

  request(_name: string, options: { signal: AbortSignal }, held: () => Promise<void>) {
    const before = this.#last;
    const result = (async () => {
      await before.catch(() => {});
      if (options.signal.aborted) throw new DOMException("aborted", "AbortError");
      await held();
    })();
    this.#last = result;
    return result;
  }
}

/** A BroadcastChannel: everybody hears but the sender, later. */
class FakeBroadcast {
  readonly channels = new Set<Channel>();

  open(): Channel {
    const channel: Channel = {
      onmessage: null,
      close: () => this.channels.delete(channel),
      postMessage: (message: HubMessage) => {
        const data = structuredClone(message);
        for (const other of this.channels) {
          if (other !== channel) queueMicrotask(() => other.onmessage?.({ data }));
        }
      },
    };
    this.channels.add(channel);
    return channel;
  }
}

/** A server with events 1, 2, 3, ... of which a connection sends all after its cursor. */
class FakeServer {
  readonly connections: string[] = [];
  last = 0;
  #streams = new Set<ReadableStreamDefaultController<Uint8Array>>();

  publish(count: number): void {
    for (let n = 0; n < count; n++) {
      this.last += 1;
      for (const stream of this.#streams) stream.enqueue(frame(this.last));
    }
  }

  breakConnections(): void {
    for (const stream of this.#streams) stream.error(new TypeError("broken"));
    this.#streams.clear();
  }

  connect(cursor: string, signal: AbortSignal): Promise<Response> {
    this.connections.push(cursor);
    const after = Number(cursor.split("-")[1]);
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        for (let seq = after + 1; seq <= this.last; seq++) controller.enqueue(frame(seq));
        this.#streams.add(controller);
        signal.addEventListener("abort", () => {
          if (this.#streams.delete(controller)) controller.error(new DOMException("x", "AbortError"));
        });
      },
    });
    return Promise.resolve(new Response(body));
  }
}

function frame(seq: number): Uint8Array {
  const event = {
    id: `7-${seq}`,
    type: "org.nearcast.match",
    time: "2026-01-01T00:00:00Z",
    data: { message: { text: "x" }, matches: [] },
  };
  return new TextEncoder().encode(`id: 7-${seq}\nevent: match\ndata: ${JSON.stringify(event)}\n\n`);
}

class Browser {
  readonly locks = new FakeLocks();
  readonly broadcast = new FakeBroadcast();
  readonly server = new FakeServer();
  log: EntryLog = new MemoryLog();

  openTab() {
    const shown: string[] = [];
    const hub = new Hub({
      log: this.log,
      channel: this.broadcast.open(),
      leadership: new Leadership(this.locks, "lock"),
      connect: (cursor, signal) => this.server.connect(cursor, signal),
      firstCursor: async () => `7-${this.server.last}`,
      show: (entries) => shown.push(...entries.map((entry) => entry.id)),
      status: () => {},
      wait: (_ms, signal) => wait(1, signal),
      now: Date.now,
      random: Math.random,
    });
    void hub.start();
    return { hub, shown };
  }
}

function ids(from: number, to: number): string[] {
  return Array.from({ length: to - from + 1 }, (_, at) => `7-${from + at}`);
}

async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; !condition(); turn++) {
    if (turn > 2000) throw new Error("it did not happen");
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("Hub", () => {
  test("seven tabs hear everything over one connection", async () => {
    const browser = new Browser();
    const tabs = Array.from({ length: 7 }, () => browser.openTab());
    await until(() => browser.server.connections.length === 1);
    browser.server.publish(20);
    await until(() => tabs.every((tab) => tab.shown.length === 20));
    for (const tab of tabs) expect(tab.shown).toEqual(ids(1, 20));
    expect(browser.server.connections).toEqual(["7-0"]);
    expect(tabs.filter((tab) => tab.hub.leads)).toHaveLength(1);
    for (const tab of tabs) tab.hub.stop();
  });

  test("when the leading tab closes, another one goes on without loss and without repetition", async () => {
    const browser = new Browser();
    const first = browser.openTab();
    await until(() => first.hub.leads);
    const second = browser.openTab();
    browser.server.publish(5);
    await until(() => second.shown.length === 5);
    first.hub.stop();
    browser.server.publish(5); // nobody listens
    await until(() => second.shown.length === 10);
    expect(second.shown).toEqual(ids(1, 10));
    expect(browser.server.connections).toEqual(["7-0", "7-5"]);
    second.hub.stop();
  });

  test("a reload shows what was there and what came meanwhile, each once", async () => {
    const browser = new Browser();
    const before = browser.openTab();
    await until(() => browser.server.connections.length === 1);
    browser.server.publish(3);
    await until(() => before.shown.length === 3);
    before.hub.stop();
    browser.server.publish(2);
    const after = browser.openTab();
    await until(() => after.shown.length === 5);
    expect(after.shown).toEqual(ids(1, 5));
    after.hub.stop();
  });

  test("a broken connection is taken up after the last event", async () => {
    const browser = new Browser();
    const tab = browser.openTab();
    await until(() => browser.server.connections.length === 1);
    browser.server.publish(4);
    await until(() => tab.shown.length === 4);
    browser.server.breakConnections();
    browser.server.publish(4);
    await until(() => tab.shown.length === 8);
    expect(tab.shown).toEqual(ids(1, 8));
    expect(browser.server.connections[1]).toBe("7-4");
    tab.hub.stop();
  });

  test("what a leader stored and did not tell is read from the log by the others", async () => {
    const browser = new Browser();
    const first = browser.openTab();
    await until(() => first.hub.leads);
    const second = browser.openTab();
    const third = browser.openTab();
    browser.server.publish(1);
    await until(() => third.shown.length === 1);
    // The leader crashes between storing and telling.
    const entry = { kind: "match" as const, id: "7-2", time: 0, message: {}, matches: [] };
    await browser.log.append([entry], "7-2");
    browser.server.last = 2;
    first.hub.stop();
    await until(() => second.shown.length === 2 && third.shown.length === 2);
    expect(third.shown).toEqual(ids(1, 2));
    expect(browser.server.connections.at(-1)).toBe("7-2");
    second.hub.stop();
    third.hub.stop();
  });

  test("a full disk hides nothing", async () => {
    const browser = new Browser();
    const memory = browser.log;
    let full = false;
    browser.log = {
      tail: () => memory.tail(),
      clear: () => memory.clear(),
      append: (entries, cursor) =>
        full ? Promise.reject(new Error("full")) : memory.append(entries, cursor),
    };
    const tab = browser.openTab();
    await until(() => browser.server.connections.length === 1);
    full = true;
    browser.server.publish(3);
    await until(() => tab.shown.length === 3);
    expect(tab.shown).toEqual(ids(1, 3));
    tab.hub.stop();
  });
});

describe("Leadership", () => {
  test("without locks every tab leads", async () => {
    const led: string[] = [];
    const run = (name: string) => new Leadership(null, "x").run(async () => void led.push(name));
    await Promise.all([run("a"), run("b")]);
    expect(led).toEqual(["a", "b"]);
  });

  test("a tab that stops waiting never leads", async () => {
    const locks = new FakeLocks();
    const [first, second] = [new Leadership(locks, "x"), new Leadership(locks, "x")];
    const led: string[] = [];
    const ended = first.run((signal) => {
      led.push("first");
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
    });
    const waited = second.run(async () => void led.push("second"));
    await until(() => first.leads);
    second.stop();
    first.stop();
    await Promise.all([ended, waited]);
    expect(led).toEqual(["first"]);
    expect(first.leads).toBe(false);
  });
});
