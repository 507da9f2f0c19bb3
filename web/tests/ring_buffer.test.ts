import { describe, expect, test } from "vitest";
import { FLOATS, mercator, PointRing } from "../src/map/ring_buffer";

function push(ring: PointRing, count: number): void {
  for (let n = 0; n < count; n++) ring.push({ x: n, y: 0, time: n, color: 0, sign: 1 });
}

describe("PointRing", () => {
  test("fills from the start, and reports what was written", () => {
    const ring = new PointRing(4);
    expect(ring.takeDirty()).toEqual([]);
    push(ring, 3);
    expect(ring.size).toBe(3);
    expect(ring.takeDirty()).toEqual([{ first: 0, count: 3 }]);
    expect(ring.takeDirty()).toEqual([]);
  });

  test("writes over the oldest, in two ranges around its end", () => {
    const ring = new PointRing(4);
    push(ring, 3);
    ring.takeDirty();
    push(ring, 2);
    expect(ring.size).toBe(4);
    expect(ring.takeDirty()).toEqual([
      { first: 3, count: 1 },
      { first: 0, count: 1 },
    ]);
    expect(ring.data[0]).toBe(1);
  });

  test("after more points than it has room for, all of it is dirty, once", () => {
    const ring = new PointRing(4);
    push(ring, 11);
    const ranges = ring.takeDirty();
    expect(ranges.reduce((sum, range) => sum + range.count, 0)).toBe(4);
    const kept = [0, 1, 2, 3].map((slot) => ring.data[slot * FLOATS]!).sort((a, b) => a - b);
    expect(kept).toEqual([7, 8, 9, 10]);
  });

  test("a new buffer gets everything; a cleared ring has nothing", () => {
    const ring = new PointRing(4);
    push(ring, 6);
    ring.takeDirty();
    ring.dirtyAll();
    expect(ring.takeDirty().reduce((sum, range) => sum + range.count, 0)).toBe(4);
    ring.clear();
    expect(ring.size).toBe(0);
    expect(ring.takeDirty()).toEqual([]);
  });
});

test("mercator puts the corners and the middle of the world where they are", () => {
  expect(mercator(0, 0)).toEqual([0.5, 0.5]);
  expect(mercator(-180, 85.0511)[0]).toBe(0);
  expect(mercator(-180, 85.0511)[1]).toBeCloseTo(0, 5);
  expect(mercator(180, -90)[1]).toBeCloseTo(1, 5);
});
