// The map as the rest of the page sees it: places in, clicks and drags out.

import * as maplibre from "maplibre-gl";
import "maplibre-gl/dist/maplibre-gl.css";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url";
import type { Bounds } from "../api/client";
import type { Cell, PreviewedMessage, Region, Subscription, Trace } from "../api/types";
import type { Shape } from "../geometry/regions";
import { boundsOf, wrapLon } from "../geometry/regions";
import type { MatchEntry } from "../stream/entries";
import { placeOf } from "../stream/entries";
import { colorIndex, paletteOf } from "../ui/colors";
import type { DrawKind, Drawing } from "./drawing";
import { draw, loadDrawing } from "./drawing";
import { enableDragging } from "./dragging";
import type { Pixel } from "./hits";
import { featuresAt } from "./hits";
import * as overlays from "./overlays";
import { PointsLayer } from "./points_layer";
import { mercator } from "./ring_buffer";
import { ATTRIBUTION, FINE, baseStyle, mapColors } from "./style";

export const MAX_POINTS = 10_000;
const RETRY_MS = 5_000;
const NEAR_PIXELS = 6; // of a handle, for fingers

export interface MapHandlers {
  moved(bounds: Bounds): void;
  picked(lon: number, lat: number): void;
  choseSubscription(id: string | null): void;
  choseEntry(entry: MatchEntry): void;
  draggedDraft: Dragged;
  draggedHandle(handle: number, ...by: Parameters<Dragged>): void;
  draggedSelected: Dragged;
}

type Dragged = (dLon: number, dLat: number, dropped: boolean) => void;

export class MapView {
  readonly map: maplibre.Map;
  readonly ready: Promise<void>;
  readonly #points: PointsLayer;
  readonly #entries: (MatchEntry | undefined)[] = [];
  readonly #handlers: MapHandlers;
  #dark: boolean;
  #drawing: Drawing | null = null;
  #drawings = 0;
  #retry = 0;
  #picking = false;
  #draft: GeoJSON.Feature[] = [];
  #selected: GeoJSON.Feature[] = [];

