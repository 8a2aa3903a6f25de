// Buttons above the timeline: each does what a key does, for those who do not use keys.

import { button, element, fill, select } from "./dom.js";
import { count } from "./units.js";

/** What a search found, and the way through it. */
export class Search {
  constructor(timeline) {
    this.timeline = timeline;
    this.input = element("input", {
      type: "search",
      placeholder: "Search names  ( / )",
      "aria-label": "Search operations, calls and ranges by name",
      spellcheck: "false",
      oninput: () => this.find(),
      onkeydown: (event) => {
        if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
      },
    });
    this.said = element("output", { class: "quiet", "aria-live": "polite" });
    this.found = [];
    this.at = -1;
  }

  /** Find the names that hold the text, whatever its case, and everything so called. */
  find() {
    const text = this.input.value.trim().toLowerCase();
    this.at = -1;
    if (!text) return this.clear();
    const codes = (recording, table) =>
      new Set(recording.names[table].flatMap((name, n) => (name.toLowerCase().includes(text) ? [n] : [])));
    this.found = this.timeline.strips
      .filter((strip) => !strip.clip)
      .flatMap((strip) => ["call", "range", "op"].flatMap((table) => matches(strip, table, codes(strip.recording, table))));
    this.found.sort((a, b) => a.time - b.time);
    this.timeline.mark(codes);
    this.tell();
    return undefined;
  }

  clear() {
    this.input.value = "";
    this.found = [];
    this.timeline.mark(null);
    this.tell();
  }

  /** Go to the next match, or the one before; the first is the next one in the picture. */
  go(by) {
    if (!this.found.length) return;
    if (this.at < 0) {
      const next = this.found.findIndex(({ time }) => time >= this.timeline.scale.from);
      this.at = by > 0 ? Math.max(0, next) : (next < 0 ? this.found.length : next) - 1;
    } else this.at += by;
    this.at = (this.at + this.found.length) % this.found.length;
    const { strip, table, row } = this.found[this.at];
    this.timeline.select(strip, table, row, true);
    this.tell();
  }

  tell() {
    if (!this.input.value.trim()) fill(this.said);
    else if (!this.found.length) fill(this.said, "none");
    else fill(this.said, `${this.at < 0 ? "" : `${count(this.at + 1)} of `}${count(this.found.length)}`);
  }
}

function matches(strip, table, codes) {
  const { name, start } = strip.recording[table];
  const found = [];
  if (!codes.size) return found;
  for (let row = 0; row < name.length; row++) {
    if (codes.has(name[row])) found.push({ strip, table, row, time: start[row] - strip.offset });
  }
  return found;
}

/** Go to the next bubble in time, or the one before, from the one that is selected. */
export function walkBubbles(timeline, by) {
  const strip = timeline.selected?.strip ?? timeline.strips[0];
  const { recording } = strip;
  const order = recording.bubblesInTime;
  if (!order.length) return;
  const { start } = recording.bubble;
  let at;
  if (timeline.selected?.table === "bubble") at = order.indexOf(timeline.selected.row) + by;
  else {
    const from = timeline.selected
      ? recording.times(timeline.selected.table, timeline.selected.row)[0]
      : timeline.scale.from + strip.offset;
    at = order.findIndex((row) => start[row] >= from);
    if (at < 0) at = order.length;
    if (by < 0) at -= 1;
  }
  timeline.select(strip, "bubble", order[(at + order.length) % order.length], true);
}

/** Build the bar. `actions`: what its buttons do; `controls` and `legend`: of this kind of page. */
export function buildToolbar(host, timeline, search, actions, controls, legend) {
  const group = (...children) => element("div", { class: "group" }, ...children);
  fill(
    host,
    group(
      button("Fit", "Show the whole window (f)", () => timeline.fit()),
      button("\u2212", "Zoom out (s)", () => timeline.zoom(1 / 1.6)),
      button("+", "Zoom in (w)", () => timeline.zoom(1.6)),
    ),
    group(
      button("\u2039", "Previous bubble (p)", () => actions.bubble(-1)),
      element("span", { class: "quiet" }, "bubble"),
      button("\u203A", "Next bubble (n)", () => actions.bubble(1)),
    ),
    group(button("Ruler", "Measure between two points (r)", () => actions.ruler(), { id: "ruler", "aria-pressed": "false" })),
    ...controls,
    group(
      search.input,
      button("\u2039", "Previous match (Shift + Enter)", () => search.go(-1)),
      button("\u203A", "Next match (Enter)", () => search.go(1)),
      search.said,
    ),
    legend,
  );
}

/** A select of steps: go there, or lay one over another. */
export function stepSelect(label, recording, none, onchange) {
  const { number, counted } = recording.steps;
  const options = number.map((value, n) => [n, `${value}${counted[n] ? "" : " (not counted)"}`]);
  return select(label, [[-1, none], ...options], (value) => onchange(Number(value)));
}
