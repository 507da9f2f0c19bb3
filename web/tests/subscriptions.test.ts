import { describe, expect, test } from "vitest";
import type { Subscription } from "../src/api/types";
import { draftOf, newDraft, requestOf, words } from "../src/subscriptions/draft";
import { markError } from "../src/subscriptions/expression_error";
import { exportGeoJson, readImportFile } from "../src/subscriptions/geojson";
import { meaningOf, rankingOf, slidersOf } from "../src/subscriptions/sliders";

const POINT = { type: "Point" as const, coordinates: [13.4, 52.5] as [number, number] };
const BOX = { areaType: "BOX" as const, west: 10, south: 40, east: 20, north: 50 };

describe("markError", () => {
  test("marks the word at a position", () => {
    expect(markError("tea -milk now", 4)).toEqual({ before: "tea ", word: "-milk", after: " now" });
    expect(markError("tea -milk", 6).word).toBe("-milk");
    expect(markError("coffee OR", 7)).toEqual({ before: "coffee ", word: "OR", after: "" });
  });

  test("a parenthesis is a word of its own, a phrase is one as a whole", () => {
    expect(markError("(tea OR", 0)).toEqual({ before: "", word: "(", after: "tea OR" });
    expect(markError('x "old town', 2)).toEqual({ before: "x ", word: '"old town', after: "" });
    expect(markError('"old town" x', 0).word).toBe('"old town"');
  });

  test("counts characters as the server does, not UTF-16 units", () => {
    expect(markError("😀😀 -x", 3)).toEqual({ before: "😀😀 ", word: "-x", after: "" });
  });

  test("positions beyond the end or on a space mark what is before", () => {
    expect(markError("tea AND", 99).word).toBe("AND");
    expect(markError("tea  AND", 4).word).toBe("tea");
    expect(markError("", 0)).toEqual({ before: "", word: "", after: "" });
  });
});

describe("sliders", () => {
  test("a point is ranked by distance, a region by coverage", () => {
    expect(rankingOf({ relevant: 40, many: 50 }, POINT, 5000)).toEqual({
      delta: 0.4,
      tau: 0.5,
      maxDistanceM: 5000,
    });
    expect(rankingOf({ relevant: 40, many: 50 }, BOX, 5000)).toEqual({ alpha: 0.6, theta: 0.5 });
  });

  test("more relevant weighs words, more many lowers the threshold, within bounds", () => {
    const at = (relevant: number, many: number) => rankingOf({ relevant, many }, POINT, 1);
    expect(at(0, 0)).toMatchObject({ delta: 0, tau: 0.95 });
    expect(at(100, 100)).toMatchObject({ delta: 1, tau: 0.05 });
    expect(at(-5, 500)).toMatchObject({ delta: 0, tau: 0.05 });
  });

  test("going to numbers and back keeps every position", () => {
    for (let value = 0; value <= 100; value++) {
      const sliders = { relevant: value, many: 100 - value };
      expect(slidersOf(rankingOf(sliders, POINT, 1))).toEqual(sliders);
      expect(slidersOf(rankingOf(sliders, BOX, 1))).toEqual(sliders);
    }
  });

  test("says what the numbers mean", () => {
    const meaning = (delta: number, tau: number) => meaningOf({ delta, tau, maxDistanceM: 1 });
    expect(meaning(0.8, 0.5)).toContain("wherever");
    expect(meaning(0.2, 0.5)).toContain("without any of the words");
    expect(meaning(0.5, 0.7)).toContain("60 %");
    expect(meaning(0.5, 0.5)).toContain("Either");
  });
});

function subscription(detail: Record<string, unknown>, more = {}): Subscription {
  return {
    id: "s1",
    status: "ACTIVE",
    startsAt: "2026-01-01T00:00:00Z",
    version: 3,
    config: { subscriptionDetail: detail as never, ...more },
  };
}

