// Places as people type them: "52.52, 13.4", "52° 31′ N 13° 24′ E", "13.4E 52.52N".

export interface Place {
  lon: number;
  lat: number;
}

const PART =
  /([+-]?\d+(?:\.\d+)?)\s*°?\s*(?:(\d+(?:\.\d+)?)\s*['′]\s*)?(?:(\d+(?:\.\d+)?)\s*["″]\s*)?([NSEWnsew])?/g;

/** The place that a text means; latitude comes first unless letters say otherwise. */
export function parsePlace(text: string): Place | null {
  const parts = [...text.trim().matchAll(PART)];
  if (parts.length !== 2 || text.replace(PART, "").replace(/[\s,;]/g, "")) return null;
  const [first, second] = parts.map((part) => ({
    value: degrees(part[1]!, part[2], part[3], part[4]),
    axis: axis(part[4]),
  })) as [Part, Part];
  const swapped = first.axis === "lon" || second.axis === "lat";
  if (first.axis && second.axis && first.axis === second.axis) return null;
  const [lat, lon] = swapped ? [second.value, first.value] : [first.value, second.value];
  if (!(Math.abs(lat) <= 90 && Math.abs(lon) <= 180)) return null;
  return { lon, lat };
}

interface Part {
  value: number;
  axis: "lon" | "lat" | null;
}

function degrees(whole: string, minutes?: string, seconds?: string, side?: string): number {
  const size = Math.abs(Number(whole)) + Number(minutes ?? 0) / 60 + Number(seconds ?? 0) / 3600;
  const negative = whole.startsWith("-") !== /[SWsw]/.test(side ?? "");
  return negative ? -size : size;
}

function axis(side?: string): "lon" | "lat" | null {
  if (!side) return null;
  return /[EWew]/.test(side) ? "lon" : "lat";
}

/** A place as text that `parsePlace` reads. */
export function placeText(lon: number, lat: number, digits = 4): string {
  return `${lat.toFixed(digits)}, ${lon.toFixed(digits)}`;
}
