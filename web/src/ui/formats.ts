// Numbers, times and distances in the language and the zone of the viewer.

const numbers = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const dayAndClock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const shortDay = new Intl.DateTimeFormat(undefined, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
});

export function count(value: number): string {
  return numbers.format(value);
}

export function short(value: number): string {
  return Math.abs(value) < 10_000 ? numbers.format(Math.round(value)) : compact.format(value);
}

/** "1 message", "2 messages". */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** The time of the day, with the date if it is of another day. */
export function time(ms: number, now = Date.now()): string {
  const sameDay = new Date(ms).toDateString() === new Date(now).toDateString();
  return sameDay ? clock.format(ms) : shortDay.format(ms);
}

export function fullTime(ms: number): string {
  return dayAndClock.format(ms);
}

/** Three significant digits, for rates and scores. */
export function decimal(value: number, digits = 2): string {
  return new Intl.NumberFormat(undefined, { maximumFractionDigits: digits }).format(value);
}

export function distance(meters: number): string {
  if (meters < 1_000) return `${count(Math.round(meters))} m`;
  return `${decimal(meters / 1_000, meters < 10_000 ? 1 : 0)} km`;
}

export function duration(seconds: number): string {
  if (seconds < 0.001) return `${decimal(seconds * 1e6, 0)} µs`;
  if (seconds < 1) return `${decimal(seconds * 1_000, seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${decimal(seconds, 1)} s`;
  return seconds < 3_600 ? `${decimal(seconds / 60, 0)} min` : `${decimal(seconds / 3_600, 1)} h`;
}

export function percent(share: number): string {
  return new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0 }).format(share);
}
