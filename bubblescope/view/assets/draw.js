// One picture of the timeline: axis, steps, lanes, selection.

import { colour } from "./theme.js";
import { fitted, paintBubbles, paintRow, paintTrack } from "./paint.js";
import { count, span } from "./units.js";

export const AXIS = 38;
export const TITLE = 20; // of a strip, where there are several
const FONT = "11px system-ui, sans-serif";

/** Black or white, whichever reads better on a colour "#RRGGBB". */
export function inkOn(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151c" : "#ffffff";
}

/** `share` of one colour over another, both "#RRGGBB". */
export function mixed(over, under, share) {
  const part = (at) => {
    const [a, b] = [over, under].map((hex) => parseInt(hex.slice(at, at + 2), 16));
    return Math.round(a * share + b * (1 - share)).toString(16).padStart(2, "0");
  };
  return `#${part(1)}${part(3)}${part(5)}`;
}

/** Colours of everything, made anew when the theme changes. */
export class Palette {
  constructor(kinds) {
    this.kinds = kinds;
    this.byLabel = new Map(kinds.map((kind) => [kind.label, kind.colour]));
    this.parts = kinds.slice(1).map((kind) => kind.colour);
    const paper = colour("--paper");
    const busy = this.byLabel.get("busy");
    this.busy = busy;
    this.tints = [0.95, 0.78, 0.86, 0.7].map((share) => mixed(busy, paper, share));
    const call = colour("--call");
    this.calls = {
      launch: this.byLabel.get("launch call"),
      copy: this.byLabel.get("launch call"),
      wait: mixed(this.byLabel.get("read tail"), paper, 0.55),
      allocator: call,
      other: call,
    };
    this.read = this.byLabel.get("read tail");
    this.ranges = { annotation: colour("--range-1"), op: colour("--range-2"), python: colour("--range-3") };
    this.overhead = call;
  }
}

/** How the intervals of a lane look. */
export function styleOf(lane, recording, palette) {
  if (lane.table === "op") {
    const { name } = recording.op;
    const fill = (id) => palette.tints[name[id] & 3];
    const label = (id) => recording.nameOf("op", id);
    return { fill, many: palette.busy, label, ink: (id) => inkOn(fill(id)) };
  }
  if (lane.table === "call") {
    const fill = (id) => {
      const kind = recording.call_kinds[recording.call.name[id]];
      const read = kind === "wait" || kind === "copy" ? recording.readOfCall(id) : -1;
      return read >= 0 && recording.read.waited[read] ? palette.read : palette.calls[kind];
    };
    const label = (id) => recording.nameOf("call", id);
    return { fill, many: palette.calls.launch, label, ink: (id) => inkOn(fill(id)) };
  }
  const kinds = recording.names.range_kind;
  const fill = (id) => palette.ranges[kinds[recording.range.kind[id]]] ?? palette.overhead;
  const many = palette.ranges[lane.kind === "python" ? "python" : "op"];
  return { fill, many, label: (id) => recording.nameOf("range", id), ink: () => colour("--ink") };
}

/** Draw all of `timeline` on its canvas. */
export function drawTimeline(context, timeline) {
  const { scale, width, height, palette, strips } = timeline;
  context.setTransform(timeline.density, 0, 0, timeline.density, 0, 0);
  context.fillStyle = colour("--paper");
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  context.direction = "ltr"; // names may say otherwise
  context.save();
  context.beginPath();
  context.rect(0, AXIS, width, height - AXIS);
  context.clip();
  for (const strip of strips) drawStrip(context, strip, scale.moved(strip.offset), timeline, palette);
  context.restore();
  drawAxis(context, timeline);
}

function drawStrip(context, strip, scale, timeline, palette) {
  const { recording } = strip;
  const top = strip.top - timeline.scrollY;
  drawWindow(context, strip, scale, top);
  if (strip.name) drawTitle(context, strip, scale, top);
  for (const place of strip.places) {
    const y = place.y - timeline.scrollY;
    if (y + place.lane.height < AXIS || y > timeline.height) continue;
    drawLane(context, place.lane, recording, strip, scale, y, palette);
  }
}

function drawTitle(context, strip, scale, top) {
  context.fillStyle = colour("--panel");
  context.fillRect(0, top, scale.width, TITLE);
  context.fillStyle = colour("--faint");
  context.fillText(fitted(context, strip.title, scale.width - 12), 6, top + TITLE / 2);
}

/** What lies outside the analysed window is grey; steps are told apart by thin lines. */
function drawWindow(context, strip, scale, top) {
  const { recording, height } = strip;
  const [from, to] = strip.clip ?? [recording.start, recording.end];
  context.fillStyle = colour("--outside");
  const left = Math.max(0, Math.min(scale.width, scale.x(from)));
  const right = Math.max(0, Math.min(scale.width, scale.x(to)));
  if (left > 0) context.fillRect(0, top, left, height);
  if (right < scale.width) context.fillRect(right, top, scale.width - right, height);
  context.fillStyle = colour("--line");
  for (const start of recording.steps.start_ns) {
    const x = Math.round(scale.x(start));
    if (x >= 0 && x <= scale.width) context.fillRect(x, top, 1, height);
  }
}

