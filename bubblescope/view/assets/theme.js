// Light and dark: what the system asks for until the reader chooses. Canvas colours come from CSS.

let colours = null;
const listeners = [];

/** Whether the page is dark now. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Change to the other one. */
export function toggleTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  changed();
}

/** Call `listener` whenever the colours change. */
export function onTheme(listener) {
  listeners.push(listener);
}

/** The value of a CSS colour of the page: colour("--ink"). */
export function colour(name) {
  colours ??= new Map();
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  }
  return colours.get(name);
}

function changed() {
  colours = null;
  for (const listener of listeners) listener();
}

/** Follow the system. */
export function watchTheme() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
