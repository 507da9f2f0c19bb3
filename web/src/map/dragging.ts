// Dragging a shape on the map by mouse or finger.

import type { Map as MapLibre, MapMouseEvent, MapTouchEvent } from "maplibre-gl";

type PointerEvent = MapMouseEvent | MapTouchEvent;

export interface DragHandlers {
  /** Whether what is here may be dragged now. */
  grabs(event: PointerEvent): boolean;
  dragged(dLon: number, dLat: number): void;
  dropped(dLon: number, dLat: number): void;
}

/** Lets people drag what `grabs` allows; everything else moves the map as before. */
export function enableDragging(map: MapLibre, handlers: DragHandlers): void {
  let from: { lng: number; lat: number } | null = null;
  let last: [number, number] = [0, 0];

  const start = (event: PointerEvent) => {
    const touches = "points" in event ? event.points.length : 1;
    if (touches !== 1 || !handlers.grabs(event)) return;
    event.preventDefault(); // the map stays where it is
    from = event.lngLat;
    last = [0, 0];
    map.getCanvas().style.cursor = "grabbing";
  };
  const move = (event: PointerEvent) => {
    if (!from) return;
    last = [event.lngLat.lng - from.lng, event.lngLat.lat - from.lat];
    handlers.dragged(...last);
  };
  const end = () => {
    if (!from) return;
    from = null;
    map.getCanvas().style.cursor = "";
    if (last[0] !== 0 || last[1] !== 0) handlers.dropped(...last);
  };
  map.on("mousedown", start);
  map.on("touchstart", start);
  map.on("mousemove", move);
  map.on("touchmove", move);
  map.on("mouseup", end);
  map.on("touchend", end);
  window.addEventListener("mouseup", end); // outside the map
}
