import { describe, expect, test } from "vitest";
import { parsePlace, placeText } from "../src/geometry/coordinates";
import { boundsOf, circleRing, distanceM, shapeOf, translated } from "../src/geometry/regions";
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