  constructor(
    container: HTMLElement,
    options: { dark: boolean; tiles: string | null; reducedMotion: boolean },
    handlers: MapHandlers,
  ) {
    maplibre.setWorkerUrl(workerUrl);
    this.#dark = options.dark;
    this.#handlers = handlers;
    this.map = new maplibre.Map({
      container,
      style: baseStyle(options.dark, options.tiles),
      bounds: [-130, -56, 158, 72],
      minZoom: 0.6,
      maxZoom: 17,
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
      fadeDuration: options.reducedMotion ? 0 : 150,
      locale: { "Map.Title": "Map of subscriptions and messages" },
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.keyboard.disableRotation();
    this.map.addControl(
      new maplibre.AttributionControl({ compact: true, customAttribution: ATTRIBUTION }),
      "bottom-right",
    );
    if (container.clientWidth < 600) foldAttribution(container);
    this.map.addControl(new maplibre.NavigationControl({ showCompass: false }), "top-right");
    this.map.addControl(new maplibre.ScaleControl({}), "bottom-left");
    this.#points = new PointsLayer(MAX_POINTS, paletteOf(options.dark));
    this.ready = new Promise((resolve) => {
      this.map.once("style.load", () => {
        overlays.addOverlays(this.map, this.#overlayColors());
        this.map.addLayer(this.#points);
        this.#listen();
        resolve();
        this.#handlers.moved(this.bounds());
      });
    });
    this.map.once("idle", () => this.#loadFineMap());
    this.map.on("error", ({ error }) => this.#failed(error));
  }

  /** What is in view, within -180 to 180; west is greater than east across the antimeridian. */
  bounds(): Bounds {
    const box = this.map.getBounds();
    const [south, north] = [Math.max(-90, box.getSouth()), Math.min(90, box.getNorth())];
    if (box.getEast() - box.getWest() >= 360) return { west: -180, south, east: 180, north };
    return { west: wrapLon(box.getWest()), south, east: wrapLon(box.getEast()), north };
  }

  setTheme(dark: boolean): void {
    this.#dark = dark;
    const colors = mapColors(dark);
    void this.ready.then(() => {
      const paint = (layer: string, name: string, color: string) => {
        this.map.setPaintProperty(layer, name as never, color as never);
      };
      paint("water", "background-color", colors.water);
      paint("land", "fill-color", colors.land);
      paint("coast", "line-color", colors.coast);
      paint("borders", "line-color", colors.border);
      paint("cities", "text-color", colors.label);
      paint("cities", "text-halo-color", colors.halo);
      overlays.paintOverlays(this.map, this.#overlayColors());
      this.#points.palette = paletteOf(dark);
      this.map.triggerRepaint();
    });
  }

  // --- what is shown ---------------------------------------------------------------------------

  showEntry(entry: MatchEntry, ageS = 0): void {
    const place = placeOf(entry.message);
    const first = entry.matches[0];
    if (!place || !first) return;
    const [x, y] = mercator(wrapLon(place[0]), place[1]);
    const slot = this.#points.push(x, y, colorIndex(first.subscriptionId), first.sign, ageS);
    this.#entries[slot] = entry;
  }

  repaintPoints(): void {
    this.#points.repaint();
  }

  clearPoints(): void {
    this.#points.clear();
    this.#entries.length = 0;
  }

  showSubscriptions(subscriptions: readonly Subscription[], selected: string | null): void {
    const features = overlays.subscriptionFeatures(subscriptions, selected);
    this.#selected = features.filter((one) => one.properties?.selected);
    this.#overlay("subscriptions", features);
  }

  showCells(cells: readonly Cell[]): void {
    this.#overlay("cells", overlays.cellFeatures(cells));
  }

  showDraft(region: Region | null, reachM: number | null): void {
    this.#draft = region ? overlays.draftFeatures(region, reachM) : [];
    this.#overlay("draft", this.#draft);
  }

  showPreview(messages: readonly PreviewedMessage[]): void {
    this.#overlay("preview", overlays.previewFeatures(messages));
  }

  /** Shows the boxes of a trace and the place of its message, without counts per cell below. */
  showTrace(trace: Trace | null): void {
    this.#overlay("trace", trace ? overlays.traceFeatures(trace) : []);
    this.highlight(trace ? placeOf(trace.message) : null);
    void this.ready.then(() => overlays.showCellLayers(this.map, trace === null));
  }

  highlight(place: [number, number] | null): void {
    this.#overlay("highlight", place ? [overlays.pointFeature(place)] : []);
  }

  showPick(place: [number, number] | null): void {
    this.#overlay("pick", place ? [overlays.pointFeature(place)] : []);
  }

  // --- where one looks -------------------------------------------------------------------------

  flyTo(place: [number, number]): void {
    const zoom = Math.max(this.map.getZoom(), 4);
    this.map.easeTo({ center: place, zoom, duration: 600 });
  }

  fit(shape: Shape): void {
    const { west, south, east, north } = boundsOf(shape);
    const box: [number, number, number, number] = [west, Math.max(-85, south), east, Math.min(85, north)];
    this.map.fitBounds(box, { padding: 60, maxZoom: 12, duration: 600 });
  }

  // --- drawing and picking ---------------------------------------------------------------------

  /** Loads what drawing needs, so that the first drag finds it. */
  prepareDrawing(): void {
    void loadDrawing().catch(() => {}); // it is tried again when someone draws
  }

  /** Lets the person draw; null if that was cancelled, also before the code for it was loaded. */
  async draw(kind: DrawKind): Promise<Region | null> {
    this.cancelDrawing();
    const own = ++this.#drawings;
    await this.ready;
    this.map.getCanvas().style.cursor = "crosshair";
    const region = await new Promise<Region | null>((resolve, reject) => {
      draw(this.map, kind, resolve).then((drawing) => {
        if (own !== this.#drawings) return drawing.cancel();
        this.#drawing = drawing;
        this.map.getContainer().dataset.drawing = kind; // from now on a drag draws
      }, reject);
    });
    if (own !== this.#drawings) return null;
    this.#stopDrawing("");
    return region;
  }

  cancelDrawing(): void {
    this.#drawings += 1;
    this.#drawing?.cancel();
    this.#stopDrawing(this.#picking ? "crosshair" : "");
  }

  #stopDrawing(cursor: string): void {
    this.#drawing = null;
    delete this.map.getContainer().dataset.drawing;
    this.map.getCanvas().style.cursor = cursor;
  }

  /** While picking, a click says where something is. */
  setPicking(picking: boolean): void {
    this.#picking = picking;
    this.map.getCanvas().style.cursor = picking ? "crosshair" : "";
  }

  // --- inside ----------------------------------------------------------------------------------

  #overlay(id: overlays.OverlaySource, features: GeoJSON.Feature[]): void {
    void this.ready.then(() => overlays.setOverlay(this.map, id, features));
  }

  #overlayColors(): overlays.OverlayColors {
    const palette = paletteOf(this.#dark);
    return this.#dark
      ? { palette, ink: "#dbe4e8", accent: "#2dd4bf", warm: "#fbbf24", halo: "#10181c" }
      : { palette, ink: "#27333a", accent: "#0f766e", warm: "#c2410c", halo: "#ffffff" };
  }

  #listen(): void {
    const { map } = this;
    map.on("moveend", () => this.#handlers.moved(this.bounds()));
    map.on("click", (event) => this.#click(event));
    let grabbed: Dragged | null = null;
    enableDragging(map, {
      grabs: (event) => {
        grabbed = this.#drawing || this.#picking ? null : this.#grabbed(event.point);
        return grabbed !== null;
      },
      dragged: (dLon, dLat) => grabbed?.(dLon, dLat, false),
      dropped: (dLon, dLat) => grabbed?.(dLon, dLat, true),
    });
  }

  /** What to do with what is dragged from here; null if that is the map itself. */
  #grabbed(pixel: Pixel): Dragged | null {
    const [draggable, dragged] =
      this.#draft.length > 0
        ? [this.#draft, this.#handlers.draggedDraft]
        : [this.#selected, this.#handlers.draggedSelected];
    const project = ([lon, lat]: GeoJSON.Position) => this.map.project([lon!, lat!]);
    const worldSize = 512 * 2 ** this.map.getZoom();
    const here = featuresAt(draggable, pixel, NEAR_PIXELS, project, worldSize);
    const handle = here.find((one) => one.properties?.handle !== undefined)?.properties?.handle as number | undefined;
    if (handle !== undefined) return (...by) => this.#handlers.draggedHandle(handle, ...by);
    return here.length > 0 ? dragged : null;
  }

  #click(event: maplibre.MapMouseEvent): void {
    if (this.#drawing) return;
    if (this.#picking) {
      this.#handlers.picked(wrapLon(event.lngLat.lng), event.lngLat.lat);
      return;
    }
    const entry = this.#nearestEntry(event);
    if (entry) return this.#handlers.choseEntry(entry);
    const here = this.map.queryRenderedFeatures(event.point, {
      layers: ["subscriptions-point", "subscriptions-fill"],
    });
    // The smallest shape: a large one would hide all within it.
    const smallest = here.sort((a, b) => extent(a) - extent(b))[0];
    this.#handlers.choseSubscription((smallest?.properties.id as string | undefined) ?? null);
  }

  #nearestEntry(event: maplibre.MapMouseEvent): MatchEntry | null {
    const [x, y] = mercator(wrapLon(event.lngLat.lng), event.lngLat.lat);
    const pixel = 1 / (512 * 2 ** this.map.getZoom());
    const { data, size } = this.#points.ring;
    let [best, nearest] = [-1, 8 * pixel];
    for (let slot = 0; slot < size; slot++) {
      const far = Math.hypot(data[slot * 5]! - x, data[slot * 5 + 1]! - y);
      if (far < nearest) [best, nearest] = [slot, far];
    }
    return this.#entries[best] ?? null;
  }

  /** What could not be loaded is loaded later: the connection may be broken for a while. */
  #failed(error: { message: string }): void {
    console.warn(`The map: ${error.message}`);
    clearTimeout(this.#retry);
    if (this.map.getContainer().dataset.coasts !== "fine") {
      this.#retry = window.setTimeout(() => this.#loadFineMap(), RETRY_MS);
    }
  }

  /** The fine coasts, when there is nothing else to do. */
  #loadFineMap(): void {
    const idle = window.requestIdleCallback ?? ((task: () => void) => setTimeout(task, 200));
    idle(() => {
      (this.map.getSource("land") as maplibre.GeoJSONSource | undefined)?.setData(FINE.land);
      (this.map.getSource("borders") as maplibre.GeoJSONSource | undefined)?.setData(FINE.borders);
      this.map.once("idle", () => {
        this.map.getContainer().dataset.coasts = "fine";
      });
    });
  }
}

/** On a narrow map, its button shows whose data it is. */
function foldAttribution(container: HTMLElement): void {
  const attribution = container.querySelector(".maplibregl-ctrl-attrib");
  attribution?.classList.remove("maplibregl-compact-show");
  attribution?.removeAttribute("open");
}

function extent(feature: maplibre.MapGeoJSONFeature): number {
  if (feature.geometry.type === "Point") return 0;
  const { west, south, east, north } = boundsOf(feature.geometry as Shape);
  return (east - west) * (north - south);
}
