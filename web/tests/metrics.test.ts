import { describe, expect, test } from "vitest";
import { Metrics, quantile, rate } from "../src/operations/metrics";

const TEXT = `# HELP nearcast_messages_published_total Messages that are on disk.
# TYPE nearcast_messages_published_total counter
nearcast_messages_published_total 42.0
nearcast_events_lost_total{channel="sse"} 2.0
nearcast_events_lost_total{channel="a\\"b"} 3.0
nearcast_delay_seconds_bucket{le="0.1"} 10.0
nearcast_delay_seconds_bucket{le="1.0"} 30.0
nearcast_delay_seconds_bucket{le="+Inf"} 40.0
nearcast_delay_seconds_count 40.0
nearcast_delay_seconds_sum 1.5e+01
`;

describe("Metrics", () => {
  test("sums what has the same name", () => {
    const metrics = new Metrics(TEXT);
    expect(metrics.sum("nearcast_messages_published_total")).toBe(42);
    expect(metrics.sum("nearcast_events_lost_total")).toBe(5);
    expect(metrics.sum("nearcast_delay_seconds_sum")).toBe(15);
    expect(metrics.sum("nothing")).toBe(0);
  });

  test("has the buckets of a histogram in order", () => {
    expect([...new Metrics(TEXT).buckets("nearcast_delay_seconds")]).toEqual([
      [0.1, 10],
      [1, 30],
      [Infinity, 40],
    ]);
  });
});

describe("quantile", () => {
  const none = new Map<number, number>();
  const after = new Map([
    [0.1, 10],
    [1, 30],
    [Infinity, 40],
  ]);

  test("lies in a straight line within its bucket", () => {
    expect(quantile(0.125, none, after)).toBeCloseTo(0.05);
    expect(quantile(0.25, none, after)).toBeCloseTo(0.1);
    expect(quantile(0.5, none, after)).toBeCloseTo(0.55);
  });

  test("above the last bound it is that bound", () => {
    expect(quantile(0.99, none, after)).toBe(1);
  });

  test("counts only what has come since", () => {
    const before = new Map([
      [0.1, 10],
      [1, 10],
      [Infinity, 10],
    ]);
    expect(quantile(0.5, before, after)).toBeCloseTo(0.1 + 0.9 * 0.75);
    expect(quantile(0.5, after, after)).toBeNull();
  });

  test("after a restart counts from the beginning", () => {
    const before = new Map([[0.1, 1000], [1, 1000], [Infinity, 1000]]);
    expect(quantile(0.25, before, after)).toBeCloseTo(0.1);
  });
});

test("a rate never goes below 0", () => {
  expect(rate(10, 30, 2)).toBe(10);
  expect(rate(30, 4, 2)).toBe(2);
  expect(rate(1, 2, 0)).toBe(0);
});