describe("drafts", () => {
  test("there is nothing to send until there is a region and words", () => {
    const draft = newDraft();
    expect(requestOf(draft, "ann")).toBeNull();
    expect(requestOf({ ...draft, region: BOX }, "ann")).toBeNull();
    expect(requestOf({ ...draft, expression: "tea" }, "ann")).toBeNull();
    expect(requestOf({ ...draft, region: BOX, expression: " tea " }, "ann")).toEqual({
      config: {
        subscriptionDetail: { subscriber: "ann", region: BOX, expression: "tea" },
        initialEvent: false,
      },
    });
  });

  test("a place that is not ranked is a circle of its reach", () => {
    const draft = { ...newDraft("point"), ranked: false, region: POINT, expression: "tea", reachM: 700 };
    expect(requestOf(draft, "ann")?.config.subscriptionDetail.region).toEqual({
      areaType: "CIRCLE",
      center: { longitude: 13.4, latitude: 52.5 },
      radius: 700,
    });
  });

  test("what is read and sent back unchanged means the same", () => {
    const ranking = { delta: 0.4, tau: 0.5, maxDistanceM: 2000 };
    const read = subscription(
      { subscriber: "bo", keywords: ["flat", "white"], region: POINT, ranking, dwellS: 5 },
      { subscriptionMaxEvents: 9, initialEvent: false },
    );
    const sent = requestOf(draftOf(read), "ann")!;
    expect(sent.config).toEqual(read.config);
    expect(sent.status).toBe("ACTIVE");
  });

  test("words are separated by commas, spaces and lines", () => {
    expect(words(" coffee, flat  white\nlatte,,")).toEqual(["coffee", "flat", "white", "latte"]);
  });
});

describe("GeoJSON", () => {
  test("a circle is a point with a radius", () => {
    const region = { areaType: "CIRCLE", center: { longitude: 13, latitude: 52 }, radius: 500 };
    const { features } = exportGeoJson([subscription({ keywords: ["tea"], subscriber: "ann", region })]);
    expect(features).toEqual([
      {
        type: "Feature",
        id: "s1",
        geometry: { type: "Point", coordinates: [13, 52] },
        properties: { id: "s1", owner: "ann", keywords: ["tea"], radius_m: 500 },
      },
    ]);
  });

  test("a box across 180 degrees is cut into two polygons", () => {
    const region = { areaType: "BOX", west: 170, south: -90, east: -170, north: 90 };
    const [feature] = exportGeoJson([subscription({ expression: "tea", region })]).features;
    expect(feature!.geometry.type).toBe("MultiPolygon");
    const rings = (feature!.geometry.coordinates as number[][][][]).map((polygon) => polygon[0]!);
    expect(rings.map((ring) => ring[0])).toEqual([
      [170, -90],
      [-180, -90],
    ]);
    expect(rings.map((ring) => ring[2])).toEqual([
      [180, 90],
      [-170, 90],
    ]);
  });

  test("rankings and expiry are properties", () => {
    const ranking = { delta: 0.4, tau: 0.6, maxDistanceM: 2000 };
    const given = subscription(
      { keywords: ["tea"], region: POINT, ranking },
      { subscriptionExpireTime: "2099-01-01T00:00:00Z" },
    );
    expect(exportGeoJson([given]).features[0]!.properties).toEqual({
      id: "s1",
      keywords: ["tea"],
      expires_at: "2099-01-01T00:00:00Z",
      delta: 0.4,
      tau: 0.6,
      max_distance_m: 2000,
    });
  });

  test("what is exported is a file to import", () => {
    const text = JSON.stringify(exportGeoJson([subscription({ expression: "tea", region: BOX })]));
    expect(readImportFile(text)).toEqual({ body: text, type: "application/geo+json", count: 1 });
  });

  test("a feature alone and lines of JSON are files to import, other things are not", () => {
    const feature = { type: "Feature", geometry: POINT, properties: { id: "x" } };
    expect(readImportFile(JSON.stringify(feature))).toMatchObject({
      type: "application/geo+json",
      count: 1,
    });
    expect(readImportFile('\uFEFF{"id":1}\n\n{"id":2}\n')).toMatchObject({
      type: "application/x-ndjson",
      count: 2,
    });
    expect(() => readImportFile("")).toThrow("empty");
    expect(() => readImportFile('{"id":1}\nid,lon\n')).toThrow("line 2");
    expect(() => readImportFile('{"type":"FeatureCollection"}')).toThrow("features");
  });
});
