// Subscriptions as a GeoJSON FeatureCollection: what is exported can be imported again.
//
// The properties of a feature are a record of Nearcast's files: id, owner, keywords, expression,
// radius_m, delta, tau and so on. A circle is a point with radius_m.

import type { Position, Subscription } from "../api/types";
import { boxRing } from "../geometry/regions";

export interface ExportedFeature {
  type: "Feature";
  id: string;
  geometry: { type: string; coordinates: unknown };
  properties: Record<string, unknown>;
}

export interface Exported {
  type: "FeatureCollection";
  features: ExportedFeature[];
}

export function exportGeoJson(subscriptions: readonly Subscription[]): Exported {
  return { type: "FeatureCollection", features: subscriptions.flatMap(featuresOf) };
}

function featuresOf(subscription: Subscription): ExportedFeature[] {
  const detail = subscription.config.subscriptionDetail;
  const properties: Record<string, unknown> = { id: subscription.id };
  if (detail.subscriber !== undefined) properties.owner = detail.subscriber;
  if (detail.keywords) properties.keywords = detail.keywords;
  if (detail.expression) properties.expression = detail.expression;
  const expires = subscription.config.subscriptionExpireTime;
  if (expires) properties.expires_at = expires;
  if (detail.ranking) {
    const { ranking } = detail;
    if ("delta" in ranking) {
      properties.delta = ranking.delta;
      properties.tau = ranking.tau;
      properties.max_distance_m = ranking.maxDistanceM;
    } else {
      properties.alpha = ranking.alpha;
      properties.theta = ranking.theta;
    }
  }
  const { geometry, radiusM } = geometryOf(subscription);
  if (radiusM !== null) properties.radius_m = radiusM;
  return [{ type: "Feature", id: subscription.id, geometry, properties }];
}

function geometryOf(subscription: Subscription): {
  geometry: ExportedFeature["geometry"];
  radiusM: number | null;
} {
  const { region } = subscription.config.subscriptionDetail;
  if (!("areaType" in region)) {
    const geometry = region.type === "Feature" ? region.geometry : region;
    return { geometry: { type: geometry.type, coordinates: geometry.coordinates }, radiusM: null };
  }
  if (region.areaType === "CIRCLE") {
    const { longitude, latitude } = region.center;
    return {
      geometry: { type: "Point", coordinates: [longitude, latitude] },
      radiusM: region.radius,
    };
  }
  if (region.west <= region.east) {
    return { geometry: { type: "Polygon", coordinates: [exactRing(region)] }, radiusM: null };
  }
  // GeoJSON cuts what crosses 180 degrees into two (RFC 7946, 3.1.9).
  const parts = [
    { ...region, east: 180 },
    { ...region, west: -180 },
  ];
  const coordinates = parts.map((part) => [exactRing(part)]);
  return { geometry: { type: "MultiPolygon", coordinates }, radiusM: null };
}

function exactRing(box: { west: number; south: number; east: number; north: number }): Position[] {
  return boxRing(box).map(([lon], index): Position => {
    const isNorth = index === 2 || index === 3;
    return [lon, isNorth ? box.north : box.south];
  });
}

export interface ImportFile {
  body: string;
  type: "application/geo+json" | "application/x-ndjson";
  count: number;
}

/** What a chosen file is: GeoJSON, or lines of JSON. Throws, with a reason, if it is neither. */
export function readImportFile(text: string): ImportFile {
  const given = text.replace(/^\uFEFF/, "");
  const whole = parsed(given);
  if (isRecord(whole) && whole.type === "FeatureCollection") {
    if (!Array.isArray(whole.features)) throw new Error("The collection has no features.");
    return { body: given, type: "application/geo+json", count: whole.features.length };
  }
  if (isRecord(whole) && whole.type === "Feature") {
    const body = JSON.stringify({ type: "FeatureCollection", features: [whole] });
    return { body, type: "application/geo+json", count: 1 };
  }
  const lines = given.split("\n").filter((line) => line.trim());
  const broken = lines.findIndex((line) => !isRecord(parsed(line)));
  if (lines.length === 0) throw new Error("The file is empty.");
  if (broken >= 0) {
    throw new Error(`It is neither GeoJSON nor lines of JSON: see line ${broken + 1}.`);
  }
  return { body: given, type: "application/x-ndjson", count: lines.length };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
