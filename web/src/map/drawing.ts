// Drawing a region with terra-draw, loaded when it is first needed.
//
// Its circles are polygons; we keep center and radius and send a circle. It cannot draw across 180
// degrees; coordinates can be typed for that.

import type { Map as MapLibre, MapMouseEvent, MapTouchEvent } from "maplibre-gl";
import type { TerraDrawMouseEvent } from "terra-draw";
import type { Position, Region } from "../api/types";
import { boundsOf, distanceM, wrapLon } from "../geometry/regions";

export type DrawKind = "rectangle" | "circle" | "polygon" | "point";

const DRAG_OR_CLICK = "click-move-or-drag";

export interface Drawing {
  cancel(): void;
}

export function loadDrawing() {
  return Promise.all([import("terra-draw"), import("terra-draw-maplibre-gl-adapter")]);
}

/** Lets the person draw one region. `done` gets it, or null if drawing was given up. */
export async function draw(
  map: MapLibre,
  kind: DrawKind,
  done: (region: Region | null) => void,
): Promise<Drawing> {
  const [terra, { TerraDrawMapLibreGLAdapter }] = await loadDrawing();
  const press = new Press(map);
  const modes = {
    rectangle: () => press.begins(new terra.TerraDrawRectangleMode({ drawInteraction: DRAG_OR_CLICK })),
    circle: () => press.begins(new terra.TerraDrawCircleMode({ drawInteraction: DRAG_OR_CLICK })),
    polygon: () => new terra.TerraDrawPolygonMode(),
    point: () => new terra.TerraDrawPointMode(),
  };
  const terraDraw = new terra.TerraDraw({
    adapter: new TerraDrawMapLibreGLAdapter({ map }),
    modes: [modes[kind]()],
  });
  let center: Position | null = null;
  let ended = false;
  const end = (region: Region | null) => {
    if (ended) return;
    ended = true;
    // terra-draw is still in its own handler here.
    queueMicrotask(() => {
      terraDraw.stop();
      press.stop();
      done(region);
    });
  };
  terraDraw.start();
  terraDraw.setMode(kind);
  terraDraw.on("change", (ids, change) => {
    if (kind !== "circle" || change !== "create" || center) return;
    const geometry = ids.map((id) => terraDraw.getSnapshotFeature(id)?.geometry)[0];
    if (geometry?.type === "Polygon") center = middle(geometry.coordinates[0] as Position[]);
  });
  terraDraw.on("finish", (id) => {
    const geometry = terraDraw.getSnapshotFeature(id)?.geometry;
    if (geometry) end(regionOf(kind, geometry as DrawnGeometry, center));
  });
  return { cancel: () => end(null) };
}

/** Where the button or the finger went down, while a drag draws instead of moving the map. */
class Press {
  readonly #map: MapLibre;
  #at: Partial<TerraDrawMouseEvent> = {};

  constructor(map: MapLibre) {
    this.#map = map;
  }

  /** Lets a drag begin here; terra-draw begins some pixels later, where it notices the drag. */
  begins<Mode extends Draggable>(mode: Mode): Mode {
    this.#map.on("mousedown", this.#note);
    this.#map.on("touchstart", this.#note);
    const begin = mode.onDragStart.bind(mode);
    mode.onDragStart = (event, setMapDraggability) => begin({ ...event, ...this.#at }, setMapDraggability);
    return mode;
  }

  stop(): void {
    this.#map.off("mousedown", this.#note);
    this.#map.off("touchstart", this.#note);
  }

  readonly #note = (event: MapMouseEvent | MapTouchEvent): void => {
    if ("points" in event && event.points.length > 1) return; // two fingers zoom
    event.preventDefault(); // the map stays where it is
    const { lngLat, point } = event;
    this.#at = { lng: lngLat.lng, lat: lngLat.lat, containerX: point.x, containerY: point.y };
  };
}

interface Draggable {
  onDragStart(event: TerraDrawMouseEvent, setMapDraggability: (enabled: boolean) => void): void;
}

export type DrawnGeometry =
  | { type: "Point"; coordinates: Position }
  | { type: "Polygon"; coordinates: Position[][] };

/** The region that a drawing means; null if it has no extent. */
export function regionOf(
  kind: DrawKind,
  geometry: DrawnGeometry,
  center: Position | null,
): Region | null {
  if (geometry.type === "Point") {
    const [lon, lat] = geometry.coordinates;
    return { type: "Point", coordinates: [round(wrapLon(lon)), round(lat)] };
  }
  const ring = geometry.coordinates[0] ?? [];
  const bounds = boundsOf(geometry);
  if (!(bounds.east > bounds.west && bounds.north > bounds.south)) return null;
  if (kind === "rectangle") {
    const { west, south, east, north } = bounds;
    const whole = east - west >= 360;
    return {
      areaType: "BOX",
      west: whole ? -180 : round(wrapLon(west)),
      south: round(south),
      east: whole ? 180 : round(wrapLon(east)),
      north: round(north),
    };
  }
  if (kind === "circle") {
    const [lon, lat] = center ?? middle(ring);
    // East of the center: the projection stretches it least there.
    const eastmost = ring.reduce((best, point) => (point[0] > best[0] ? point : best), ring[0]!);
    const radius = Math.max(1, Math.round(distanceM([lon, lat], eastmost)));
    const place = { longitude: round(wrapLon(lon)), latitude: round(lat) };
    return { areaType: "CIRCLE", center: place, radius };
  }
  const rounded = ring.map(([lon, lat]): Position => [round(lon), round(lat)]);
  return { type: "Polygon", coordinates: [rounded] };
}

function middle(ring: Position[]): Position {
  const points = ring.slice(0, -1);
  const sum = points.reduce<Position>((total, [x, y]) => [total[0] + x, total[1] + y], [0, 0]);
  return [sum[0] / points.length, sum[1] / points.length];
}

function round(degrees: number): number {
  return Math.round(degrees * 1e6) / 1e6;
}
