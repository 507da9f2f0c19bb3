// The subscriptions in view: each of them, or counts per cell while there are too many.

import { computed, signal } from "@preact/signals";
import type { Bounds } from "../api/client";
import { bboxText } from "../api/client";
import type { Cell, Region, Subscription } from "../api/types";
import { shapeOf, translated } from "../geometry/regions";
import * as feed from "./feed";
import { fail, notify, update } from "./notices";
import { client, session } from "./session";
import { map } from "./view";

export const MAX_LISTED = 500;
const CELL_PIXELS = 56;
const SETTLE_MS = 200;
const REFRESH_MS = 4_000;

export const listed = signal<readonly Subscription[]>([]);
export const cells = signal<readonly Cell[]>([]);
export const total = signal(0);
export const loaded = signal(false);
export const selectedId = signal<string | null>(null);
/** A place that the selected one is being dragged to. */
const dragged = signal<Region | null>(null);

/** The selected one as it was last seen, for when it is not in view. */
const seen = signal<Subscription | null>(null);

export const selected = computed(() => {
  const id = selectedId.value;
  const kept = seen.value?.id === id ? seen.value : null;
  return listed.value.find((one) => one.id === id) ?? kept;
});

let bounds: Bounds | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;
let running: AbortController | null = null;

/** The map shows another part of the world. */
export function viewChanged(inView: Bounds): void {
  bounds = inView;
  refreshSoon();
}

export function refreshSoon(ms = SETTLE_MS): void {
  clearTimeout(timer);
  timer = setTimeout(() => void refresh().catch(fail), ms);
}

export async function refresh(): Promise<void> {
  if (!bounds || !session.value?.me.roles.includes("subscribe")) return;
  clearTimeout(timer);
  running?.abort();
  const { signal: aborted } = (running = new AbortController());
  try {
    const found = await client.cells(bounds, columns(), aborted);
    const few = found.total <= MAX_LISTED;
    const query = { bbox: bboxText(bounds), limit: MAX_LISTED };
    const page = few ? await client.subscriptions(query, aborted) : null;
    total.value = found.total;
    cells.value = few ? [] : found.cells;
    seen.value = selected.value;
    listed.value = page ? page.subscriptions.filter(isAlive) : [];
    loaded.value = true;
    draw();
  } catch (error) {
    if (!aborted.aborted) throw error;
  } finally {
    // Some move by themselves.
    if (!aborted.aborted && document.visibilityState === "visible") refreshSoon(REFRESH_MS);
  }
}

export function select(id: string | null): void {
  selectedId.value = id;
  dragged.value = null;
  if (id !== null && selected.value === null) void find(id).catch(fail);
  draw();
}

/** Reads one that is not in view, and looks there. */
async function find(id: string): Promise<void> {
  const found = await client.subscription(id);
  if (selectedId.value !== id) return;
  seen.value = found;
  map.value?.fit(shapeOf(found.config.subscriptionDetail.region));
  draw();
}

export function draw(): void {
  const region = dragged.value;
  const one = selected.value;
  const all = one && !listed.value.includes(one) ? [...listed.value, one] : listed.value;
  const shown = all.map((one) =>
    region && one.id === selectedId.value ? withRegion(one, region) : one,
  );
  map.value?.showSubscriptions(shown, selectedId.value);
  map.value?.showCells(cells.value);
}

export function clear(): void {
  listed.value = [];
  cells.value = [];
  total.value = 0;
  loaded.value = false;
  select(null);
}

// --- changes -----------------------------------------------------------------------------------

/** The one that is being changed: until the server has answered, its version here is old. */
export const changing = signal<string | null>(null);

async function whileChanging<T>({ id }: Subscription, change: Promise<T>): Promise<T> {
  changing.value = id;
  try {
    return await change;
  } finally {
    if (changing.value === id) changing.value = null;
  }
}

export async function setPaused(subscription: Subscription, paused: boolean): Promise<void> {
  const change = client.change(subscription.id, { status: paused ? "INACTIVE" : "ACTIVE" });
  const changed = await whileChanging(subscription, change);
  listed.value = listed.value.map((one) => (one.id === changed.id ? changed : one));
  if (seen.value?.id === changed.id) seen.value = changed;
  await refresh();
}

export async function remove(subscription: Subscription): Promise<void> {
  await whileChanging(subscription, client.remove(subscription.id));
  seen.value = null;
  if (selectedId.value === subscription.id) select(null);
  await refresh();
}

/** The selected one follows the pointer, and moves when it is dropped. */
export function dragSelected(dLon: number, dLat: number, dropped: boolean): void {
  const one = selected.value;
  if (!one) return;
  const from = one.config.subscriptionDetail.region;
  const region = translated(from, dLon, dLat);
  dragged.value = region;
  draw();
  if (!dropped) return;
  void move(one, region).catch(fail);
}

/** Moves a subscription, and tells what began and ceased to match by it. */
export async function move(subscription: Subscription, region: Region): Promise<void> {
  const from = subscription.config.subscriptionDetail.region;
  const before = feed.counts.value.get(subscription.id) ?? { plus: 0, minus: 0 };
  try {
    const moved = await whileChanging(subscription, client.move(subscription.id, region));
    const refused = moved.rejected[0];
    if (refused) throw new Error(refused.reason);
    const undo = { label: "Undo", run: () => void move(withRegion(subscription, region), from).catch(fail) };
    const notice = notify(`${subscription.id} has moved.`, { action: undo });
    watch(subscription.id, before, notice);
  } finally {
    await refresh();
    dragged.value = null;
    draw();
  }
}

/** Adds to a notice what the feed says about a subscription in the next seconds. */
function watch(id: string, before: feed.Counts, notice: number): void {
  const stop = feed.counts.subscribe((counts) => {
    const now = counts.get(id) ?? before;
    const [plus, minus] = [now.plus - before.plus, now.minus - before.minus];
    if (plus || minus) update(notice, `${id} has moved: +${plus} −${minus} messages.`);
  });
  setTimeout(stop, 6_000);
}

/** As many columns of cells as counts can be read in. */
function columns(): number {
  const width = map.value?.map.getContainer().clientWidth ?? 800;
  return Math.max(4, Math.min(32, Math.round(width / CELL_PIXELS)));
}

function withRegion(subscription: Subscription, region: Region): Subscription {
  const { config } = subscription;
  const subscriptionDetail = { ...config.subscriptionDetail, region };
  return { ...subscription, config: { ...config, subscriptionDetail } };
}

function isAlive(subscription: Subscription): boolean {
  return subscription.status === "ACTIVE" || subscription.status === "INACTIVE";
}
