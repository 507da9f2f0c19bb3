import { beforeEach, describe, expect, test } from "vitest";
import * as feed from "../src/store/feed";
import type { Entry } from "../src/stream/entries";

function entry(number: number): Entry {
  return { kind: "match", id: `7-${number}`, time: number, message: { text: "tea" }, matches: [] } as Entry;
}

function entries(first: number, count: number): Entry[] {
  return Array.from({ length: count }, (_, at) => entry(first + at));
}

beforeEach(feed.reset);

describe("a pause", () => {
  test("holds events, and shows all of them when it ends", () => {
    const shown: string[] = [];
    feed.onShown((batch) => shown.push(...batch.map((one) => one.id)));
    feed.pause();
    feed.take(entries(0, 10), false);
    expect([feed.held.value, shown]).toEqual([10, []]);
    feed.resume();
    expect(shown).toEqual(entries(0, 10).map((one) => one.id));
    expect([feed.held.value, feed.entries.value.length]).toEqual([0, 10]);
  });

  test("that is longer than the page can hold ends with a gap that says how many", () => {
    const shown: Entry[] = [];
    feed.onShown((batch) => shown.push(...batch));
    feed.pause();
    const all = feed.MAX_HELD + 2_345;
    for (let first = 0; first < all; first += 500) feed.take(entries(first, Math.min(500, all - first)), false);
    expect(feed.held.value).toBe(all);
    feed.resume();
    expect(shown[0]).toMatchObject({ kind: "gap", lost: 2_345 });
    expect(shown.slice(1).map((one) => one.id)).toEqual(
      entries(2_345, feed.MAX_HELD).map((one) => one.id),
    );
    expect(feed.held.value).toBe(0);
    feed.pause();
    feed.take(entries(all, 1), false);
    feed.resume();
    expect(shown.at(-1)).toEqual(entry(all));
  });
});
