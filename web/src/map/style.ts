// The base map: land, borders and cities, all bundled. Labels need no glyph server: without
// `glyphs`, MapLibre draws letters with the browser's own fonts.

import type { StyleSpecification } from "maplibre-gl";
import borders110 from "../../generated/borders-110m.json?url";
import borders50 from "../../generated/borders-50m.json?url";
import land110 from "../../generated/land-110m.json?url";
import land50 from "../../generated/land-50m.json?url";
import cities from "./cities.json";

export interface MapColors {
  water: string;
  land: string;
  coast: string;
  border: string;
  label: string;
  halo: string;
}

const LIGHT: MapColors = {
  water: "#dbe6ea",
  land: "#f7f5f0",
  coast: "#b9c7cb",
  border: "#d5cfc3",
  label: "#59636b",
  halo: "#f7f5f0",
};

const DARK: MapColors = {
  water: "#0c1317",
  land: "#202b31",
  coast: "#3a4a53",
  border: "#35434b",
  label: "#93a3ad",
  halo: "#151d21",
};

export const FINE = { land: land50, borders: borders50 };
export const ATTRIBUTION = `Natural Earth · ${cities.attribution}`;

export function mapColors(dark: boolean): MapColors {
  return dark ? DARK : LIGHT;
}

export function baseStyle(dark: boolean, tiles: string | null): StyleSpecification {
  const colors = mapColors(dark);
  const style: StyleSpecification = {
    version: 8,
    sources: {
      land: { type: "geojson", data: land110, maxzoom: 8 },
      borders: { type: "geojson", data: borders110, maxzoom: 8 },
      cities: { type: "geojson", data: cityFeatures(), maxzoom: 8 },
    },
    layers: [
      { id: "water", type: "background", paint: { "background-color": colors.water } },
      { id: "land", type: "fill", source: "land", paint: { "fill-color": colors.land } },
      {
        id: "coast",
        type: "line",
        source: "land",
        paint: { "line-color": colors.coast, "line-width": 0.8 },
      },
      {
        id: "borders",
        type: "line",
        source: "borders",
        paint: { "line-color": colors.border, "line-width": 0.8, "line-dasharray": [3, 2] },
      },
      {
        id: "cities",
        type: "symbol",
        source: "cities",
        // The largest first; more of them as one comes nearer.
        filter: ["<=", ["get", "rank"], ["step", ["zoom"], 24, 2, 60, 3, 160, 4, 500, 5, 1200, 6, 2000]],
        layout: {
          "text-field": ["get", "name"],
          "text-font": ["sans-serif"],
          "text-size": ["interpolate", ["linear"], ["get", "rank"], 0, 12.5, 200, 11.5, 2000, 10.5],
          "symbol-sort-key": ["get", "rank"],
          "text-padding": 6,
          "text-max-width": 7,
        },
        paint: {
          "text-color": colors.label,
          "text-halo-color": colors.halo,
          "text-halo-width": 1.2,
        },
      },
    ],
  };
  if (tiles) {
    style.sources.tiles = { type: "raster", tiles: [tiles], tileSize: 256 };
    style.layers.splice(4, 0, { id: "tiles", type: "raster", source: "tiles" });
  }
  return style;
}

function cityFeatures(): GeoJSON.FeatureCollection {
  const rows = cities.cities as unknown as [string, number, number][];
  return {
    type: "FeatureCollection",
    features: rows.map(([name, lon, lat], rank) => ({
      type: "Feature",
      properties: { name, rank },
      geometry: { type: "Point", coordinates: [lon, lat] },
    })),
  };
}
