// The editor of a subscription: its draft, the preview that follows it, and saving.

import { computed, effect, signal } from "@preact/signals";
import { describe, Problem } from "../api/problems";
import type { Preview, Region, Subscription } from "../api/types";
import { translated } from "../geometry/regions";
import { reshaped } from "../geometry/reshaping";
import type { DrawKind } from "../map/drawing";
import type { Draft } from "../subscriptions/draft";
import { draftOf, newDraft, requestOf } from "../subscriptions/draft";
import type { Marked } from "../subscriptions/expression_error";
import { markError } from "../subscriptions/expression_error";
import { isPoint } from "../subscriptions/sliders";
import { fail, notify } from "./notices";
import { client, session } from "./session";
import * as subscriptions from "./subscriptions";
import { map } from "./view";

export const PREVIEWED = 1_000;
const SETTLE_MS = 180;
const DEFAULT_SUBSCRIBER = "default"; // as the server has it

export const draft = signal<Draft | null>(null);
export const drawing = signal<DrawKind | null>(null);
export const preview = signal<Preview | null>(null);
export const previewing = signal(false);
export const problem = signal<Problem | null>(null);
export const saving = signal(false);

export const request = computed(() => {
  const now = draft.value;
  return now && session.value ? requestOf(now, session.value.whose ?? DEFAULT_SUBSCRIBER) : null;
});

/** The word of the expression that is wrong, if one is. */
export const markedError = computed<(Marked & { reason: string }) | null>(() => {
  const error = problem.value?.of("expression");
  const text = draft.value?.expression ?? "";
  if (!error || !text.trim()) return null;
  // Requests have the expression without the spaces around it.
  const skipped = [...text].length - [...text.trimStart()].length;
  return { ...markError(text, (error.position ?? 0) + skipped), reason: error.reason };
});

/** What is wrong, if it is not the expression. */
export const otherProblem = computed(() => {
  const now = problem.value;
  return now && !now.of("expression") ? describe(now) : null;
});

export function begin(kind?: DrawKind): void {
  open(newDraft(kind));
  subscriptions.select(null);
}

export function edit(subscription: Subscription): void {
  open(draftOf(subscription));
}

export function change(part: Partial<Draft>): void {
  if (draft.value) draft.value = { ...draft.value, ...part };
}

export function close(): void {
  map.value?.cancelDrawing();
  draft.value = null;
  drawing.value = null;
  preview.value = null;
  problem.value = null;
}

/** Lets the person draw; the region that was there stays until there is another one. */
export async function drawRegion(kind: DrawKind): Promise<void> {
  change({ kind });
  if (!map.value) return;
  drawing.value = kind;
  try {
    const region = await map.value.draw(kind);
    if (region && draft.value) setRegion(region);
  } finally {
    if (drawing.value === kind) drawing.value = null;
  }
}

export function stopDrawing(): void {
  map.value?.cancelDrawing();
  drawing.value = null;
}

export function setRegion(region: Region | null): void {
  change({ region });
}

let dragFrom: Region | null = null;

export function dragDraft(dLon: number, dLat: number, dropped: boolean): void {
  drag((from) => translated(from, dLon, dLat), dropped);
}

/** Changes the shape of the draft by one of its handles. */
export function dragHandle(handle: number, dLon: number, dLat: number, dropped: boolean): void {
  drag((from) => reshaped(from, handle, dLon, dLat), dropped);
}

function drag(changed: (from: Region) => Region, dropped: boolean): void {
  dragFrom ??= draft.value?.region ?? null;
  if (!dragFrom) return;
  setRegion(changed(dragFrom));
  if (dropped) dragFrom = null;
}

export async function save(): Promise<void> {
  const [now, resource] = [draft.value, request.value];
  if (!now || !resource) return;
  saving.value = true;
  try {
    const saved = now.original
      ? await client.replace(now.original.id, resource, now.original.version)
      : await client.create(resource);
    close();
    notify(now.original ? `${saved.id} is changed.` : `${saved.id} is saved and listens from now on.`);
    await subscriptions.refresh();
    subscriptions.select(saved.id);
  } catch (error) {
    if (error instanceof Problem && error.status < 500) problem.value = error;
    else fail(error);
  } finally {
    saving.value = false;
  }
}

/** Keeps the preview and the map as the draft says, for as long as the page is open. */
export function followDraft(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let running: AbortController | null = null;
  effect(() => {
    const resource = request.value;
    clearTimeout(timer);
    running?.abort();
    if (!resource) {
      preview.value = null;
      problem.value = null;
      return;
    }
    previewing.value = true;
    timer = setTimeout(async () => {
      const { signal: aborted } = (running = new AbortController());
      try {
        // The id may exist already: that matters when it is saved.
        const { id: _, ...unnamed } = resource;
        preview.value = await client.preview(unnamed, PREVIEWED, aborted);
        problem.value = null;
      } catch (error) {
        if (aborted.aborted) return;
        preview.value = null;
        if (error instanceof Problem) problem.value = error;
        else fail(error);
      } finally {
        if (!aborted.aborted) previewing.value = false;
      }
    }, SETTLE_MS);
  });
  effect(() => {
    const now = draft.value;
    const region = now?.region ?? null;
    const reach = now && region && isPoint(region) ? now.reachM : null;
    map.value?.showDraft(region, reach);
  });
  effect(() => {
    map.value?.showPreview(preview.value?.messages ?? []);
  });
}

function open(next: Draft): void {
  close();
  map.value?.prepareDrawing();
  draft.value = next;
}
