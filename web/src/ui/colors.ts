// One color for each subscription, the same on the map, in the list and in the feed.

export const PALETTE_LIGHT = [
  "#0f766e",
  "#c2410c",
  "#1d4ed8",
  "#a21caf",
  "#4d7c0f",
  "#b45309",
  "#be123c",
  "#6d28d9",
] as const;

export const PALETTE_DARK = [
  "#2dd4bf",
  "#fb923c",
  "#60a5fa",
  "#e879f9",
  "#a3e635",
  "#fbbf24",
  "#fb7185",
  "#a78bfa",
] as const;

/** The number of a subscription's color: a hash of its id (FNV-1a). */
export function colorIndex(id: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < id.length; at++) {
    hash = Math.imul(hash ^ id.charCodeAt(at), 0x01000193);
  }
  return (hash >>> 0) % PALETTE_LIGHT.length;
}

export function paletteOf(dark: boolean): readonly string[] {
  return dark ? PALETTE_DARK : PALETTE_LIGHT;
}

/** Red, green and blue, from 0 to 1. */
export function rgb(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1), 16);
  return [((value >> 16) & 255) / 255, ((value >> 8) & 255) / 255, (value & 255) / 255];
}
