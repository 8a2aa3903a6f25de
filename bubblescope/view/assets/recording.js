// A recording as the page holds it: its tables, and the joins between them.

import { clean } from "./dom.js";
import { firstAtLeast, firstAbove } from "./search.js";

/** Rows by a key that may repeat: of(key) gives the rows that have it. */
class Index {
  constructor(keys, count) {
    this.first = new Int32Array(count + 1);
    for (let i = 0; i < keys.length; i++) if (keys[i] >= 0) this.first[keys[i] + 1]++;
    for (let key = 0; key < count; key++) this.first[key + 1] += this.first[key];
    this.rows = new Int32Array(this.first[count]);
    const next = this.first.slice();
    for (let i = 0; i < keys.length; i++) if (keys[i] >= 0) this.rows[next[keys[i]]++] = i;
  }

  of(key) {
    return this.rows.subarray(this.first[key], this.first[key + 1]);
  }
}

/** Compute once, when first asked for. */
function lazily(object, name, make) {
  Object.defineProperty(object, name, {
    configurable: true,
    get() {
      const value = make();
      Object.defineProperty(object, name, { value });
      return value;
    },
  });
}

const TABLES = {
  op: ["start", "length", "name", "kind", "stream", "row", "launch", "order", "graph", "node", "bytes", "grid", "block"],
  call: ["start", "length", "name", "thread", "row", "frame"],
  range: ["start", "length", "name", "kind", "thread", "row", "frame"],
  read: ["call", "start", "length", "op", "site", "waited", "exposed"],
  bubble: ["op", "earlier", "device"],
  piece: ["bubble", "left", "part", "doing", "call", "range"],
  charge: ["bubble", "read", "ns"],
  place: ["finding", "bubble", "rest"],
};

export class Recording {
  constructor({ head, column }) {
    Object.assign(this, head);
    // A canvas turns and hides text by its marks as HTML does.
    for (const table of ["op", "call", "range"]) this.names[table] = this.names[table].map(clean);
    [this.label, this.run] = [clean(this.label), clean(this.run)];
    // Columns are read when they are first needed: the first picture needs few of them.
    for (const [table, names] of Object.entries(TABLES)) {
      this[table] = {};
      for (const name of names) lazily(this[table], name, () => column(`${table}.${name}`));
    }
    const { op, call, read, bubble, piece, charge, place } = this;
    const bubbles = this.columns["bubble.op"].rows;
    lazily(bubble, "start", () => bubbleStarts(bubble, op, this.streams));
    lazily(bubble, "length", () => bubble.start.map((start, i) => op.start[bubble.op[i]] - start));
    lazily(piece, "start", () => pieceStarts(bubble, op, piece));
    lazily(piece, "length", () => pieceLengths(bubble, op, piece));
    lazily(place, "ns", () => place.bubble.map((row, i) => bubble.length[row] - place.rest[i]));
    lazily(this, "opsOfCall", () => new Index(op.launch, call.start.length));
    lazily(this, "chargesOf", () => new Index(charge.bubble, bubbles));
    lazily(this, "chargesOfRead", () => new Index(charge.read, read.call.length));
    lazily(this, "placesOf", () => new Index(place.bubble, bubbles));
    lazily(this, "placesOfFinding", () => new Index(place.finding, this.report.findings.length));
    this.longest = new Map();
    lazily(this, "bubblesInTime", () =>
      this.devices.length === 1
        ? bubble.start.map((_, i) => i)
        : Array.from(bubble.start.keys()).sort((a, b) => bubble.start[a] - bubble.start[b]),
    );
  }

  get start() {
    return Math.min(...this.devices.map((device) => device.start_ns));
  }

  get end() {
    return Math.max(...this.devices.map((device) => device.end_ns));
  }

  /** [first, stop) of a bubble's pieces. */
  piecesOf(bubble) {
    const first = firstAtLeast(this.piece.bubble, bubble);
    return [first, firstAbove(this.piece.bubble, bubble, first)];
  }

  /** The part that takes most of a bubble. */
  mostOf(bubble) {
    const sums = new Float64Array(this.parts.length);
    const [first, stop] = this.piecesOf(bubble);
    for (let n = first; n < stop; n++) sums[this.piece.part[n]] += this.piece.length[n];
    return this.parts[sums.indexOf(Math.max(...sums))];
  }

  /** The read that a call belongs to, -1 where it is none. */
  readOfCall(call) {
    const found = firstAtLeast(this.read.call, call);
    return this.read.call[found] === call ? found : -1;
  }

  /** The places of a finding, the longest first. */
  longestPlaces(finding) {
    if (!this.longest.has(finding)) {
      const { ns } = this.place;
      this.longest.set(finding, this.placesOfFinding.of(finding).slice().sort((a, b) => ns[b] - ns[a]));
    }
    return this.longest.get(finding);
  }

  /** The call that launched what ended a bubble, -1 where it is not known. */
  launchOf(bubble) {
    return this.op.launch[this.bubble.op[bubble]];
  }

  /** Place of the step at that time, in a device's steps or in all; -1 outside. */
  stepAt(time, steps = this.steps) {
    const found = firstAbove(steps.start_ns, time) - 1;
    return found >= 0 && time < steps.end_ns[found] ? found : -1;
  }

  /** Start and end of a row of a table. */
  times(table, row) {
    const start = this[table].start[row];
    return [start, start + this[table].length[row]];
  }

  /** What a row of a table is called. */
  nameOf(table, row) {
    return this.names[table][this[table].name[row]];
  }

  /** "file.py:12 function" of a row of `frames`, null where it is not recorded. */
  frameText(frame) {
    if (frame < 0) return null;
    const [file, line, name] = this.frames[frame];
    return `${file}${line > 0 ? `:${line}` : ""} ${name}`.trim();
  }
}

/** A bubble began where all operations before it on its device had ended, and `earlier` before. */
function bubbleStarts(bubble, op, streams) {
  const made = new Float64Array(bubble.op.length);
  const device = streams.map(({ rank, index }) => `${rank} ${index}`);
  let dry = 0;
  let last = null; // operations are ordered by device, then by time
  let next = 0;
  for (let row = 0; row < op.start.length && next < made.length; row++) {
    const on = device[op.stream[row]];
    if (on !== last) dry = op.start[row];
    last = on;
    if (bubble.op[next] === row) {
      made[next] = dry - bubble.earlier[next];
      next++;
    }
    dry = Math.max(dry, op.start[row] + op.length[row]);
  }
  return made;
}

/** A piece begins where the one before it ends, the first where its bubble does. */
function pieceStarts(bubble, op, piece) {
  const made = new Float64Array(piece.bubble.length);
  for (let i = 0; i < made.length; i++) {
    const of = piece.bubble[i];
    const first = i === 0 || of !== piece.bubble[i - 1];
    made[i] = first ? bubble.start[of] : op.start[bubble.op[of]] - piece.left[i - 1];
  }
  return made;
}

function pieceLengths(bubble, op, piece) {
  const { start } = piece;
  return start.map((from, i) => op.start[bubble.op[piece.bubble[i]]] - piece.left[i] - from);
}
