// The timeline: what is shown, from when to when, and what is selected.

import { element, fill } from "./dom.js";
import { colour, onTheme } from "./theme.js";
import { Scale } from "./scale.js";
import { GAP, Lane, lanesOf } from "./lanes.js";
import { AXIS, drawTimeline, Palette, TITLE } from "./draw.js";
import { arrowsOf, drawArrows } from "./arrows.js";
import { drawRuler } from "./ruler.js";
import { intervalRows } from "./intervals.js";
import { tracksOf } from "./tracks.js";

const CLOSEST = 20; // ns that the picture shows at least
const MOST_STRETCH = 1.8; // of lanes where there is room
const LEAST_STRETCH = 0.75; // where all lanes fit with a little less
const PLACE_SHARE = 0.25; // of the picture that what one goes to takes at least

export class Timeline {
  /** `host` gets a column of labels and a canvas; `kinds` are the page's kinds of time. */
  constructor(host, kinds) {
    this.kinds = kinds;
    this.labels = element("div", { class: "labels" });
    this.canvas = element("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": "Timeline. w and s zoom, a and d move, n and p go to the next and previous bubble; the details are read out.",
    });
    this.area = element("div", { class: "area" }, this.canvas);
    fill(host, this.labels, this.area);
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.strips = [];
    this.selected = null;
    this.arrows = [];
    this.ruler = null;
    this.scrollY = 0;
    this.width = this.height = this.total = 0;
    this.density = 1;
    this.scale = new Scale(0, 1, 1);
    this.listeners = { select: [], view: [] };
    this.scheduled = false;
    new ResizeObserver(() => this.resize()).observe(this.area);
    onTheme(() => {
      this.palette = null;
      this.redraw();
    });
  }

  /** Show recordings one under the other: [{recording, offset, name, title}]. */
  show(strips, keepView = false) {
    this.strips = strips.map((strip) => ({
      offset: 0,
      name: null,
      title: null,
      clip: null,
      ...strip,
      lanes: this.lanesFor(strip.recording),
    }));
    this.selected = null;
    this.arrows = [];
    this.layout();
    if (!keepView) this.fit();
    this.redraw();
    setTimeout(() => this.addTracks(), 0); // the first picture does without them
  }

  /** A recording's lanes are made once: it may be shown, taken off and shown again. */
  lanesFor(recording) {
    recording.lanes ??= lanesOf(recording);
    return recording.lanes;
  }

  addTracks() {
    for (const { recording } of this.strips) {
      recording.tracks ??= new Map(recording.devices.map((_, n) => [n, tracksOf(recording, n)]));
    }
    for (const strip of this.strips) strip.tracks = strip.recording.tracks;
    this.redraw();
  }

  /** The main strip's own lanes with those of another of its steps, moved to begin with it. */
  overlay(step, over) {
    const main = this.strips[0];
    const { start_ns: starts, end_ns: ends } = main.recording.steps;
    const lanes = main.lanes
      .filter((lane) => ["rank", "bubbles", "stream"].includes(lane.kind))
      .map((lane) => new Lane(lane.kind, lane.label, lane.table, lane.rows, lane.rowHeight, { ...lane }));
    const { number } = main.recording.steps;
    this.strips = [
      main,
      {
        recording: main.recording,
        lanes,
        offset: starts[over] - starts[step] + main.offset,
        clip: [starts[over], ends[over]],
        name: `step ${number[over]}`,
        title: `step ${number[over]}, moved to begin with step ${number[step]}`,
        tracks: main.tracks,
      },
    ];
    this.forget();
    this.layout();
    this.zoomTo(starts[step] - main.offset, Math.max(ends[step], starts[step] + ends[over] - starts[over]) - main.offset);
  }

  /** Take an overlay off again. */
  alone() {
    this.strips = this.strips.slice(0, 1);
    this.forget();
    this.layout();
    this.redraw();
  }

  /** Nothing stays selected that is no longer shown. */
  forget() {
    if (this.selected && !this.strips.includes(this.selected.strip)) this.select(null, null, -1);
  }

  /** Where each lane lies, from the top of all lanes. */
  layout() {
    this.lay(0);
    const fixed = this.total; // between lanes, and lanes that are folded
    this.lay(1);
    const stretch = (this.height - fixed) / (this.total - fixed);
    if (stretch >= LEAST_STRETCH) this.lay(Math.min(MOST_STRETCH, stretch));
    this.drawLabels();
  }

  lay(stretch) {
    for (const { lanes } of this.strips) for (const lane of lanes) lane.stretch = stretch;
    let y = AXIS + GAP;
    for (const strip of this.strips) {
      strip.top = y - GAP;
      if (strip.name) y += TITLE;
      strip.places = strip.lanes.map((lane) => {
        const place = { lane, y };
        y += lane.height + GAP;
        return place;
      });
      strip.height = y - strip.top;
      y += GAP;
    }
    this.total = y;
  }

  drawLabels() {
    const inside = element("div", { class: "labels-inside" });
    for (const strip of this.strips) {
      if (strip.name) {
        const title = element("div", { class: "strip-title", title: strip.title }, strip.name);
        title.style.top = `${strip.top + 2}px`;
        inside.append(title);
      }
      for (const { lane, y } of strip.places) inside.append(this.label(lane, y));
    }
    fill(this.labels, inside);
    this.labelsInside = inside;
    this.scrollTo(this.scrollY);
  }

  label(lane, y) {
    const folds = lane.table !== null && lane.kind !== "bubbles";
    const made = element(
      folds ? "button" : "div",
      {
        class: lane.kind === "rank" ? "lane-label rank" : "lane-label",
        title: lane.title,
        type: folds ? "button" : null,
        "aria-expanded": folds ? String(lane.whole) : null,
        onclick: folds ? () => this.toggle(lane) : () => {},
      },
      folds ? element("span", { class: "fold", "aria-hidden": "true" }, lane.whole ? "\u25BE" : "\u25B8") : null,
      element("span", { class: "text" }, lane.label),
    );
    made.style.top = `${y - (lane.collapsed ? 4 : 0)}px`;
    made.style.height = `${Math.max(16, Math.min(lane.height, lane.shownRow))}px`;
    return made;
  }

  toggle(lane) {
    lane.toggle();
    this.layout();
    this.redraw();
  }

  resize() {
    this.density = window.devicePixelRatio || 1;
    this.width = this.area.clientWidth;
    this.height = this.area.clientHeight;
    this.canvas.width = Math.round(this.width * this.density);
    this.canvas.height = Math.round(this.height * this.density);
    this.scale = new Scale(this.scale.from, this.scale.to, Math.max(1, this.width), this.density);
    this.layout();
    this.draw();
  }

  scrollTo(y) {
    this.scrollY = Math.max(0, Math.min(y, Math.max(0, this.total - this.height)));
    if (this.labelsInside) this.labelsInside.style.transform = `translateY(${-this.scrollY}px)`;
    this.redraw();
  }

  /** Show from `from` to `to`, page time, as far as the recordings go. */
  view(from, to) {
    const [first, last] = this.extent();
    const room = (last - first) * 0.1;
    const length = Math.max(CLOSEST, Math.min(to - from, last - first + 2 * room));
    const centre = (from + to) / 2;
    const start = Math.max(first - room, Math.min(centre - length / 2, last + room - length));
    this.scale = new Scale(start, start + length, Math.max(1, this.width), this.density);
    this.redraw();
    for (const listener of this.listeners.view) listener(this.scale);
  }

  /** First and last time of what is shown. */
  extent() {
    const whole = this.strips.filter((strip) => !strip.clip);
    const starts = whole.map(({ recording, offset }) => recording.start - offset);
    const ends = whole.map(({ recording, offset }) => recording.end - offset);
    return [Math.min(...starts), Math.max(...ends)];
  }

  fit() {
    const [first, last] = this.extent();
    const edge = (last - first) * 0.01;
    this.view(first - edge, last + edge);
  }

  /** Show a stretch with a little around it. */
  zoomTo(from, to) {
    const edge = Math.max(CLOSEST, to - from) * 0.04;
    this.view(from - edge, to + edge);
  }

  /** Zoom by a factor around a pixel; above 1 is closer. */
  zoom(factor, x = this.width / 2) {
    const at = this.scale.time(x);
    const length = (this.scale.to - this.scale.from) / factor;
    this.view(at - (x / this.width) * length, at + (1 - x / this.width) * length);
  }

  pan(pixels) {
    const by = pixels * this.scale.perPixel;
    this.view(this.scale.from + by, this.scale.to + by);
  }

  /** Select a row of a table of a strip; with `go`, show it too. */
  select(strip, table, row, go = false) {
    this.selected = table === null ? null : { strip, table, row };
    this.arrows = this.selected ? arrowsOf(strip.recording, this.selected) : [];
    if (go && this.selected) this.reveal();
    this.redraw();
    for (const listener of this.listeners.select) listener(this.selected);
  }

  /** Bring what is selected into the picture, large enough to be seen for what it is. */
  reveal() {
    const { strip, table, row } = this.selected;
    const [start, end] = strip.recording.times(table, row).map((time) => time - strip.offset);
    const length = this.scale.to - this.scale.from;
    const most = Math.max((end - start) / PLACE_SHARE, CLOSEST);
    if (length > 4 * most || length < end - start) {
      this.view((start + end - most) / 2, (start + end + most) / 2);
    } else if (start < this.scale.from || end > this.scale.to) {
      this.view((start + end - length) / 2, (start + end + length) / 2);
    }
    const lane = this.lane(strip, table, row)?.lane;
    if (lane && strip.recording[table].row?.[row] >= lane.shownRows.length) this.toggle(lane);
    const place = this.place(strip, table, row);
    if (place && (place.y < AXIS || place.y + place.height > this.height)) {
      this.scrollTo(this.scrollY + place.y - this.height / 2);
    }
  }

  /** The lane that a row of a table is in and where it lies: {lane, y}; undefined where it is in none. */
  lane(strip, table, row) {
    const { op, call, range, bubble, names } = strip.recording;
    return strip.places.find(({ lane }) => {
      if (lane.table !== table) return false;
      if (table === "op") return lane.stream === op.stream[row];
      if (table === "bubble") return lane.device === bubble.device[row];
      if (table === "call") return lane.thread === call.thread[row];
      const python = names.range_kind[range.kind[row]] === "python";
      return lane.thread === range.thread[row] && (lane.kind === "python") === python;
    });
  }

  /** Where a row of a table is on the canvas: {y, height}; null where it is in no lane. */
  place(strip, table, row) {
    const at = this.lane(strip, table, row);
    if (!at) return null;
    const { lane, y } = at;
    const line = table === "bubble" ? 0 : Math.min(strip.recording[table].row[row], lane.shownRows.length - 1);
    return { y: y - this.scrollY + line * lane.shownRow, height: lane.shownRow };
  }

  /** What is at a pixel: {strip, table, row, time}, table null over no interval; null over no lane. */
  at(x, y) {
    for (const strip of this.strips) {
      for (const { lane, y: top } of strip.places) {
        const line = y + this.scrollY - top;
        if (line < 0 || line >= lane.height) continue;
        const time = this.scale.time(x) + strip.offset;
        const row = lane.table && lane.shownRows[Math.floor(line / lane.shownRow)];
        const found = row ? row.at(time, 2 * this.scale.perPixel) : -1;
        return { strip, lane, time, table: found < 0 ? null : lane.table, row: found < 0 ? -1 : row.ids[found] };
      }
    }
    return null;
  }

  /** Mark what a search found: `found(table)` gives the names that match, by their code. */
  mark(found) {
    for (const { recording, lanes } of this.strips) {
      for (const lane of lanes) {
        const names = found && lane.table && lane.table !== "bubble" ? found(recording, lane.table) : null;
        lane.matches = names && lane.rows.map((row) => chosen(row, recording[lane.table].name, names));
      }
    }
    this.redraw();
  }

  /** Draw with the next frame; many calls draw once. */
  redraw() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.scheduled = false;
    if (!this.width || !this.strips.length) return;
    this.palette ??= new Palette(this.kinds);
    drawTimeline(this.context, this);
    this.drawSelection();
    if (this.ruler) drawRuler(this.context, this);
  }

  drawSelection() {
    if (!this.selected) return;
    const { strip, table, row } = this.selected;
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, this.width, this.height - AXIS);
    context.clip();
    const scale = this.scale.moved(strip.offset);
    const place = this.place(strip, table, row);
    if (place) {
      const [from, to] = strip.recording.times(table, row).map((time) => scale.x(time));
      context.strokeStyle = colour("--ink");
      context.lineWidth = 2;
      context.strokeRect(from - 1, place.y - 1, Math.max(3, to - from + 1), place.height + 1);
    }
    drawArrows(context, this.arrows, scale, (t, r) => this.place(strip, t, r), this.palette);
    context.restore();
  }
}

/** The intervals of a row whose name is one of those asked for; null where none is. */
function chosen(row, codes, names) {
  const keys = Int32Array.from(row.ids, (id) => (names.has(codes[id]) ? 0 : -1));
  const lengths = row.ends.map((end, i) => end - row.starts[i]);
  const [made] = intervalRows(keys, 1, row.starts, lengths);
  for (let i = 0, n = 0; i < keys.length; i++) if (keys[i] === 0) made.ids[n++] = row.ids[i];
  return made.length ? made : null;
}
