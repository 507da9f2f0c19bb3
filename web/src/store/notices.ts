// Short notices at the edge of the page, read out by screen readers.

import { signal } from "@preact/signals";
import { describe } from "../api/problems";

export interface Notice {
  id: number;
  text: string;
  kind: "info" | "error";
  action?: { label: string; run: () => void };
}

export const notices = signal<readonly Notice[]>([]);
let nextId = 1;

export function notify(text: string, options: Partial<Pick<Notice, "kind" | "action">> = {}): number {
  const notice: Notice = { id: nextId++, text, kind: options.kind ?? "info" };
  if (options.action) notice.action = options.action;
  notices.value = [...notices.value.slice(-3), notice];
  setTimeout(() => dismiss(notice.id), notice.kind === "error" ? 12_000 : 7_000);
  return notice.id;
}

export function fail(error: unknown): void {
  notify(describe(error), { kind: "error" });
}

/** Changes the text of a notice that is still shown. */
export function update(id: number, text: string): void {
  notices.value = notices.value.map((one) => (one.id === id ? { ...one, text } : one));
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((one) => one.id !== id);
}
