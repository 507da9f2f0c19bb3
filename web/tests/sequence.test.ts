import { describe, expect, test } from "vitest";
import type { Entry } from "../src/stream/entries";
import { isAfter } from "../src/stream/ids";
import { Sequence } from "../src/stream/sequence";

export function match(id: string): Entry {
  return { kind: "match", id, time: 0, message: { text: id }, matches: [] };
}

function gap(from: string, to: string): Entry {
  return { kind: "gap", id: `gap:${from}:${to}`, time: 0, from, to, lost: 3 };
}

describe("isAfter", () => {
  test("compares epoch, number and part as numbers", () => {
    expect(isAfter("7-10", "7-9")).toBe(true);
    expect(isAfter("7-9", "7-10")).toBe(false);
    expect(isAfter("7-9", "7-9")).toBe(false);
    expect(isAfter("7-9.2", "7-9")).toBe(true);
    expect(isAfter("7-9.10", "7-9.9")).toBe(true);
    expect(isAfter("8-1", "7-999")).toBe(true);
    expect(isAfter("7-1", "")).toBe(true);
    expect(isAfter("nonsense", "7-1")).toBe(false);
  });
});

describe("Sequence", () => {
  test("lets every entry through once", () => {
    const sequence = new Sequence();
    const given = ["7-1", "7-2", "7-2", "7-1", "7-3", "7-3.1", "7-3"].map(match);
    const accepted = given.filter((entry) => sequence.accept(entry)).map((entry) => entry.id);
    expect(accepted).toEqual(["7-1", "7-2", "7-3", "7-3.1"]);
    expect(sequence.last).toBe("7-3.1");
  });

  test("takes the same gap once, and what comes after it even if its epoch is lower", () => {
    const sequence = new Sequence();
    expect(sequence.accept(match("9-50"))).toBe(true);
    expect(sequence.accept(gap("9-50", "3-1"))).toBe(true);
    expect(sequence.accept(gap("9-50", "3-1"))).toBe(false);
    expect(sequence.accept(match("3-2"))).toBe(true);
    // The stored entries are offered again.
    expect(sequence.accept(match("9-50"))).toBe(false);
    expect(sequence.accept(match("3-2"))).toBe(false);
  });

  test("remembers a bounded number of ids, and never lets an older id of the epoch through", () => {
    const sequence = new Sequence(10);
    for (let seq = 1; seq <= 100; seq++) sequence.accept(match(`7-${seq}`));
    expect(sequence.accept(match("7-5"))).toBe(false);
    expect(sequence.accept(match("7-101"))).toBe(true);
  });
});
