// Two sliders for ranked subscriptions, from 0 to 100, and the numbers of the ranking.
//
// "Near against relevant" is the weight of words: delta, or 1 - alpha for regions. "Few against
// many" is the threshold: tau or theta, from 0.95 (few) down to 0.05 (many).

import type { Ranking, Region } from "../api/types";

export interface Sliders {
  /** 0: only the place counts; 100: only the words. */
  relevant: number;
  /** 0: few messages match; 100: many. */
  many: number;
}

export const DEFAULT_SLIDERS: Sliders = { relevant: 40, many: 40 };
const [STRICTEST, LOOSEST] = [0.95, 0.05];

/** Points are ranked by distance, regions by how much of them a message covers. */
export function rankingOf(sliders: Sliders, region: Region, reachM: number): Ranking {
  const words = round(clamp(sliders.relevant) / 100);
  const threshold = round(STRICTEST - (clamp(sliders.many) / 100) * (STRICTEST - LOOSEST));
  if (isPoint(region)) return { delta: words, tau: threshold, maxDistanceM: reachM };
  return { alpha: round(1 - words), theta: threshold };
}

export function slidersOf(ranking: Ranking): Sliders {
  const [words, threshold] =
    "delta" in ranking ? [ranking.delta, ranking.tau] : [1 - ranking.alpha, ranking.theta];
  const many = ((STRICTEST - threshold) / (STRICTEST - LOOSEST)) * 100;
  return { relevant: clamp(Math.round(words * 100)), many: clamp(Math.round(many)) };
}

/** What the two numbers mean, in words: docs/guides/ranking.md has the rules. */
export function meaningOf(ranking: Ranking): string {
  const byDistance = "delta" in ranking;
  const words = byDistance ? ranking.delta : 1 - ranking.alpha;
  const threshold = byDistance ? ranking.tau : ranking.theta;
  const [wordsSuffice, placeSuffices] = [threshold <= words, threshold <= 1 - words];
  const there = byDistance ? "being near" : "being inside";
  if (wordsSuffice && placeSuffices) return `Either all the words or ${there} is enough.`;
  if (wordsSuffice) return "All the words are enough, wherever the message is.";
  if (placeSuffices) return `${there[0]!.toUpperCase()}${there.slice(1)} is enough, without any of the words.`;
  if (!byDistance) return "A message must be inside and have enough of the words.";
  const share = Math.round(((1 - threshold) / (1 - words)) * 100);
  return `Words and place are both needed. With all the words, up to ${share} % of the reach.`;
}

export function isPoint(region: Region): boolean {
  if ("areaType" in region) return false;
  return region.type === "Point" || (region.type === "Feature" && region.geometry.type === "Point");
}

function clamp(value: number): number {
  return Math.max(0, Math.min(100, value));
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}
