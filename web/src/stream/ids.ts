// Ids of events, `<epoch>-<seq>` or `<epoch>-<seq>.<k>`: they ascend, and each is a cursor.

export type EventId = readonly [epoch: number, seq: number, k: number];

export function parseId(id: string): EventId | null {
  const parts = /^(\d{1,18})-(\d{1,18})(?:\.(\d{1,18}))?$/.exec(id);
  return parts && [Number(parts[1]), Number(parts[2]), Number(parts[3] ?? 0)];
}

/** Whether an id comes after another one; anything comes after nothing. */
export function isAfter(id: string, other: string): boolean {
  const [a, b] = [parseId(id), parseId(other)];
  if (a === null) return false;
  if (b === null) return true;
  for (let at = 0; at < 3; at++) {
    if (a[at]! !== b[at]!) return a[at]! > b[at]!;
  }
  return false;
}
