// Layers above the base map: subscriptions, counts per cell, the draft, a preview, a trace, and
// what is highlighted. Each is a GeoJSON source that changes rarely.

import type { GeoJSONSource, LayerSpecification, Map as MapLibre } from "maplibre-gl";
import type { Cell, PreviewedMessage, Region, Subscription, Trace } from "../api/types";
import { boxRing, centerOf, circleRing, reachOf, shapeOf } from "../geometry/regions";
import { handlesOf } from "../geometry/reshaping";
import { placeOf } from "../stream/entries";
import { colorIndex } from "../ui/colors";
import { short } from "../ui/formats";

type Feature = GeoJSON.Feature;

const SOURCES = ["cells", "subscriptions", "trace", "preview", "draft", "highlight", "pick"] as const;
export type OverlaySource = (typeof SOURCES)[number];

const EMPTY: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };

export interface OverlayColors {
  palette: readonly string[];
  ink: string;
  accent: string;
  warm: string;
  halo: string;
}

/** Adds all sources and layers below the labels of cities, points between them. */
export function addOverlays(map: MapLibre, colors: OverlayColors): void {
  for (const id of SOURCES) map.addSource(id, { type: "geojson", data: EMPTY, tolerance: 0.1 });
  for (const layer of layers(colors)) map.addLayer(layer);
}

export function paintOverlays(map: MapLibre, colors: OverlayColors): void {
  for (const layer of layers(colors)) {
    if (!("paint" in layer) || !layer.paint) continue;
    for (const [name, value] of Object.entries(layer.paint)) {
      map.setPaintProperty(layer.id, name as never, value as never);
    }
  }
}

export function showCellLayers(map: MapLibre, shown: boolean): void {
  for (const layer of ["cells-fill", "cells-count"]) {
    map.setLayoutProperty(layer, "visibility", shown ? "visible" : "none");
  }
}

export function setOverlay(map: MapLibre, id: OverlaySource, features: Feature[]): void {
  const source = map.getSource(id) as GeoJSONSource | undefined;
  source?.setData({ type: "FeatureCollection", features });
}

function byColor(palette: readonly string[]): unknown {
  const cases = palette.flatMap((color, at) => [at, color]);
  return ["match", ["get", "color"], ...cases, palette[0]];
}

function layers({ palette, ink, accent, warm, halo }: OverlayColors): LayerSpecification[] {
  const color = byColor(palette);
  const selected = ["boolean", ["get", "selected"], false];
  const paused = ["boolean", ["get", "paused"], false];
  const list = [
    {
      id: "cells-fill",
      type: "fill",
      source: "cells",
      paint: { "fill-color": accent, "fill-opacity": ["get", "strength"] },
    },
    {
      id: "cells-count",
      type: "symbol",
      source: "cells",
      layout: {
        "text-field": ["get", "label"],
        "text-font": ["sans-serif"],
        "text-size": 11,
        "text-allow-overlap": false,
      },
      paint: { "text-color": ink, "text-halo-color": halo, "text-halo-width": 1.4 },
    },
    {
      id: "subscriptions-fill",
      type: "fill",
      source: "subscriptions",
      filter: ["==", ["geometry-type"], "Polygon"],
      paint: {
        "fill-color": color,
        "fill-opacity": ["case", selected, 0.22, paused, 0.02, ["get", "reach"], 0.04, 0.06],
      },
    },
    {
      id: "subscriptions-line",
      type: "line",
      source: "subscriptions",
      filter: ["all", ["==", ["geometry-type"], "Polygon"], ["!", ["get", "reach"]]],
      paint: {
        "line-color": color,
        "line-width": ["case", selected, 2.6, 1.3],
        "line-opacity": ["case", paused, 0.35, 0.85],
      },
    },
    {
      id: "subscriptions-reach",
      type: "line",
      source: "subscriptions",
      filter: ["all", ["==", ["geometry-type"], "Polygon"], ["get", "reach"]],
      paint: {
        "line-color": color,
        "line-width": ["case", selected, 2.2, 1.1],
        "line-dasharray": [2, 2],
        "line-opacity": ["case", paused, 0.35, 0.85],
      },
    },
    {
      id: "subscriptions-point",
      type: "circle",
      source: "subscriptions",
      filter: ["==", ["geometry-type"], "Point"],
      paint: {
        "circle-color": color,
        "circle-radius": ["case", selected, 6, 4],
        "circle-stroke-color": halo,
        "circle-stroke-width": 1.5,
        "circle-opacity": ["case", paused, 0.4, 1],
      },
    },
    {
      id: "trace-fill",
      type: "fill",
      source: "trace",
      filter: ["==", ["geometry-type"], "Polygon"],
      paint: { "fill-color": warm, "fill-opacity": ["case", ["get", "opened"], 0.07, 0] },
    },
    {
      id: "trace-line",
      type: "line",
      source: "trace",
      filter: ["==", ["geometry-type"], "Polygon"],
      paint: {
        "line-color": ["case", ["get", "opened"], warm, ink],
        "line-opacity": ["case", ["get", "opened"], 0.9, 0.3],
        "line-width": ["case", ["get", "opened"], 1.4, 0.7],
      },
    },
    {
      id: "preview",
      type: "circle",
      source: "preview",
      paint: {
        "circle-color": accent,
        "circle-opacity": ["case", ["get", "matches"], 0.85, 0.12],
        "circle-radius": ["case", ["get", "matches"], 5, 3],
        "circle-stroke-color": halo,
        "circle-stroke-width": ["case", ["get", "matches"], 1.2, 0],
      },
    },
    {
      id: "draft-fill",
      type: "fill",
      source: "draft",
      filter: ["==", ["geometry-type"], "Polygon"],
      paint: { "fill-color": accent, "fill-opacity": 0.16 },
    },
    {
      id: "draft-line",
      type: "line",
      source: "draft",
      filter: ["==", ["geometry-type"], "Polygon"],
      paint: { "line-color": accent, "line-width": 2.4 },
    },
    {
      id: "draft-point",
      type: "circle",
      source: "draft",
      filter: ["all", ["==", ["geometry-type"], "Point"], ["!", ["has", "handle"]]],
      paint: {
        "circle-color": accent,
        "circle-radius": 6,
        "circle-stroke-color": halo,
        "circle-stroke-width": 2,
      },
    },
    {
      id: "draft-handle",
      type: "circle",
      source: "draft",
      filter: ["has", "handle"],
      paint: {
        "circle-color": halo,
        "circle-radius": 5,
        "circle-stroke-color": accent,
        "circle-stroke-width": 2.4,
      },
    },
    {
      id: "pick",
      type: "circle",
      source: "pick",
      paint: {
        "circle-color": warm,
        "circle-radius": 7,
        "circle-stroke-color": halo,
        "circle-stroke-width": 2.5,
      },
    },
    {
      id: "highlight",
      type: "circle",
      source: "highlight",
      paint: {
        "circle-color": "rgba(0,0,0,0)",
        "circle-radius": 13,
        "circle-stroke-color": warm,
        "circle-stroke-width": 3,
      },
    },
  ];
  return list as LayerSpecification[];
}

