// Puts the page together: what is on it depends on what it is of.

import { button, byId, element, fill } from "./dom.js";
import { isDark, onTheme, toggleTheme, watchTheme } from "./theme.js";
import { unpackedJson, unpackedRecording } from "./data.js";
import { Recording } from "./recording.js";
import { Timeline } from "./timeline.js";
import { followPointer } from "./pointer.js";
import { KEYS, listenForKeys } from "./keys.js";
import { showDetails } from "./details.js";
import { findingsList, PlaceWalk } from "./findings.js";
import { drawOverview } from "./overview.js";
import { buildToolbar, Search, stepSelect, walkBubbles } from "./toolbar.js";
import { legendOf } from "./legend.js";
import { Aligned } from "./compare.js";
import { ablationFacts, ablationTable, drawWaterfall } from "./ablation.js";
import { count, inMicroseconds, span } from "./units.js";

const SIDES = ["A", "B"];

async function main() {
  watchTheme();
  const page = await unpackedJson("head");
  const recordings = [];
  for (let n = 0; byId(`recording-${n}`); n++) {
    recordings.push(new Recording(await unpackedRecording(`recording-${n}`)));
  }
  document.body.classList.add(page.kind, recordings.length ? "with-timeline" : "without-timeline");
  byId("title").textContent = page.title;
  themeButton();
  const viewer = recordings.length ? new Viewer(page, recordings) : null;
  const draw = { diagnosis: ofDiagnosis, comparison: ofComparison, ablation: ofAblation }[page.kind];
  const redraw = draw(page, recordings, viewer);
  helpDialog();
  // For scripts that drive the page: tests, measurements, screenshots.
  globalThis.bubblescope = { page, recordings, timeline: viewer?.timeline ?? null, charts: null };
  onTheme(redraw);
  // Charts need a large library: it is not to hold up a reader who already moves the timeline.
  const whenIdle = globalThis.requestIdleCallback ?? ((act) => setTimeout(act, 0));
  whenIdle(() => (globalThis.bubblescope.charts = redraw()), { timeout: 1000 });
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

/** The timeline with its toolbar, keys and details. */
class Viewer {
  constructor(page, recordings) {
    this.kinds = page.kinds;
    this.empty = recordings.some(({ columns }) => columns["bubble.op"].rows)
      ? "Click a bubble, an operation or a call; or press n for the next bubble. Why it is there is said here."
      : "There is no bubble: the device is busy in all of the window. Click an operation or a call.";
    this.timeline = new Timeline(byId("timeline"), page.kinds);
    this.search = new Search(this.timeline);
    this.walk = new PlaceWalk(({ finding, at, of }) => {
      for (const made of document.querySelectorAll(".finding")) {
        const mine = this.findingOf(made, finding);
        made.classList.toggle("chosen", mine);
        if (mine) made.setAttribute("aria-current", "true");
        else made.removeAttribute("aria-current");
      }
      fill(byId("place"), `place ${count(at)} of ${count(of)}, longest first; [ and ] go on`);
    });
    this.actions = {
      bubble: (by) => walkBubbles(this.timeline, by),
      place: (by) => this.walk.step(this.timeline, by),
      ruler: () => this.toggleRuler(),
      search: () => this.search.input.focus(),
      help: () => byId("help").showModal(),
      clear: () => this.clear(),
    };
    this.timeline.listeners.select.push((selected) => this.details(selected));
    followPointer(this.timeline);
    listenForKeys(this.timeline, this.actions);
    this.details(null);
    this.build = (controls, sides) =>
      buildToolbar(byId("toolbar"), this.timeline, this.search, this.actions, controls, legendOf(page.kinds, sides));
  }

  findingOf(made, finding) {
    const side = made.closest("[data-side]")?.dataset.side ?? "0";
    return this.timeline.strips[Number(side)]?.recording === this.walk.strip.recording && Number(made.dataset.finding) === finding;
  }

  details(selected) {
    showDetails(byId("details"), selected, this.kinds, (table, row) =>
      this.timeline.select(selected.strip, table, row, true),
      this.empty,
    );
  }

  toggleRuler() {
    this.timeline.measuring = !this.timeline.measuring;
    byId("ruler").setAttribute("aria-pressed", String(this.timeline.measuring));
    if (!this.timeline.measuring) this.timeline.ruler = null;
    this.timeline.redraw();
  }

  clear() {
    this.timeline.ruler = null;
    if (this.timeline.measuring) this.toggleRuler();
    this.search.clear();
    this.search.input.blur();
    this.timeline.select(null, null, -1);
  }

  toStep(side, step) {
    const strip = this.timeline.strips[side];
    if (step < 0) return this.timeline.fit();
    const { start_ns: starts, end_ns: ends } = strip.recording.steps;
    return this.timeline.zoomTo(starts[step] - strip.offset, ends[step] - strip.offset);
  }
}

/** The line beside the title; where it is cut off, a pointer on it shows it whole. */
function subtitle(parts) {
  const text = parts.filter(Boolean).join(" \u00B7 ");
  fill(byId("subtitle"), element("bdi", { title: text }, text));
}

/** How long a step takes, "" where there is none. */
function stepText({ report }) {
  const { median_ns: median, each } = report.steps;
  return median === null ? "" : `step ${span(median)}, median of ${each.filter((step) => step.counted).length}`;
}

/** What makes the figures of a recording less than certain. */
function doubts(recording) {
  if (!recording.doubts.length) return null;
  const lines = recording.doubts.map((line) => element("li", {}, element("bdi", {}, inMicroseconds(line))));
  return [element("h3", {}, "Doubts"), element("ul", { class: "notes" }, ...lines)];
}

function ofDiagnosis(page, [recording], viewer) {
  const { timeline } = viewer;
  subtitle([stepText(recording), recording.device, recording.run]);
  let step = -1;
  const over = stepSelect("Lay another step over it", recording, "no overlay", (other) => {
    if (other < 0 || step < 0) timeline.alone();
    else timeline.overlay(step, other);
  });
  over.disabled = true;
  const go = stepSelect("Go to a step", recording, "whole window", (chosen) => {
    step = chosen;
    over.disabled = step < 0;
    if (over.value !== "-1" && step >= 0) return timeline.overlay(step, Number(over.value));
    if (timeline.strips.length > 1) timeline.alone();
    return viewer.toStep(0, step);
  });
  const controls = recording.steps.number.length
    ? [element("div", { class: "group" }, element("span", { class: "quiet" }, "step"), go, element("span", { class: "quiet" }, "over it"), over)]
    : [];
  viewer.build(controls, [{ recording }]);
  fill(byId("side"), element("h2", {}, "Findings"), element("output", { id: "place", class: "quiet" }),
    findingsList(recording, (finding) => viewer.walk.choose(timeline, timeline.strips[0], finding)),
    doubts(recording));
  timeline.show([{ recording }]);
  const choose = (_side, chosen) => {
    go.value = String(chosen);
    go.dispatchEvent(new Event("change"));
  };
  return () => drawOverview("chart", [{ recording, label: "" }], page.kinds, choose);
}

function ofComparison(page, recordings, viewer) {
  const { timeline } = viewer;
  const sides = recordings.map((recording, n) => ({
    recording,
    label: SIDES[n],
    title: [recording.label, recording.run].filter(Boolean).join(" \u00B7 "),
  }));
  const aligned = new Aligned(timeline, sides);
  subtitle(recordings.map((recording, n) => `${SIDES[n]}: ${stepText(recording) || recording.label}`));
  viewer.build(aligned.controls(), sides);
  fill(
    byId("side"),
    element("h2", {}, "What changed"),
    element("ul", { class: "notes" }, ...page.comparison.summary.map((line) => element("li", {}, element("bdi", {}, inMicroseconds(line))))),
    element("output", { id: "place", class: "quiet" }),
    ...sides.map(({ recording, label }, n) =>
      element(
        "section",
        { "data-side": String(n) },
        element("h2", {}, `Findings of ${label}`),
        findingsList(recording, (finding) => viewer.walk.choose(timeline, timeline.strips[n], finding)),
        doubts(recording),
      ),
    ),
  );
  aligned.show();
  return () => drawOverview("chart", sides, page.kinds, (side, step) => viewer.toStep(side, step));
}

function ofAblation(page, recordings, viewer) {
  const { ablation, traces } = page;
  subtitle([`changes are of the ${ablation.compared}`]);
  ablationFacts(byId("side"), ablation);
  const open = (row) => {
    const shown = [...new Set([traces[0] ?? null, traces[row]])].filter((n) => n !== null);
    const sides = shown.map((n) => {
      const of = traces.indexOf(n);
      return { recording: recordings[n], label: ablation.rows[of].label, title: recordings[n].label };
    });
    const aligned = new Aligned(viewer.timeline, sides);
    viewer.build(aligned.controls(), sides);
    aligned.show();
  };
  const goTo = (row) => {
    open(row);
    byId("timeline").scrollIntoView({ block: "nearest" });
  };
  fill(byId("table"), ablationTable(ablation, traces, goTo));
  if (viewer) open(traces.findLastIndex((n) => n !== null));
  return () => drawWaterfall("chart", ablation);
}

function themeButton() {
  const made = byId("theme");
  const tell = () => {
    made.textContent = isDark() ? "Light" : "Dark";
  };
  made.addEventListener("click", toggleTheme);
  onTheme(tell);
  tell();
}

function helpDialog() {
  const dialog = byId("help");
  fill(
    dialog,
    element("h2", {}, "Keys"),
    element("dl", { class: "facts" }, ...KEYS.flatMap(([key, does]) => [element("dt", {}, key), element("dd", {}, does)])),
    button("Close", "Close", () => dialog.close()),
  );
  byId("keys").addEventListener("click", () => dialog.showModal());
}

main().catch((error) => {
  fill(byId("subtitle"), `This page cannot be shown: ${error.message}`);
  throw error;
});
