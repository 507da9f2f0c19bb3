import { describe, expect, it } from "vitest";
import { featuresAt } from "../src/map/hits";

const WORLD = 360;
const project = ([lon, lat]: number[]) => ({ x: lon!, y: -lat! });
const feature = (geometry: GeoJSON.Geometry): GeoJSON.Feature => ({ type: "Feature", properties: {}, geometry });
const square = (west: number, south: number, size: number): number[][] => [
  [west, south],
  [west + size, south],
  [west + size, south + size],
  [west, south + size],
  [west, south],
];
const isAt = (geometry: GeoJSON.Geometry, lon: number, lat: number) =>
  featuresAt([feature(geometry)], project([lon, lat]), 2, project, WORLD).length > 0;

describe("what is under the pointer", () => {
  it("is a point some pixels away", () => {
    const point: GeoJSON.Geometry = { type: "Point", coordinates: [10, 20] };
    expect(isAt(point, 11, 19)).toBe(true);
    expect(isAt(point, 13, 20)).toBe(false);
    expect(isAt(point, 10, 23)).toBe(false);
  });

  it("is a polygon around it, without its holes", () => {
    const ring: GeoJSON.Geometry = { type: "Polygon", coordinates: [square(0, 0, 10), square(4, 4, 2)] };
    expect(isAt(ring, 1, 9)).toBe(true);
    expect(isAt(ring, 5, 5)).toBe(false);
    expect(isAt(ring, 11, 5)).toBe(false);
    expect(isAt(ring, -1, 5)).toBe(false);
  });

  it("is any polygon of several", () => {
    const two: GeoJSON.Geometry = { type: "MultiPolygon", coordinates: [[square(0, 0, 2)], [square(8, 8, 2)]] };
    expect(isAt(two, 9, 9)).toBe(true);
    expect(isAt(two, 5, 5)).toBe(false);
  });

  it("can lie on another copy of the world", () => {
    const across: GeoJSON.Geometry = { type: "Polygon", coordinates: [square(175, 0, 10)] };
    expect(isAt(across, -177, 5)).toBe(true);
    expect(isAt(across, -170, 5)).toBe(false);
    expect(isAt({ type: "Point", coordinates: [-180, 0] }, 180, 0)).toBe(true);
  });
});
