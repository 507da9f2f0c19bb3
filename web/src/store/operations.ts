// Live figures of the server, read from /metrics while someone looks at them; and traces.

import { signal } from "@preact/signals";
import type { Trace } from "../api/types";
import { Metrics, quantile, rate } from "../operations/metrics";
import { fail } from "./notices";
import { client } from "./session";
import { map, panel } from "./view";

const EVERY_MS = 2_000;
const WINDOW = 5; // readings: quantiles over ten seconds
export const KEPT_READINGS = 150;

export interface Figures {
  time: number;
  messagesPerS: number;
  matchesPerS: number;
  p50: number | null;
  p99: number | null;
  examined: number | null;
  pending: number;
  lost: number;
  segments: number;
  subscriptions: number;
  streams: number;
  logBytes: number;
}

interface Reading {
  time: number;
  metrics: Metrics;
}

export const figures = signal<readonly Figures[]>([]);
export const trace = signal<Trace | null>(null);
export const tracing = signal(false);

const readings: Reading[] = [];
let running = false;

/** Reads for as long as the panel is open and the page is visible. */
export function watchMetrics(): void {
  if (running) return;
  running = true;
  const next = async () => {
    if (panel.value !== "operations") {
      running = false;
      return;
    }
    if (document.visibilityState === "visible") await read();
    setTimeout(() => void next(), EVERY_MS);
  };
  void next();
}

async function read(): Promise<void> {
  try {
    const metrics = new Metrics(await client.metrics());
    readings.push({ time: Date.now() / 1000, metrics });
    if (readings.length > KEPT_READINGS) readings.shift();
    figures.value = [...figures.value.slice(-KEPT_READINGS + 1), figuresOf(readings)];
  } catch {
    // The connection's state is shown elsewhere; the next reading comes in two seconds.
  }
}

export function figuresOf(list: readonly Reading[]): Figures {
  const now = list.at(-1)!;
  const last = list.at(-2) ?? now;
  const past = list.at(-1 - WINDOW) ?? list[0]!;
  const seconds = now.time - last.time;
  const growth = (name: string) => rate(last.metrics.sum(name), now.metrics.sum(name), seconds);
  const latency = (q: number) => {
    const name = "nearcast_publish_to_written_seconds";
    return quantile(q, past.metrics.buckets(name), now.metrics.buckets(name));
  };
  const examined = "nearcast_examined_subscriptions";
  const messages = now.metrics.sum(`${examined}_count`) - past.metrics.sum(`${examined}_count`);
  const looked = now.metrics.sum(`${examined}_sum`) - past.metrics.sum(`${examined}_sum`);
  return {
    time: now.time,
    messagesPerS: growth("nearcast_messages_published_total"),
    matchesPerS: growth("nearcast_matches_total"),
    p50: latency(0.5),
    p99: latency(0.99),
    examined: messages > 0 ? looked / messages : null,
    pending: now.metrics.sum("nearcast_events_pending"),
    lost: now.metrics.sum("nearcast_events_lost_total"),
    segments: now.metrics.sum("nearcast_segments"),
    subscriptions: now.metrics.sum("nearcast_subscriptions"),
    streams: now.metrics.sum("nearcast_streams"),
    logBytes: now.metrics.sum("nearcast_log_bytes"),
  };
}

/** Shows how the index found the subscriptions of a message. */
export async function traceMessage(id: string): Promise<void> {
  panel.value = "operations";
  watchMetrics();
  tracing.value = true;
  try {
    trace.value = await client.trace(id);
    map.value?.showTrace(trace.value);
  } catch (error) {
    fail(error);
  } finally {
    tracing.value = false;
  }
}

export function clearTrace(): void {
  trace.value = null;
  map.value?.showTrace(null);
}
