// The replay: what was delivered at a time of the past, read from the server page by page.

import { signal } from "@preact/signals";
import type { History } from "../api/types";
import { ReplayClock } from "../replay/clock";
import type { Entry } from "../stream/entries";
import { entryOf, gapOf } from "../stream/entries";
import * as feed from "./feed";
import { fail } from "./notices";
import { client, session } from "./session";
import { map } from "./view";

const PAGE = 500;
const TICK_MS = 100;
const TRAIL = 2_000;

export const history = signal<History | null>(null);
export const replay = signal<{ at: number; playing: boolean; speed: number; delivered: number } | null>(
  null,
);

let clock: ReplayClock | null = null;
let ahead: Entry[] = [];
let cursor = "";
let atEnd = false;
let reading: Promise<void> | null = null;
let timer: ReturnType<typeof setInterval> | undefined;
let delivered = 0;
let before: readonly Entry[] = [];
let generation = 0;

export async function loadHistory(): Promise<void> {
  history.value = await client.history();
}

/** Opens the replay at a share of the history, from 0 to 1. The live feed waits meanwhile. */
export function seek(share: number): void {
  const known = history.value;
  if (!known) return;
  if (!clock) {
    clock = new ReplayClock(Date.parse(known.from), Date.parse(known.to));
    before = feed.entries.value;
    feed.setReplaying(true);
    timer = setInterval(tick, TICK_MS);
  }
  clock.seek(clock.from + share * (clock.to - clock.from), performance.now());
  restart();
  publishState();
}

export function togglePlaying(): void {
  if (!clock) seek(0);
  if (!clock) return;
  if (clock.playing) clock.pause();
  else {
    if (clock.at >= clock.to) seek(0);
    clock.play(performance.now());
  }
  publishState();
}

export function setSpeed(speed: number): void {
  if (!clock) seek(0);
  clock?.setSpeed(speed, performance.now());
  publishState();
}

/** Back to the live feed, as it was and with what has come meanwhile. */
export function leave(): void {
  generation += 1;
  clearInterval(timer);
  clock = null;
  ahead = [];
  replay.value = null;
  map.value?.clearPoints();
  for (const entry of feed.matchEntries(before).toReversed()) {
    map.value?.showEntry(entry, Math.max(5, (Date.now() - entry.time) / 1000));
  }
  map.value?.repaintPoints();
  feed.replace(before);
  before = [];
  feed.setReplaying(false);
}

function restart(): void {
  generation += 1;
  ahead = [];
  atEnd = false;
  reading = null;
  delivered = 0;
  cursor = new Date(clock!.at).toISOString();
  feed.replace([]);
  map.value?.clearPoints();
  readAhead();
}

function tick(): void {
  if (!clock) return;
  // Time waits for what is still being read, so that nothing is skipped.
  if (ahead.length === 0 && !atEnd) {
    clock.seek(clock.at, performance.now());
    readAhead();
    return;
  }
  const now = clock.tick(performance.now());
  const due = ahead.findIndex((entry) => entry.time > now);
  const batch = ahead.splice(0, due < 0 ? ahead.length : due);
  if (batch.length > 0) show(batch);
  if (ahead.length < PAGE / 2) readAhead();
  publishState();
}

function show(batch: readonly Entry[]): void {
  delivered += feed.matchEntries(batch).length;
  feed.add(batch);
  for (const entry of feed.matchEntries(batch.slice(-TRAIL))) map.value?.showEntry(entry);
  map.value?.repaintPoints();
}

function readAhead(): void {
  if (reading || atEnd || !session.value) return;
  const own = generation;
  const { whose } = session.value;
  reading = client
    .poll(whose, cursor, PAGE)
    .then((page) => {
      if (own !== generation) return;
      if (page.gap) ahead.push(gapOf(page.gap, clock?.at ?? 0));
      const limit = clock?.to ?? 0;
      const read = page.events.flatMap((event) => entryOf(event) ?? []);
      ahead.push(...read.filter((entry) => entry.time <= limit));
      cursor = page.cursor;
      atEnd = page.events.length === 0 || (read.at(-1)?.time ?? 0) > limit;
      reading = null;
    })
    .catch((error: unknown) => {
      if (own !== generation) return;
      reading = null;
      atEnd = true;
      fail(error);
    });
}

function publishState(): void {
  if (!clock) return;
  replay.value = { at: clock.at, playing: clock.playing, speed: clock.speed, delivered };
}
