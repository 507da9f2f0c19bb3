// What is under the pointer, by the shapes themselves: what the map has drawn can be older.

export interface Pixel {
  x: number;
  y: number;
}

type Project = (position: GeoJSON.Position) => Pixel;

/** The features at a pixel: points at most `near` pixels away, and polygons around it. */
export function featuresAt(
  features: readonly GeoJSON.Feature[],
  { x, y }: Pixel,
  near: number,
  project: Project,
  worldSize: number,
): GeoJSON.Feature[] {
  // The map repeats itself east and west.
  const pixels = [0, -worldSize, worldSize].map((shift) => ({ x: x + shift, y }));
  return features.filter(({ geometry }) => {
    if (geometry.type === "Point") {
      const place = project(geometry.coordinates);
      return pixels.some((one) => Math.max(Math.abs(place.x - one.x), Math.abs(place.y - one.y)) <= near);
    }
    if (geometry.type !== "Polygon" && geometry.type !== "MultiPolygon") return false;
    const polygons = geometry.type === "Polygon" ? [geometry.coordinates] : geometry.coordinates;
    const rings = polygons.flat().map((ring) => ring.map(project));
    return pixels.some((one) => isInside(rings, one));
  });
}

/** Whether a line from the pixel to the left crosses the rings an odd number of times; holes are rings too. */
function isInside(rings: Pixel[][], { x, y }: Pixel): boolean {
  let inside = false;
  for (const ring of rings) {
    ring.forEach((end, at) => {
      const start = ring[at === 0 ? ring.length - 1 : at - 1]!;
      if (start.y > y === end.y > y) return;
      if (start.x + ((y - start.y) / (end.y - start.y)) * (end.x - start.x) < x) inside = !inside;
    });
  }
  return inside;
}
