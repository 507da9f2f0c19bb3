// The map in the page. Its code is large, and is loaded after the rest is painted.

import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import * as editor from "../store/editor";
import * as feed from "../store/feed";
import { fail } from "../store/notices";
import * as publishing from "../store/publishing";
import { about } from "../store/session";
import * as subscriptions from "../store/subscriptions";
import { map, panel, selectEntry } from "../store/view";
import type { MapView } from "./map_view";
import { dark } from "../ui/theme";

export function MapPane() {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let gone = false;
    void import("./map_view")
      .then(({ MapView }) => {
        if (!gone && box.current) open(new MapView(box.current, options(), handlers));
      })
      .catch(fail);
    return () => {
      gone = true;
    };
  }, []);
  return (
    <section class="map-pane" aria-label="Map">
      <div class="map" ref={box} />
    </section>
  );
}

function options() {
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
  return { dark: dark.peek(), tiles: about.peek()?.tiles ?? null, reducedMotion };
}

const handlers = {
  moved: subscriptions.viewChanged,
  picked: (lon: number, lat: number) => {
    publishing.place.value = [lon, lat];
  },
  choseSubscription: (id: string | null) => {
    if (editor.draft.value) return;
    subscriptions.select(id);
    if (id !== null) panel.value = "subscriptions";
    selectEntry(null);
  },
  choseEntry: (entry: Parameters<typeof selectEntry>[0]) => selectEntry(entry, false),
  draggedDraft: editor.dragDraft,
  draggedHandle: editor.dragHandle,
  draggedSelected: subscriptions.dragSelected,
};

function open(view: MapView): void {
  map.value = view;
  effect(() => view.setTheme(dark.value));
  feed.onShown((entries, stored) => {
    const now = Date.now();
    for (const entry of feed.matchEntries(entries)) {
      if (!feed.isAudible(entry, feed.muted.peek())) continue;
      view.showEntry(entry, stored ? Math.max(5, (now - entry.time) / 1000) : 0);
    }
    view.repaintPoints();
    if (entries.some((entry) => entry.kind === "lifecycle")) subscriptions.refreshSoon();
  });
  // What came before the map was there.
  const before = feed.matchEntries(feed.entries.peek()).toReversed();
  for (const entry of before) view.showEntry(entry, Math.max(5, (Date.now() - entry.time) / 1000));
  view.repaintPoints();
}
