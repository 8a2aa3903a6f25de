// The colours, with what each kind of time takes: where a step goes, in figures.

import { element } from "./dom.js";
import { chip } from "./details.js";
import { rounded } from "./units.js";

/** A list of the kinds that occur, with their figures in each of `sides`: [{recording, label}]. */
export function legendOf(kinds, sides) {
  const recordings = sides.map(({ recording }) => recording);
  const figures = recordings.map(({ report }) => amounts(report));
  const shown = kinds.filter(({ label }) => label === "busy" || recordings.some(({ report }) => report.parts_ns[label] > 0));
  return element(
    "ul",
    { class: "legend", "aria-label": "Where the time goes, by colour" },
    element("li", { class: "quiet", title: "medians of the steps that count" }, lead(sides)),
    ...shown.map((kind) =>
      element(
        "li",
        { title: kind.meaning },
        chip(kind),
        `${kind.label} `,
        element("span", { class: "figure" }, figures.map((of) => rounded(of[kind.label])).join(" \u2192 ")),
      ),
    ),
  );
}

/** Of the median step, or of all that was recorded where there are no steps. */
function amounts({ steps, busy_ns: busy, parts_ns: parts }) {
  return steps.median_ns === null ? { busy, ...parts } : { busy: steps.busy_ns, ...steps.parts_ns };
}

function lead(sides) {
  const { report, devices } = sides[0].recording;
  const what = report.steps.median_ns === null ? "µs in all" : "µs a step";
  const named = sides.length > 1 ? `${sides.map(({ label }) => label).join(" \u2192 ")}, ` : "";
  return `${named}${what}${devices.length > 1 ? `, sum of ${devices.length} devices` : ""}:`;
}
