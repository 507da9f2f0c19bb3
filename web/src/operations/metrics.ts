// The text format of Prometheus, and what charts need of it: rates, quantiles, means.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

export class Metrics {
  readonly #samples = new Map<string, Sample[]>();

  constructor(text: string) {
    for (const line of text.split("\n")) {
      if (!line || line.startsWith("#")) continue;
      const sample = parseLine(line);
      if (!sample) continue;
      const same = this.#samples.get(sample.name);
      if (same) same.push(sample);
      else this.#samples.set(sample.name, [sample]);
    }
  }

  /** The sum of all samples of a name; 0 if there is none. */
  sum(name: string): number {
    return (this.#samples.get(name) ?? []).reduce((total, sample) => total + sample.value, 0);
  }

  /** Cumulative counts of a histogram by their upper bound, over all labels. */
  buckets(name: string): Map<number, number> {
    const found = new Map<number, number>();
    for (const sample of this.#samples.get(`${name}_bucket`) ?? []) {
      const bound = number(sample.labels.le ?? "+Inf");
      found.set(bound, (found.get(bound) ?? 0) + sample.value);
    }
    return new Map([...found].sort((a, b) => a[0] - b[0]));
  }
}

function parseLine(line: string): Sample | null {
  const parts = LINE.exec(line);
  if (!parts) return null;
  const labels: Record<string, string> = {};
  for (const [, name, value] of (parts[2] ?? "").matchAll(LABEL)) {
    labels[name!] = value!.replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c));
  }
  return { name: parts[1]!, labels, value: number(parts[3]!) };
}

function number(text: string): number {
  if (text === "+Inf") return Infinity;
  return text === "-Inf" ? -Infinity : Number(text);
}

/** By how much a counter has grown a second; a restart counts from 0. */
export function rate(before: number, after: number, seconds: number): number {
  if (seconds <= 0) return 0;
  return (after >= before ? after - before : after) / seconds;
}

/**
 * A quantile of what a histogram has counted between two readings, in a straight line within its
 * bucket as Prometheus does it; null if nothing was counted. Above the last bound it is that bound.
 */
export function quantile(
  q: number,
  before: ReadonlyMap<number, number>,
  after: ReadonlyMap<number, number>,
): number | null {
  const bounds = [...after.keys()];
  const restarted = bounds.some((bound) => (before.get(bound) ?? 0) > after.get(bound)!);
  const counts = bounds.map((bound) => {
    return after.get(bound)! - (restarted ? 0 : (before.get(bound) ?? 0));
  });
  const total = counts.at(-1) ?? 0;
  if (total <= 0) return null;
  const rank = q * total;
  const at = counts.findIndex((count) => count >= rank);
  const [low, high] = [at > 0 ? bounds[at - 1]! : 0, bounds[at]!];
  if (!Number.isFinite(high)) return low;
  const below = at > 0 ? counts[at - 1]! : 0;
  const inside = counts[at]! - below;
  return inside <= 0 ? low : low + ((high - low) * (rank - below)) / inside;
}
