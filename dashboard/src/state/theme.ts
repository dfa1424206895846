// Light or dark: what the system says, unless the reader chose.
import { signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const KEY = "skep.theme";

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "auto";
}

export const theme = signal<Theme>(stored());
/** Counts changes of the colours, for what is drawn and not styled. */
export const paletteVersion = signal(0);

export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  if (chosen === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, chosen);
  applyTheme();
}

export function applyTheme(): void {
  const root = document.documentElement;
  if (theme.value === "auto") root.removeAttribute("data-theme");
  else root.dataset["theme"] = theme.value;
  paletteVersion.value++;
}

export function watchTheme(): void {
  applyTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);
}
