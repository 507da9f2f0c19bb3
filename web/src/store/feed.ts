// The feed: entries as they arrive, newest first, with filter, mute and pause.

import { computed, signal } from "@preact/signals";
import type { Entry, MatchEntry } from "../stream/entries";
import { textOf } from "../stream/entries";
import type { StreamStatus } from "../stream/reader";

export const MAX_ENTRIES = 1_000;
export const MAX_HELD = 10_000;
const FLUSH_MS = 200;

export type SignFilter = "all" | "plus" | "minus";

export interface Counts {
  plus: number;
  minus: number;
}

export const entries = signal<readonly Entry[]>([]);
export const status = signal<StreamStatus>("connecting");
export const paused = signal(false);
/** How many came while it was paused. */
export const held = signal(0);
export const received = signal(0);
export const filterText = signal("");
export const filterSign = signal<SignFilter>("all");
export const muted = signal<ReadonlySet<string>>(new Set());
/** Matches of each subscription since the page was opened. */
export const counts = signal<ReadonlyMap<string, Counts>>(new Map());

type Shown = (entries: readonly Entry[], stored: boolean) => void;

let waiting: Entry[] = [];
let heldEntries: Entry[] = [];
let heldDropped = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let shown: Shown = () => {};
let replaying = false;

/** Who draws entries on the map. */
export function onShown(listener: Shown): void {
  shown = listener;
}

/** Takes entries of the stream. They are shown a few times a second, many at once. */
export function take(arrived: readonly Entry[], stored: boolean): void {
  if (!stored) received.value += arrived.length;
  if (paused.value || replaying) return hold(arrived);
  if (stored) return show(arrived, true);
  waiting.push(...arrived);
  timer ??= setTimeout(() => {
    timer = undefined;
    const batch = waiting;
    waiting = [];
    if (paused.value || replaying) hold(batch);
    else show(batch, false);
  }, FLUSH_MS);
}

export function pause(): void {
  paused.value = true;
}

/** Shows what came meanwhile; if that was too much to keep, a gap says how much is not shown. */
export function resume(): void {
  paused.value = false;
  release();
}

/** While a replay is shown, what arrives waits. */
export function setReplaying(on: boolean): void {
  if (replaying === on) return;
  replaying = on;
  if (on) return;
  if (!paused.value) release();
}

/** Shows other entries instead, those of a replay, or the ones from before it. */
export function replace(others: readonly Entry[]): void {
  entries.value = others;
}

export function add(others: readonly Entry[]): void {
  entries.value = [...others.toReversed(), ...entries.value].slice(0, MAX_ENTRIES);
}

export function toggleMuted(subscriptionId: string): void {
  const next = new Set(muted.value);
  if (!next.delete(subscriptionId)) next.add(subscriptionId);
  muted.value = next;
}

export function reset(): void {
  waiting = [];
  heldEntries = [];
  heldDropped = 0;
  entries.value = [];
  held.value = received.value = 0;
  counts.value = new Map();
  muted.value = new Set();
  paused.value = false;
}

/** Whether an entry has a match that is not muted. */
export function isAudible(entry: Entry, silent: ReadonlySet<string>): boolean {
  if (entry.kind !== "match" || silent.size === 0) return true;
  return entry.matches.some((match) => !silent.has(match.subscriptionId));
}

export function matchesFilter(entry: Entry, text: string, sign: SignFilter): boolean {
  if (entry.kind === "gap") return true; // what is missing is never hidden
  if (sign !== "all") {
    if (entry.kind !== "match") return false;
    const wanted = sign === "plus" ? 1 : -1;
    if (!entry.matches.some((match) => match.sign === wanted)) return false;
  }
  const wanted = text.trim().toLocaleLowerCase();
  if (!wanted) return true;
  if (entry.kind === "lifecycle") return namesOf(entry).toLocaleLowerCase().includes(wanted);
  const names = entry.matches.map(namesOf).join("\n");
  return `${textOf(entry.message)}\n${names}`.toLocaleLowerCase().includes(wanted);
}

function namesOf(one: { subscriptionId: string; subscriber?: string }): string {
  return one.subscriber === undefined ? one.subscriptionId : `${one.subscriptionId}\n${one.subscriber}`;
}

export const visible = computed(() =>
  entries.value.filter(
    (entry) =>
      isAudible(entry, muted.value) && matchesFilter(entry, filterText.value, filterSign.value),
  ),
);

function hold(arrived: readonly Entry[]): void {
  heldEntries.push(...arrived);
  if (heldEntries.length > MAX_HELD) {
    heldDropped += heldEntries.length - MAX_HELD;
    heldEntries = heldEntries.slice(-MAX_HELD);
  }
  held.value = heldEntries.length + heldDropped;
}

function release(): void {
  const batch = heldEntries;
  if (heldDropped > 0 && batch[0]) {
    const { id, time } = batch[0];
    batch.unshift({ kind: "gap", id: `held:${id}`, time, from: "", to: id, lost: heldDropped });
  }
  heldEntries = [];
  heldDropped = held.value = 0;
  if (batch.length > 0) show(batch, false);
}

function show(batch: readonly Entry[], stored: boolean): void {
  add(batch);
  if (!stored) count(batch);
  shown(batch, stored);
}

function count(batch: readonly Entry[]): void {
  const next = new Map(counts.value);
  for (const entry of batch) {
    if (entry.kind !== "match") continue;
    for (const match of entry.matches) {
      const before = next.get(match.subscriptionId) ?? { plus: 0, minus: 0 };
      const plus = before.plus + (match.sign > 0 ? 1 : 0);
      next.set(match.subscriptionId, { plus, minus: before.minus + (match.sign > 0 ? 0 : 1) });
    }
  }
  counts.value = next;
}

export function matchEntries(of: readonly Entry[]): MatchEntry[] {
  return of.filter((entry) => entry.kind === "match");
}
