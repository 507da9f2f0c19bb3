// Coordinates to type instead of drawing: the way of the keyboard, and across 180 degrees.

import { useLayoutEffect, useState } from "preact/hooks";
import type { Position, Region } from "../api/types";
import { parsePlace, placeText } from "../geometry/coordinates";
import { centerOf } from "../geometry/regions";
import * as editor from "../store/editor";
import type { Draft } from "../subscriptions/draft";
import { kindOf } from "../subscriptions/draft";
import { Field } from "../ui/controls";

export function CoordinateFields({ draft }: { draft: Draft }) {
  const { kind } = draft;
  return (
    <details class="coordinates" open={draft.region !== null || undefined}>
      <summary>Coordinates</summary>
      {kind === "rectangle" && <BoxFields draft={draft} />}
      {kind === "circle" && <CircleFields draft={draft} />}
      {kind === "point" && <PointFields draft={draft} />}
      {kind === "polygon" && <PolygonField draft={draft} />}
    </details>
  );
}

const SIDES = ["west", "south", "east", "north"] as const;

function BoxFields({ draft }: { draft: Draft }) {
  const { region } = draft;
  const box = region && "areaType" in region && region.areaType === "BOX" ? region : null;
  const [typed, setTyped] = useTyped(
    Object.fromEntries(SIDES.map((side) => [side, text(box?.[side])])),
    draft.region,
  );
  const type = (side: string, value: string) => {
    const next = { ...typed, [side]: value };
    setTyped(next);
    const [west, south, east, north] = SIDES.map((one) => number(next[one] ?? "")) as [
      number,
      number,
      number,
      number,
    ];
    if ([west, south, east, north].some(Number.isNaN) || south > north) return;
    if (Math.abs(west) > 180 || Math.abs(east) > 180 || south < -90 || north > 90) return;
    editor.setRegion({ areaType: "BOX", west, south, east, north });
  };
  return (
    <div class="grid-4">
      {SIDES.map((side) => (
        <Field key={side} label={side[0]!.toUpperCase() + side.slice(1)}>
          <input
            type="text"
            inputMode="decimal"
            value={typed[side] ?? ""}
            onInput={(event) => type(side, event.currentTarget.value)}
          />
        </Field>
      ))}
    </div>
  );
}

function CircleFields({ draft }: { draft: Draft }) {
  const circle =
    draft.region && "areaType" in draft.region && draft.region.areaType === "CIRCLE"
      ? draft.region
      : null;
  const [typed, setTyped] = useTyped(
    {
      center: circle ? placeText(circle.center.longitude, circle.center.latitude) : "",
      radius: circle ? text(circle.radius / 1000) : "",
    },
    draft.region,
  );
  const type = (part: Record<string, string>) => {
    const next = { ...typed, ...part };
    setTyped(next);
    const [place, km] = [parsePlace(next.center ?? ""), number(next.radius ?? "")];
    if (!place || !(km > 0)) return;
    const center = { longitude: place.lon, latitude: place.lat };
    editor.setRegion({ areaType: "CIRCLE", center, radius: Math.round(km * 1000) });
  };
  return (
    <div class="grid-2">
      <Field label="Center (lat, lon)">
        <input
          type="text"
          placeholder="52.52, 13.40"
          value={typed.center ?? ""}
          onInput={(event) => type({ center: event.currentTarget.value })}
        />
      </Field>
      <Field label="Radius, km">
        <input
          type="text"
          inputMode="decimal"
          value={typed.radius ?? ""}
          onInput={(event) => type({ radius: event.currentTarget.value })}
        />
      </Field>
    </div>
  );
}

function PointFields({ draft }: { draft: Draft }) {
  const isPoint = draft.region !== null && kindOf(draft.region) === "point";
  const shown = isPoint ? placeText(...(centerOf(draft.region!) as [number, number])) : "";
  const [typed, setTyped] = useTyped(
    { place: shown, reach: text(draft.reachM / 1000) },
    draft.region,
  );
  const type = (part: Record<string, string>) => {
    const next = { ...typed, ...part };
    setTyped(next);
    const [place, km] = [parsePlace(next.place ?? ""), number(next.reach ?? "")];
    if (km >= 0.001) editor.change({ reachM: km * 1000 });
    if (place && part.place !== undefined) {
      editor.setRegion({ type: "Point", coordinates: [place.lon, place.lat] });
    }
  };
  return (
    <div class="grid-2">
      <Field label="Place (lat, lon)">
        <input
          type="text"
          placeholder="52.52, 13.40"
          value={typed.place ?? ""}
          onInput={(event) => type({ place: event.currentTarget.value })}
        />
      </Field>
      <Field label="Reach, km">
        <input
          type="text"
          inputMode="decimal"
          value={typed.reach ?? ""}
          onInput={(event) => type({ reach: event.currentTarget.value })}
        />
      </Field>
    </div>
  );
}

function PolygonField({ draft }: { draft: Draft }) {
  const ring = ringOf(draft.region);
  const [typed, setTyped] = useTyped(
    { corners: ring.map(([lon, lat]) => placeText(lon, lat)).join("\n") },
    draft.region,
  );
  const type = (corners: string) => {
    setTyped({ corners });
    const places = corners.split("\n").filter((line) => line.trim()).map(parsePlace);
    if (places.length < 3 || places.some((place) => place === null)) return;
    const points = places.map((place): Position => [place!.lon, place!.lat]);
    editor.setRegion({ type: "Polygon", coordinates: [[...points, points[0]!]] });
  };
  return (
    <Field label="Corners, one a line (lat, lon)">
      <textarea
        rows={4}
        value={typed.corners ?? ""}
        onInput={(event) => type(event.currentTarget.value)}
      />
    </Field>
  );
}

/** What is typed, until the region changes in another way: by drawing or dragging. */
function useTyped(
  shown: Record<string, string>,
  region: Region | null,
): [Record<string, string>, (typed: Record<string, string>) => void] {
  const [typed, setTyped] = useState(shown);
  useLayoutEffect(() => {
    const inside = document.activeElement?.closest(".coordinates");
    if (!inside) setTyped(shown);
  }, [region]);
  return [typed, setTyped];
}

function ringOf(region: Region | null): Position[] {
  if (!region || "areaType" in region) return [];
  const shape = region.type === "Feature" ? region.geometry : region;
  return shape.type === "Polygon" ? (shape.coordinates[0] ?? []).slice(0, -1) : [];
}

function number(typed: string): number {
  return typed.trim() === "" ? NaN : Number(typed.replace(",", "."));
}

function text(value: unknown): string {
  return typeof value === "number" ? String(Math.round(value * 1e6) / 1e6) : "";
}
