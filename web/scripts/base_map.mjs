// Makes the base map: land and borders of Natural Earth, from the package world-atlas.
//
// The polygons of world-atlas are spherical: fed to a flat map as they are, those that cross 180
// degrees or hold a pole fill wrongly. d3-geo-projection cuts them at the antimeridian.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { geoEquirectangular } from "d3-geo";
import { geoProject } from "d3-geo-projection";
import { feature, mesh } from "topojson-client";

const require = createRequire(import.meta.url);
const out = new URL("../generated/", import.meta.url);

// Degrees are the units of this projection: x = longitude, and y, which points down, = -latitude.
const degrees = geoEquirectangular().scale(180 / Math.PI).translate([0, 0]).precision(0);

function rounded(coordinates, digits) {
  if (typeof coordinates[0] === "number") {
    return [Number(coordinates[0].toFixed(digits)), Number((-coordinates[1]).toFixed(digits))];
  }
  return coordinates.map((part) => rounded(part, digits));
}

function cut(object, digits) {
  const projected = geoProject(object, degrees);
  const geometries = (projected.features ?? [projected]).map((one) => one.geometry ?? one);
  const features = geometries
    .filter((geometry) => geometry !== null)
    .map((geometry) => ({
      type: "Feature",
      properties: {},
      geometry: { type: geometry.type, coordinates: rounded(geometry.coordinates, digits) },
    }));
  return { type: "FeatureCollection", features };
}

mkdirSync(out, { recursive: true });
for (const [detail, digits] of [["110m", 2], ["50m", 2]]) {
  const world = JSON.parse(readFileSync(require.resolve(`world-atlas/countries-${detail}.json`)));
  const land = cut(feature(world, world.objects.land), digits);
  const borders = cut(mesh(world, world.objects.countries, (a, b) => a !== b), digits);
  writeFileSync(new URL(`land-${detail}.json`, out), JSON.stringify(land));
  writeFileSync(new URL(`borders-${detail}.json`, out), JSON.stringify(borders));
}
