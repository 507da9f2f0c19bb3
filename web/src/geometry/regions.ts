// Regions of subscriptions: as shapes to draw, with bounds, moved by a distance.

import type { Bounds } from "../api/client";
import type { Position, Region, SubscriptionDetail } from "../api/types";

const EARTH_RADIUS_M = 6_371_008.8;
const RADIANS = Math.PI / 180;

/** Distance between two points on the sphere. */
export function distanceM(a: readonly number[], b: readonly number[]): number {
  const [lon1, lat1, lon2, lat2] = [a[0]!, a[1]!, b[0]!, b[1]!].map((d) => d * RADIANS) as [
    number,
    number,
    number,
    number,
  ];
  const h =
    Math.sin((lat2 - lat1) / 2) ** 2 +
    Math.cos(lat1) * Math.cos(lat2) * Math.sin((lon2 - lon1) / 2) ** 2;
  return 2 * EARTH_RADIUS_M * Math.asin(Math.min(1, Math.sqrt(h)));
}

/** Where one comes to from a place, by a distance in a direction (0 is north, in radians). */
export function positionAt(lon: number, lat: number, distance: number, bearing: number): Position {
  const angle = Math.min(distance / EARTH_RADIUS_M, Math.PI - 1e-6);
  const [sinLat, cosLat] = [Math.sin(lat * RADIANS), Math.cos(lat * RADIANS)];
  const sin = sinLat * Math.cos(angle) + cosLat * Math.sin(angle) * Math.cos(bearing);
  const across = Math.atan2(
    Math.sin(bearing) * Math.sin(angle) * cosLat,
    Math.cos(angle) - sinLat * sin,
  );
  const latitude = Math.asin(Math.max(-1, Math.min(1, sin)));
  return [lon + across / RADIANS, latitude / RADIANS];
}

/** The outline of a circle on the sphere; longitudes go on beyond 180 rather than jump. */
export function circleRing(lon: number, lat: number, radiusM: number, steps = 72): Position[] {
  const ring: Position[] = [];
  let before = lon;
  for (let step = 0; step < steps; step++) {
    const [longitude, latitude] = positionAt(lon, lat, radiusM, (step / steps) * 2 * Math.PI);
    before = unwrap(longitude, before);
    ring.push([before, clampLat(latitude)]);
  }
  const [firstLon, firstLat] = ring[0]!;
  const lastLon = unwrap(firstLon, before);
  if (lastLon !== firstLon) {
    // It went around a pole, which is inside: the map is filled up to its edge.
    const edge = lat > 0 ? 89.9 : -89.9;
    ring.push([lastLon, firstLat], [lastLon, edge], [firstLon, edge]);
  }
  ring.push(ring[0]!);
  return ring;
}

/** A box as a ring; one that crosses 180 degrees goes on beyond it. */
export function boxRing(box: Bounds): Position[] {
  const east = box.east < box.west ? box.east + 360 : box.east;
  const [south, north] = [clampLat(box.south), clampLat(box.north)];
  return [
    [box.west, south],
    [east, south],
    [east, north],
    [box.west, north],
    [box.west, south],
  ];
}

export type Shape =
  | { type: "Point"; coordinates: Position }
  | { type: "Polygon"; coordinates: Position[][] }
  | { type: "MultiPolygon"; coordinates: Position[][][] };

/** What to draw of a region. */
export function shapeOf(region: Region): Shape {
  if ("areaType" in region) {
    if (region.areaType === "BOX") return { type: "Polygon", coordinates: [boxRing(region)] };
    const { longitude, latitude } = region.center;
    return { type: "Polygon", coordinates: [circleRing(longitude, latitude, region.radius)] };
  }
  return region.type === "Feature" ? region.geometry : region;
}

/** How far a ranked subscription reaches; null if only its shape counts. */
export function reachOf(detail: SubscriptionDetail): number | null {
  const { ranking } = detail;
  return ranking && "maxDistanceM" in ranking ? ranking.maxDistanceM : null;
}

/** The place of a region, for labels and for flying there. */
export function centerOf(region: Region): Position {
  if ("areaType" in region && region.areaType === "CIRCLE") {
    return [region.center.longitude, region.center.latitude];
  }
  const bounds = boundsOf(shapeOf(region));
  return [(bounds.west + bounds.east) / 2, (bounds.south + bounds.north) / 2];
}

export function boundsOf(shape: Shape): Bounds {
  const bounds = { west: Infinity, south: Infinity, east: -Infinity, north: -Infinity };
  for (const [lon, lat] of positions(shape)) {
    bounds.west = Math.min(bounds.west, lon);
    bounds.east = Math.max(bounds.east, lon);
    bounds.south = Math.min(bounds.south, lat);
    bounds.north = Math.max(bounds.north, lat);
  }
  return bounds;
}

/** A region moved by degrees, kept on the earth. */
export function translated(region: Region, dLon: number, dLat: number): Region {
  if ("areaType" in region) {
    if (region.areaType === "CIRCLE") {
      const center = {
        longitude: wrapLon(region.center.longitude + dLon),
        latitude: clamp(region.center.latitude + dLat),
      };
      return { ...region, center };
    }
    const lat = fitting(region.south, region.north, dLat);
    return {
      ...region,
      west: wrapLon(region.west + dLon),
      east: wrapLon(region.east + dLon),
      south: region.south + lat,
      north: region.north + lat,
    };
  }
  if (region.type === "Feature") {
    return { ...region, geometry: translated(region.geometry, dLon, dLat) as typeof region.geometry };
  }
  if (region.type === "Point") {
    const [lon, lat] = region.coordinates;
    return { ...region, coordinates: [wrapLon(lon + dLon), clamp(lat + dLat)] };
  }
  const { south, north, west, east } = boundsOf(region);
  const [lon, lat] = [within(west, east, dLon), fitting(south, north, dLat)];
  const ring = (points: Position[]) => points.map(([x, y]): Position => [x + lon, y + lat]);
  return region.type === "Polygon"
    ? { ...region, coordinates: region.coordinates.map(ring) }
    : { ...region, coordinates: region.coordinates.map((polygon) => polygon.map(ring)) };
}

export function wrapLon(lon: number): number {
  if (lon >= -180 && lon <= 180) return lon;
  return ((((lon + 180) % 360) + 360) % 360) - 180;
}

function* positions(shape: Shape): Generator<Position> {
  if (shape.type === "Point") yield shape.coordinates;
  else if (shape.type === "Polygon") yield* shape.coordinates.flat();
  else yield* shape.coordinates.flat(2);
}

function unwrap(lon: number, near: number): number {
  return lon - 360 * Math.round((lon - near) / 360);
}

function clamp(lat: number): number {
  return Math.max(-90, Math.min(90, lat));
}

function clampLat(lat: number): number {
  return Math.max(-89.9, Math.min(89.9, lat)); // Web Mercator has no poles
}

function fitting(south: number, north: number, dLat: number): number {
  return Math.max(-90 - south, Math.min(90 - north, dLat));
}

/** GeoJSON polygons may not leave -180 to 180: they stop at the edge. */
function within(west: number, east: number, dLon: number): number {
  return Math.max(-180 - west, Math.min(180 - east, dLon));
}