export function subscriptionFeatures(
  subscriptions: readonly Subscription[],
  selected: string | null,
): Feature[] {
  return subscriptions.flatMap((subscription) => {
    const detail = subscription.config.subscriptionDetail;
    const properties = {
      id: subscription.id,
      color: colorIndex(subscription.id),
      paused: subscription.status === "INACTIVE",
      selected: subscription.id === selected,
      reach: false,
    };
    return regionFeatures(detail.region, reachOf(detail), properties);
  });
}

/** The shape of a region, and around a ranked point the circle of its reach. */
export function regionFeatures(
  region: Region,
  reachM: number | null,
  properties: Record<string, unknown> = {},
): Feature[] {
  const features: Feature[] = [
    { type: "Feature", properties, geometry: shapeOf(region) as GeoJSON.Geometry },
  ];
  if (reachM !== null) {
    const [lon, lat] = centerOf(region);
    const ring = circleRing(lon, lat, reachM) as GeoJSON.Position[];
    features.push({
      type: "Feature",
      properties: { ...properties, reach: true },
      geometry: { type: "Polygon", coordinates: [ring] },
    });
  }
  return features;
}

/** A region that can be changed: its shape, and points to change it by. */
export function draftFeatures(region: Region, reachM: number | null): Feature[] {
  const handles = handlesOf(region).map(
    (place, handle): Feature => ({
      type: "Feature",
      properties: { handle },
      geometry: pointAt(place as [number, number]),
    }),
  );
  return [...regionFeatures(region, reachM), ...handles];
}

/** Cells, the stronger the more subscriptions they have (by orders of magnitude). */
export function cellFeatures(cells: readonly Cell[]): Feature[] {
  const most = Math.max(1, ...cells.map((cell) => cell.count));
  return cells
    .filter((cell) => cell.count > 0)
    .map((cell) => ({
      type: "Feature",
      properties: {
        label: short(cell.count),
        strength: 0.05 + (0.4 * Math.log1p(cell.count)) / Math.log1p(most),
      },
      geometry: { type: "Polygon", coordinates: [boxRing(cell) as GeoJSON.Position[]] },
    }));
}

export function previewFeatures(messages: readonly PreviewedMessage[]): Feature[] {
  return messages.flatMap((one): Feature[] => {
    const place = placeOf(one.message);
    return place
      ? [{ type: "Feature", properties: { matches: one.matches }, geometry: pointAt(place) }]
      : [];
  });
}

export function traceFeatures(trace: Trace): Feature[] {
  const boxes = trace.segments.flatMap((segment) => segment.nodes.flatMap((node) => node.boxes));
  return boxes.map((box) => ({
    type: "Feature",
    properties: { opened: box.opened, level: box.level },
    geometry: { type: "Polygon", coordinates: [boxRing(box) as GeoJSON.Position[]] },
  }));
}

export function pointFeature(place: [number, number]): Feature {
  return { type: "Feature", properties: {}, geometry: pointAt(place) };
}

function pointAt(place: [number, number]): GeoJSON.Point {
  return { type: "Point", coordinates: place };
}
