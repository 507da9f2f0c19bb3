// Light or dark: as the system says, or as the switch says.

import { computed, effect, signal } from "@preact/signals";

export type ThemeChoice = "system" | "light" | "dark";

const STORED = "nearcast.theme";
const system = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
const systemDark = signal(system?.matches ?? false);
system?.addEventListener("change", (event) => {
  systemDark.value = event.matches;
});

export const themeChoice = signal<ThemeChoice>(stored());
export const dark = computed(() =>
  themeChoice.value === "system" ? systemDark.value : themeChoice.value === "dark",
);

/** Keeps the page and the browser's storage as the switch says. */
export function applyTheme(): void {
  effect(() => {
    document.documentElement.dataset.theme = dark.value ? "dark" : "light";
    localStorage.setItem(STORED, themeChoice.value);
  });
}

export function nextTheme(): void {
  themeChoice.value = dark.value ? "light" : "dark";
}

function stored(): ThemeChoice {
  const given = globalThis.localStorage?.getItem(STORED);
  return given === "light" || given === "dark" ? given : "system";
}
