// Regions changed by their corners: of a circle, by a point on its edge.

import type { Position, Region } from "../api/types";
import { boxRing, distanceM, positionAt, wrapLon } from "./regions";

/** Where a region can be grabbed to change its shape; nowhere if it is a point. */
export function handlesOf(region: Region): Position[] {
  if ("areaType" in region) {
    if (region.areaType === "BOX") return boxRing(region).slice(0, -1);
    const { longitude, latitude } = region.center;
    return [positionAt(longitude, latitude, region.radius, Math.PI / 2)];
  }
  const shape = region.type === "Feature" ? region.geometry : region;
  if (shape.type === "Point") return [];
  const polygons = shape.type === "Polygon" ? [shape.coordinates] : shape.coordinates;
  return polygons.flat().flatMap((ring) => ring.slice(0, -1));
}

/** A region of which one handle is moved by degrees. */
export function reshaped(region: Region, handle: number, dLon: number, dLat: number): Region {
  if ("areaType" in region) {
    if (region.areaType === "BOX") return reshapedBox(region, handle, dLon, dLat);
    const [lon, lat] = handlesOf(region)[0]!;
    const center = [region.center.longitude, region.center.latitude];
    const radius = Math.max(1, Math.round(distanceM(center, [lon + dLon, limited(lat + dLat, 90)])));
    return { ...region, radius };
  }
  if (region.type === "Feature") {
    const geometry = reshaped(region.geometry, handle, dLon, dLat) as typeof region.geometry;
    return { ...region, geometry };
  }
  if (region.type === "Point") return region;
  let first = 0;
  const ring = (points: Position[]): Position[] => {
    const corners = points.slice(0, -1);
    const moved = corners.map(([lon, lat], at): Position =>
      first + at === handle ? [limited(lon + dLon, 180), limited(lat + dLat, 90)] : [lon, lat],
    );
    first += corners.length;
    return [...moved, moved[0]!];
  };
  return region.type === "Polygon"
    ? { ...region, coordinates: region.coordinates.map(ring) }
    : { ...region, coordinates: region.coordinates.map((polygon) => polygon.map(ring)) };
}

type Box = Extract<Region, { areaType: "BOX" }>;

/** The sides at a corner move; they stop at the opposite ones. */
function reshapedBox(box: Box, corner: number, dLon: number, dLat: number): Box {
  let [west, east] = [box.west, box.east < box.west ? box.east + 360 : box.east];
  let { south, north } = box;
  if (corner === 0 || corner === 3) west = Math.max(east - 360, Math.min(east, west + dLon));
  else east = Math.min(west + 360, Math.max(west, east + dLon));
  if (corner < 2) south = Math.max(-90, Math.min(north, south + dLat));
  else north = Math.min(90, Math.max(south, north + dLat));
  if (east - west >= 360) return { ...box, west: -180, east: 180, south, north };
  return { ...box, west: wrapLon(west), east: wrapLon(east), south, north };
}

function limited(degrees: number, most: number): number {
  return Math.max(-most, Math.min(most, degrees));
}
