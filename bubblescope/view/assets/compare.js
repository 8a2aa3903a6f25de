// Two recordings one under the other, a step of each beginning at the same place.

import { button, element } from "./dom.js";
import { stepSelect } from "./toolbar.js";

const OUTER = 2; // rows of nested ranges that say which stage it is
const LOW = 18; // pixels of a track

export class Aligned {
  /** `sides`: [{recording, title}], the first on top. */
  constructor(timeline, sides) {
    this.timeline = timeline;
    this.sides = sides;
    this.steps = firstSteps(sides.map((side) => side.recording));
    this.selects = sides.map(({ recording, label }, n) => {
      const made = stepSelect(`Step of ${label} to align`, recording, "window", (step) => {
        this.steps[n] = step;
        this.show();
      });
      made.value = String(this.steps[n]);
      return made;
    });
  }

  /** Show both; the picture is of the aligned steps. */
  show() {
    for (const { recording } of this.sides) shorten(this.timeline.lanesFor(recording));
    const shown = this.sides.map(({ recording, label, title }, n) => {
      const step = this.steps[n];
      const from = step < 0 ? recording.start : recording.steps.start_ns[step];
      return { recording, name: label, title, offset: from };
    });
    this.timeline.show(shown, true);
    this.selects.forEach((made, n) => (made.value = String(this.steps[n])));
    const lengths = this.sides.map(({ recording }, n) => {
      const step = this.steps[n];
      const { start_ns: starts, end_ns: ends } = recording.steps;
      return step < 0 ? recording.end - recording.start : ends[step] - starts[step];
    });
    this.timeline.zoomTo(0, Math.max(...lengths));
  }

  /** Both go to their next step, or the one before. */
  move(by) {
    const next = this.steps.map((step) => step + by);
    if (next.some((step, n) => step < 0 || step >= this.sides[n].recording.steps.number.length)) return;
    this.steps = next;
    this.show();
  }

  controls() {
    return [
      element(
        "div",
        { class: "group" },
        element("span", { class: "quiet" }, "aligned at step"),
        ...this.selects.flatMap((made, n) => [element("span", {}, this.sides[n].label), made]),
        button("\u2039", "Both to the step before", () => this.move(-1)),
        button("\u203A", "Both to the next step", () => this.move(1)),
      ),
    ];
  }
}

/** Two recordings are to be seen at once: of nested ranges, at first only the outer ones; low tracks. */
function shorten(lanes) {
  if (lanes.shortened) return;
  lanes.shortened = true;
  for (const lane of lanes) {
    if (lane.kind === "ranges" || lane.kind === "stream") lane.most = OUTER;
    else if (lane.kind === "queued" || lane.kind === "ahead") lane.rowHeight = LOW;
  }
}

/** A step of each to begin with: the first counted of one number, else the first counted of each. */
function firstSteps(recordings) {
  const [a, ...others] = recordings.map((recording) => recording.steps);
  const number = a.number.find(
    (value, n) => a.counted[n] && others.every((steps) => steps.counted[steps.number.indexOf(value)]),
  );
  return [a, ...others].map((steps) => (number === undefined ? steps.counted.indexOf(true) : steps.number.indexOf(number)));
}
