// What the feed holds: an event as it was delivered, or a gap where events are missing.

import type { CloudEvent, Gap, MatchOf, Message } from "../api/types";
import type { SseEvent } from "./sse";

export interface MatchEntry {
  kind: "match";
  id: string;
  time: number;
  message: Message;
  matches: MatchOf[];
  /** How many matches are not listed. */
  omitted?: number;
}

export interface LifecycleEntry {
  kind: "lifecycle";
  id: string;
  time: number;
  what: "started" | "updated" | "ended";
  subscriptionId: string;
  /** Whose it is, in a feed of all subscribers. */
  subscriber?: string;
  reason?: string;
}

export interface GapEntry {
  kind: "gap";
  id: string;
  time: number;
  from: string;
  to: string;
  lost: number | null;
}

export type Entry = MatchEntry | LifecycleEntry | GapEntry;

const PREFIX = "org.nearcast.";

/** The entry of a CloudEvent; null if it is of a type that this page does not know. */
export function entryOf(event: CloudEvent): Entry | null {
  const type = event.type.startsWith(PREFIX) ? event.type.slice(PREFIX.length) : event.type;
  const time = Date.parse(event.time);
  const data = event.data;
  if (type === "match" || type === "unmatch") {
    const message = data.message ?? { text: "" };
    const entry: MatchEntry = { kind: "match", id: event.id, time, message, matches: data.matches ?? [] };
    if (data.omitted) entry.omitted = data.omitted;
    return entry;
  }
  if (type.startsWith("subscription-")) {
    const what = type.slice("subscription-".length) as LifecycleEntry["what"];
    const entry: LifecycleEntry = {
      kind: "lifecycle",
      id: event.id,
      time,
      what,
      subscriptionId: data.subscriptionId ?? "",
    };
    if (data.subscriber !== undefined) entry.subscriber = data.subscriber;
    if (data.terminationReason) entry.reason = data.terminationReason;
    return entry;
  }
  return null;
}

export function gapOf(gap: Gap, time: number): GapEntry {
  return { kind: "gap", id: `gap:${gap.from}:${gap.to}`, time, ...gap };
}

/** The entry of a frame of the stream. Throws if its data is not JSON. */
export function entryOfFrame(frame: SseEvent, now: number): Entry | null {
  const data: unknown = JSON.parse(frame.data);
  if (frame.type === "expiring") return null; // the session has an end of its own
  if (frame.type === "gap") return gapOf(data as Gap, now);
  return entryOf(data as CloudEvent);
}

/** Where a message is; the middle of a box. Null if it is nowhere. */
export function placeOf(message: Message): [number, number] | null {
  if (Number.isFinite(message.lon) && Number.isFinite(message.lat)) {
    return [message.lon!, message.lat!];
  }
  const { west, south, east, north } = message;
  if ([west, south, east, north].every((degrees) => Number.isFinite(degrees))) {
    const across = west! > east! ? 360 : 0;
    return [(west! + east! + across) / 2, (south! + north!) / 2];
  }
  const point = message.geometry?.coordinates;
  return point && Number.isFinite(point[0]) ? [point[0], point[1]] : null;
}

/** What a message says, as text. */
export function textOf(message: Message): string {
  return message.text ?? message.tokens?.join(" ") ?? "";
}
