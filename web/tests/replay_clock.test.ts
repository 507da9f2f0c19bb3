import { describe, expect, test } from "vitest";
import { ReplayClock } from "../src/replay/clock";

describe("ReplayClock", () => {
  test("runs only while it plays, at its speed", () => {
    const clock = new ReplayClock(1_000, 1_000_000);
    expect(clock.tick(5_000)).toBe(1_000);
    clock.setSpeed(10, 5_000);
    clock.play(5_000);
    expect(clock.tick(5_100)).toBe(2_000);
    clock.pause();
    expect(clock.tick(9_000)).toBe(2_000);
    clock.play(9_000);
    expect(clock.tick(9_001)).toBe(2_010);
  });

  test("a change of speed counts from then on", () => {
    const clock = new ReplayClock(0, 1_000_000);
    clock.setSpeed(1, 0);
    clock.play(0);
    clock.setSpeed(1_000, 100);
    expect(clock.tick(200)).toBe(100 + 100_000);
    clock.setSpeed(5_000, 200);
    expect(clock.speed).toBe(1_000);
  });

  test("stops at the end, and plays again from the start", () => {
    const clock = new ReplayClock(0, 500);
    clock.setSpeed(1_000, 0);
    clock.play(0);
    expect(clock.tick(10)).toBe(500);
    expect(clock.playing).toBe(false);
    expect(clock.share).toBe(1);
    clock.play(20);
    expect(clock.at).toBe(0);
  });

  test("seeking stays within the history, and a clock that jumps back does not", () => {
    const clock = new ReplayClock(100, 500);
    clock.seek(9_999, 0);
    expect(clock.at).toBe(500);
    clock.seek(-5, 0);
    expect(clock.at).toBe(100);
    clock.play(1_000);
    expect(clock.tick(900)).toBe(100);
    expect(new ReplayClock(5, 1).share).toBe(1);
  });
});