function drawLane(context, lane, recording, strip, scale, y, palette) {
  context.save();
  if (strip.clip) {
    const [from, to] = strip.clip.map((time) => scale.x(time));
    context.beginPath();
    context.rect(from, y - 1, Math.max(0, to - from), lane.height + 2);
    context.clip();
  }
  if (lane.kind === "bubbles") {
    context.fillStyle = colour("--lane");
    context.fillRect(0, y, scale.width, lane.height);
    paintBubbles(context, lane, recording, scale, y, lane.height, palette.parts);
  } else if (lane.table) {
    const style = styleOf(lane, recording, palette);
    const dim = lane.matches !== null;
    const height = lane.shownRow - (lane.collapsed ? 0 : 1);
    lane.shownRows.forEach((row, n) => {
      const at = y + n * lane.shownRow;
      paintRow(context, row, scale, at, height, lane.collapsed ? { ...style, label: null } : style);
      if (lane.reads) paintReads(context, lane.reads[n], scale, at, height, palette);
    });
    if (dim) drawMatches(context, lane, scale, y, height, style);
  } else if (lane.kind !== "rank") {
    drawTrack(context, lane, strip, scale, y, palette);
  }
  context.restore();
}

/** Matches of a search over a veil that dims the rest. */
function drawMatches(context, lane, scale, y, height, style) {
  context.globalAlpha = 0.72;
  context.fillStyle = colour("--paper");
  context.fillRect(0, y, scale.width, lane.height);
  context.globalAlpha = 1;
  const found = { ...style, many: colour("--accent") };
  lane.matches.forEach((row, n) => {
    if (row && n < lane.shownRows.length) {
      paintRow(context, row, scale, y + n * lane.shownRow, height, found);
    }
  });
}

/** Blocking reads that waited are never lost among the calls around them. */
function paintReads(context, row, scale, y, height, palette) {
  context.fillStyle = palette.read;
  let i = row.after(scale.from);
  while (i < row.length && row.starts[i] < scale.to) {
    const x = scale.x(row.starts[i]);
    if (scale.x(row.ends[i]) - x >= 2) i++; // drawn with the other calls
    else {
      context.fillRect(Math.floor(x), y, 1.5, height);
      i = row.from(scale.time(Math.floor(x) + 1), i + 1);
    }
  }
}

function drawTrack(context, lane, strip, scale, y, palette) {
  const tracks = strip.tracks?.get(lane.device);
  context.fillStyle = colour("--lane");
  context.fillRect(0, y, scale.width, lane.height);
  if (!tracks) return;
  const solid = colour("--track");
  const faint = colour("--track-faint");
  const { queued, ahead } = tracks;
  const said = lane.kind === "queued" ? `most ${queued.top}` : `most ${span(ahead.top)}`;
  if (lane.kind === "queued") {
    paintTrack(context, scale, y + 2, lane.height - 2, queued.top, (a, b) => queued.between(a, b), solid, faint);
  } else {
    paintTrack(context, scale, y + 2, lane.height - 2, ahead.top, (a, b) => [0, ahead.between(a, b)], solid, faint);
  }
  const room = context.measureText(said).width + 12;
  context.globalAlpha = 0.8; // it is read over the track's own grey
  context.fillStyle = colour("--lane");
  context.fillRect(scale.width - room, y + 1, room, 15);
  context.globalAlpha = 1;
  context.fillStyle = colour("--ink");
  context.fillText(said, scale.width - room + 6, y + 9);
}

/** Times from the beginning of the window, and which step it is. */
function drawAxis(context, timeline) {
  const { scale, width, strips } = timeline;
  context.fillStyle = colour("--panel");
  context.fillRect(0, 0, width, AXIS);
  context.fillStyle = colour("--line");
  context.fillRect(0, AXIS - 1, width, 1);
  const inMs = scale.to - scale.from > 2e7;
  for (const time of scale.ticks(110)) {
    const x = Math.round(scale.x(time));
    context.fillStyle = colour("--line");
    context.fillRect(x, AXIS - 7, 1, 6);
    context.fillStyle = colour("--faint");
    const text = inMs ? `${count(time / 1e6)} ms` : `${count(time / 1e3)} µs`;
    if (x + 80 < width) context.fillText(text, x + 4, AXIS - 11);
  }
  const { recording, offset } = strips[0];
  const moved = scale.moved(offset);
  const { number, start_ns: starts, end_ns: ends } = recording.steps;
  context.font = `600 ${FONT}`;
  let free = 0; // numbers do not run into each other, however narrow their steps are
  for (let n = 0; n < starts.length; n++) {
    const from = Math.max(0, moved.x(starts[n]));
    if (moved.x(ends[n]) < 0) continue;
    if (from > width) break;
    if (from < free) continue;
    const next = Math.min(width, moved.x(n + 1 < starts.length ? starts[n + 1] : ends[n]));
    const long = `step ${number[n]}`;
    const text = context.measureText(long).width <= next - from - 8 ? long : String(number[n]);
    const room = context.measureText(text).width;
    if (from + room + 5 > width) break;
    if (moved.x(starts[n]) < 0 && room > next - from - 8) continue; // the next one is whole
    context.fillStyle = colour("--line");
    context.fillRect(Math.round(moved.x(starts[n])), 2, 1, 16);
    context.fillStyle = colour("--ink");
    context.fillText(text, from + 5, 11);
    free = from + room + 8;
  }
  context.font = FONT;
}
