// The list of findings; each leads to the bubbles that it is about, the longest first.

import { element } from "./dom.js";
import { rounded } from "./units.js";

/** The list of a recording's findings; `choose(finding)` goes to the first place of one. */
export function findingsList(recording, choose) {
  const { findings } = recording.report;
  if (!findings.length) return element("p", { class: "quiet" }, "Nothing to act on was found.");
  let number = 0;
  return element(
    "ol",
    { class: "findings" },
    ...findings.map((finding, n) => {
      if (finding.ranked) number += 1;
      const places = recording.placesOfFinding.of(n).length;
      return element(
        "li",
        {},
        element(
          "button",
          { type: "button", class: "finding", "data-finding": String(n), onclick: () => choose(n), disabled: places === 0 },
          element("span", { class: "mark" }, finding.ranked ? String(number) : "\u00B7"),
          element("span", { class: "what" }, element("bdi", { title: finding.title }, short(finding)), said(finding)),
          element("span", { class: "figure" }, price(finding)),
        ),
      );
    }),
  );
}

/** The title with no more of a path than tells. */
function short({ title, site }) {
  return site ? title.replace(site.file, site.file.split(/[\\/]/).slice(-2).join("/")) : title;
}

function price(finding) {
  const ns = finding.exposed_idle_ns_per_step;
  return ns === null ? `${rounded(finding.exposed_idle_ns)} µs` : `${rounded(ns)} µs a step`;
}

/** What it is worth and what addresses it, in small print. */
function said(finding) {
  const parts = [];
  const saving = finding.predicted_saving_ns_per_step;
  if (saving !== null) parts.push(saving > 0 ? `step ${rounded(saving)} µs shorter without it` : "step no shorter without it");
  if (!finding.ranked) parts.push("seen at node level only");
  if (finding.passes.length) parts.push(`pass: ${finding.passes.join(", ")}`);
  return parts.length ? element("small", {}, parts.join("; ")) : null;
}

/** Goes through the places of the finding that was chosen last. */
export class PlaceWalk {
  constructor(said) {
    this.said = said; // called with {finding, at, of}
    this.strip = null;
    this.finding = -1;
    this.at = 0;
  }

  choose(timeline, strip, finding) {
    const same = this.strip?.recording === strip.recording && this.finding === finding;
    this.strip = strip;
    this.finding = finding;
    this.at = same ? this.at + 1 : 0;
    this.show(timeline);
  }

  step(timeline, by) {
    if (this.strip === null) return;
    this.at += by;
    this.show(timeline);
  }

  show(timeline) {
    const { recording } = this.strip;
    const rows = recording.longestPlaces(this.finding);
    if (!rows.length) return;
    this.at = (this.at + rows.length) % rows.length;
    timeline.select(this.strip, "bubble", recording.place.bubble[rows[this.at]], true);
    this.said({ finding: this.finding, at: this.at + 1, of: rows.length });
  }
}
