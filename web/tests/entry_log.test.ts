import "fake-indexeddb/auto";
import { describe, expect, test } from "vitest";
import { IndexedLog, KEPT, KEPT_BY_TAB, MemoryLog, TabLog } from "../src/stream/entry_log";
import type { Entry } from "../src/stream/entries";

function entry(seq: number): Entry {
  return { kind: "match", id: `7-${seq}`, time: seq, message: { text: "x" }, matches: [] };
}

const stored = new Map<string, string>();
const storage = {
  getItem: (name: string) => stored.get(name) ?? null,
  setItem: (name: string, value: string) => void stored.set(name, value),
  removeItem: (name: string) => void stored.delete(name),
};

describe.each([
  ["IndexedLog", () => IndexedLog.open("log"), KEPT],
  ["MemoryLog", async () => new MemoryLog(), KEPT],
  ["TabLog", async () => new TabLog(storage, "log"), KEPT_BY_TAB],
] as const)("%s", (_name, open, kept) => {
  test("keeps entries in order, with the cursor", async () => {
    const log = await open();
    await log.clear();
    expect(await log.tail()).toEqual({ entries: [], cursor: "" });
    await log.append([entry(1), entry(2)], "7-2");
    await log.append([], "7-9");
    const tail = await log.tail();
    expect(tail.entries.map((one) => one.id)).toEqual(["7-1", "7-2"]);
    expect(tail.cursor).toBe("7-9");
  });

  test("keeps the last ones only", async () => {
    const log = await open();
    await log.clear();
    for (let batch = 0; batch < 30; batch++) {
      const entries = Array.from({ length: 100 }, (_, at) => entry(batch * 100 + at));
      await log.append(entries, `7-${batch * 100 + 99}`);
    }
    const { entries } = await log.tail();
    expect(entries).toHaveLength(kept);
    expect(entries.at(-1)!.id).toBe("7-2999");
    expect(entries[0]!.id).toBe(`7-${3000 - kept}`);
  });
});
