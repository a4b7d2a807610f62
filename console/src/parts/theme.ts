// The colours of the console: dark, light, or the system's choice.
import { computed, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "twinprobe-theme";
const asked = matchMedia("(prefers-color-scheme: dark)");
const system = signal(asked.matches ? "dark" : "light");
asked.addEventListener("change", () => (system.value = asked.matches ? "dark" : "light"));

export const theme = signal<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "system");
export const shown = computed(() => (theme.value === "system" ? (system.value as "dark" | "light") : theme.value));

export function setTheme(value: Theme) {
  theme.value = value;
  localStorage.setItem(KEY, value);
}

shown.subscribe((value) => (document.documentElement.dataset.theme = value));

/** The value of a custom property of the style sheet, for drawing on a canvas. */
export const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Colours of lines that people with red-green blindness can tell apart. */
export const LINES = ["line-1", "line-2", "line-3", "line-4", "line-5", "line-6", "line-7", "line-8"];
export const lineColour = (index: number, count: number, isOthers: boolean) =>
  colour(isOthers && index === count - 1 ? "line-others" : LINES[index % LINES.length]!);
