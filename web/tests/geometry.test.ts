import { describe, expect, test } from "vitest";
import { parsePlace, placeText } from "../src/geometry/coordinates";
import { boundsOf, circleRing, distanceM, shapeOf, translated } from "../src/geometry/regions";
import { handlesOf, reshaped } from "../src/geometry/reshaping";
import { regionOf } from "../src/map/drawing";

describe("places as people type them", () => {
  test.each([
    ["52.52, 13.4", 13.4, 52.52],
    ["52.52 13.4", 13.4, 52.52],
    ["-33.9; 151.2", 151.2, -33.9],
    ["33.9S 151.2E", 151.2, -33.9],
    ["151.2 E, 33.9 S", 151.2, -33.9],
    ["52° 30′ N 13° 15′ 36″ E", 13.26, 52.5],
  ])("%s", (text, lon, lat) => {
    expect(parsePlace(text)!.lon).toBeCloseTo(lon, 9);
    expect(parsePlace(text)!.lat).toBeCloseTo(lat, 9);
  });

  test.each(["", "52.52", "91, 0", "0, 181", "Berlin", "1, 2, 3", "10N 20N", "52.52, 13.4 km"])(
    "refuses %s",
    (text) => expect(parsePlace(text)).toBeNull(),
  );

  test("reads what it writes", () => {
    expect(parsePlace(placeText(-0.1276, 51.5072))).toEqual({ lon: -0.1276, lat: 51.5072 });
  });
});

describe("regions", () => {
  test("all points of a circle have its distance, also near a pole and across 180 degrees", () => {
    for (const [lon, lat] of [[13, 52], [179.9, 10], [0, 80]] as const) {
      for (const point of circleRing(lon, lat, 300_000)) {
        expect(distanceM([lon, lat], point) / 300_000).toBeCloseTo(1, 6);
      }
    }
    const { west, east } = boundsOf(shapeOf({
      areaType: "CIRCLE",
      center: { longitude: 179.9, latitude: 0 },
      radius: 100_000,
    }));
    expect(east - west).toBeLessThan(2);
  });

  test("a circle around a pole is filled up to the edge of the map", () => {
    const bounds = boundsOf({ type: "Polygon", coordinates: [circleRing(30, 80, 3_000_000)] });
    expect(bounds.east - bounds.west).toBeCloseTo(360, 6);
    expect(bounds.north).toBe(89.9);
  });

  test("a box across 180 degrees is drawn as one piece", () => {
    const box = { areaType: "BOX" as const, west: 170, south: -10, east: -170, north: 10 };
    expect(boundsOf(shapeOf(box))).toEqual({ west: 170, south: -10, east: 190, north: 10 });
  });

  test("moving keeps the size, wraps longitudes and stops at the poles", () => {
    const box = { areaType: "BOX" as const, west: 170, south: 70, east: 175, north: 80 };
    expect(translated(box, 12, 30)).toEqual({ ...box, west: -178, east: -173, south: 80, north: 90 });
    const polygon = { type: "Polygon" as const, coordinates: [[[0, 0], [1, 0], [1, 1], [0, 0]]] as never };
    expect(translated(polygon, 5, -5)).toEqual({
      type: "Polygon",
      coordinates: [[[5, -5], [6, -5], [6, -4], [5, -5]]],
    });
  });

  test("a drawn circle is a center and a radius", () => {
    const ring = circleRing(13, 52, 50_000);
    const region = regionOf("circle", { type: "Polygon", coordinates: [ring] }, [13, 52]);
    expect(region).toMatchObject({ areaType: "CIRCLE", center: { longitude: 13, latitude: 52 } });
    expect(Math.abs((region as { radius: number }).radius - 50_000)).toBeLessThan(50);
  });

  test("a drawn rectangle is a box, and one without extent is nothing", () => {
    const ring = [[10, 40], [20, 40], [20, 50], [10, 50], [10, 40]] as never;
    expect(regionOf("rectangle", { type: "Polygon", coordinates: [ring] }, null)).toEqual({
      areaType: "BOX",
      west: 10,
      south: 40,
      east: 20,
      north: 50,
    });
    const flat = [[1, 1], [1, 1], [1, 1], [1, 1]] as never;
    expect(regionOf("rectangle", { type: "Polygon", coordinates: [flat] }, null)).toBeNull();
  });
});

describe("regions are changed by their handles", () => {
  test("a box by its corners, which stop at the opposite ones", () => {
    const box = { areaType: "BOX" as const, west: 0, south: 0, east: 10, north: 5 };
    expect(handlesOf(box)).toEqual([[0, 0], [10, 0], [10, 5], [0, 5]]);
    expect(reshaped(box, 0, -2, 1)).toEqual({ ...box, west: -2, south: 1 });
    expect(reshaped(box, 1, 2, 1)).toEqual({ ...box, east: 12, south: 1 });
    expect(reshaped(box, 2, 2, 1)).toEqual({ ...box, east: 12, north: 6 });
    expect(reshaped(box, 3, -2, 1)).toEqual({ ...box, west: -2, north: 6 });
    expect(reshaped(box, 0, 99, 99)).toEqual({ ...box, west: 10, south: 5 });
    expect(reshaped(box, 2, 0, 99)).toEqual({ ...box, north: 90 });
  });

  test("a box across 180 degrees, and one around the world", () => {
    const box = { areaType: "BOX" as const, west: 170, south: 0, east: -170, north: 5 };
    expect(reshaped(box, 0, 5, 0)).toEqual({ ...box, west: 175 });
    expect(reshaped(box, 0, 15, 0)).toEqual({ ...box, west: -175 });
    expect(reshaped(box, 2, -15, 0)).toEqual({ ...box, east: 175 });
    expect(reshaped(box, 1, 400, 0)).toEqual({ ...box, west: -180, east: 180 });
  });

  test("a circle by its edge", () => {
    const circle = {
      areaType: "CIRCLE" as const,
      center: { longitude: 13, latitude: 52 },
      radius: 100_000,
    };
    const [[lon, lat]] = handlesOf(circle) as [[number, number]];
    expect(distanceM([13, 52], [lon, lat])).toBeCloseTo(100_000, 3);
    const wider = reshaped(circle, 0, lon - 13, 0);
    expect(wider).toEqual({ ...circle, radius: Math.round(distanceM([13, 52], [2 * lon - 13, lat])) });
    expect(reshaped(circle, 0, 13 - lon, 52 - lat)).toEqual({ ...circle, radius: 1 });
  });

  test("a polygon by its corners, also those of holes; the first one closes its ring", () => {
    const outer = [[0, 0], [9, 0], [9, 9], [0, 0]];
    const hole = [[4, 1], [8, 1], [8, 5], [4, 1]];
    const polygon = { type: "Polygon" as const, coordinates: [outer, hole] as never };
    expect(handlesOf(polygon)).toHaveLength(6);
    expect(reshaped(polygon, 0, -1, -2)).toEqual({
      type: "Polygon",
      coordinates: [[[-1, -2], [9, 0], [9, 9], [-1, -2]], hole],
    });
    expect(reshaped(polygon, 4, -1, 1)).toEqual({
      type: "Polygon",
      coordinates: [outer, [[4, 1], [7, 2], [8, 5], [4, 1]]],
    });
    expect(reshaped(polygon, 2, 999, 999)).toMatchObject({
      coordinates: [[[0, 0], [9, 0], [180, 90], [0, 0]], hole],
    });
    expect(handlesOf({ type: "Point", coordinates: [1, 2] })).toEqual([]);
  });
});
