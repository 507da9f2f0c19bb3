// What is open and selected, and the map, which is loaded after the first paint.

import { signal } from "@preact/signals";
import type { MapView } from "../map/map_view";
import type { MatchEntry } from "../stream/entries";
import { placeOf } from "../stream/entries";

export type Panel = "subscriptions" | "feed" | "publish" | "operations";

export const panel = signal<Panel>("subscriptions");
export const map = signal<MapView | null>(null);
export const selectedEntry = signal<MatchEntry | null>(null);
export const introOpen = signal(localStorage.getItem("nearcast.introduced") === null);

export function closeIntro(): void {
  introOpen.value = false;
  localStorage.setItem("nearcast.introduced", "yes");
}

/** Shows an entry on the map and in the feed; null shows none. */
export function selectEntry(entry: MatchEntry | null, fly = true): void {
  selectedEntry.value = entry;
  const place = entry && placeOf(entry.message);
  map.value?.highlight(place);
  if (place && fly) map.value?.flyTo(place);
}
