// The lanes of a recording, from top to bottom: host threads, then each device.

import { intervalRows, Intervals } from "./intervals.js";
import { count } from "./units.js";

export const GAP = 5;
const COLLAPSED = 8;
const MINOR = 0.1; // of a device's operations: streams with less begin folded

/** A lane. table: which of the recording's tables its rows hold, null for a track. */
export class Lane {
  constructor(kind, label, table, rows, rowHeight, more = {}) {
    Object.assign(this, { kind, label, table, rows, rowHeight, collapsed: false, device: -1 }, more);
    this.matches = null;
    this.most = Infinity; // rows shown at first, where room is short
    this.stretch = 1; // lanes are taller where there is room
  }

  get height() {
    return this.collapsed ? COLLAPSED : this.shownRow * Math.max(1, this.shownRows.length);
  }

  /** Height of one row as drawn: a collapsed lane shows its outermost row only. */
  get shownRow() {
    return this.collapsed ? COLLAPSED : Math.floor(this.rowHeight * this.stretch);
  }

  get shownRows() {
    return this.collapsed ? this.rows.slice(0, 1) : this.rows.slice(0, this.most);
  }

  /** Whether all rows are shown. */
  get whole() {
    return !this.collapsed && this.rows.length <= this.most;
  }

  /** Show all rows, or fold where they are shown. */
  toggle() {
    this.collapsed = this.whole;
    this.most = Infinity;
  }
}

/** All lanes of a recording. */
export function lanesOf(recording) {
  const made = [];
  const ranks = [...new Set([...recording.threads, ...recording.devices].map((x) => x.rank))];
  ranks.sort((a, b) => a - b);
  const several = ranks.length > 1;
  const threads = threadRows(recording);
  for (const rank of ranks) {
    if (several) made.push(new Lane("rank", `rank ${rank}`, null, [], 16, { title: `rank ${rank}` }));
    const numbers = recording.threads.map((_, n) => n).filter((n) => recording.threads[n].rank === rank);
    numbers.sort((a, b) => recording.threads[b].launches - recording.threads[a].launches);
    for (const n of numbers) made.push(...threadLanes(recording, n, threads));
    recording.devices.forEach((device, n) => {
      if (device.rank === rank) made.push(...deviceLanes(recording, n));
    });
  }
  return made;
}

/** Which rows of which table are drawn in which row of which lane. */
function threadRows(recording) {
  const { range, call, threads, names } = recording;
  const isPython = names.range_kind.map((kind) => kind === "python");
  const { thread, kind } = range;
  const lane = new Int32Array(thread.length);
  for (let i = 0; i < lane.length; i++) lane[i] = 2 * thread[i] + (isPython[kind[i]] ? 1 : 0);
  return {
    ranges: tableRows(lane, range, 2 * threads.length),
    calls: tableRows(call.thread, call, threads.length),
  };
}

/** Of each lane its rows of intervals. */
function tableRows(lane, table, lanes) {
  const depth = new Int32Array(lanes);
  const { row } = table;
  for (let i = 0; i < lane.length; i++) if (depth[lane[i]] <= row[i]) depth[lane[i]] = row[i] + 1;
  const first = new Int32Array(lanes + 1);
  for (let n = 0; n < lanes; n++) first[n + 1] = first[n] + depth[n];
  const keys = new Int32Array(lane.length);
  for (let i = 0; i < lane.length; i++) keys[i] = first[lane[i]] + row[i];
  const rows = intervalRows(keys, first[lanes], table.start, table.length);
  return Array.from(depth, (_, n) => rows.slice(first[n], first[n + 1]));
}

function threadLanes(recording, number, { ranges, calls }) {
  const who = threadName(recording.threads[number]);
  const title = threadTitle(recording.threads[number]);
  const made = [];
  const add = (kind, label, table, rows, height, collapsed) => {
    if (rows.length) made.push(new Lane(kind, label, table, rows, height, { thread: number, collapsed, title }));
  };
  const quiet = recording.threads[number].launches === 0;
  add("python", `Python ${who}`, "range", ranges[2 * number + 1], 13, true);
  add("ranges", `ranges ${who}`, "range", ranges[2 * number], 14, quiet || ranges[2 * number].length > 8);
  add("calls", `calls ${who}`, "call", calls[number], 17, quiet);
  const last = made.at(-1);
  if (last?.kind === "calls") last.reads = readRows(recording, number, last.rows.length);
  return made;
}

/** What a thread is called where there is little room: torch.profiler's "thread 7 (python)" is "python 7". */
function threadName({ thread, name }) {
  if (thread < 0) return "profiler";
  const [, inside] = /^thread \d+ \((.+)\)$/.exec(name) ?? [];
  return inside ? `${inside} ${thread}` : name || `thread ${thread}`;
}

/** A thread in full. */
export function threadTitle({ thread, process, name }) {
  if (thread < 0) return "the profiler itself";
  const number = `thread ${thread} of process ${process}`;
  return !name || name === `thread ${thread}` ? number : `${name.replace(`thread ${thread} `, "").replace(/^\((.+)\)$/, "$1")}, ${number}`;
}

/** The reads that waited of a thread, by the row that their call is drawn in. */
function readRows(recording, number, rows) {
  const { read, call } = recording;
  const keys = Int32Array.from(read.call, (row, n) =>
    read.waited[n] && call.thread[row] === number ? call.row[row] : -1,
  );
  const start = Float64Array.from(read.call, (row) => call.start[row]);
  const length = Float64Array.from(read.call, (row) => call.length[row]);
  return intervalRows(keys, rows, start, length);
}

function deviceLanes(recording, number) {
  const { index, name } = recording.devices[number];
  const who = `device ${index}`;
  const title = `${who}${name ? `, ${name}` : ""}`;
  const bubbles = bubbleRows(recording, number);
  const more = { device: number, title };
  const made = [new Lane("bubbles", `bubbles ${who}`, "bubble", [bubbles.bubbles], 38, { ...more, pieces: bubbles.pieces })];
  const { op, streams } = recording;
  const rows = tableRows(op.stream, op, streams.length);
  const mine = streams.map((_, n) => n).filter((n) => streams[n].device === number);
  mine.sort((a, b) => streams[b].operations - streams[a].operations);
  const all = mine.reduce((sum, n) => sum + streams[n].operations, 0);
  for (const n of mine) {
    const collapsed = mine.length > 2 && streams[n].operations < all * MINOR;
    const label = `stream ${streams[n].stream}`;
    const said = `${title}, ${count(streams[n].operations)} operations`;
    made.push(new Lane("stream", label, "op", rows[n], 17, { ...more, stream: n, title: said, collapsed }));
  }
  made.push(new Lane("queued", "operations queued", null, [], 26, { ...more, title: `${who}: launched and not yet done` }));
  made.push(new Lane("ahead", "queued time", null, [], 26, { ...more, title: `${who}: how long it goes on with what is launched` }));
  return made;
}

/** A device's bubbles and their pieces as rows of intervals. */
function bubbleRows(recording, number) {
  const { bubble, piece } = recording;
  const keys = new Int32Array(bubble.device.length);
  for (let i = 0; i < keys.length; i++) keys[i] = bubble.device[i] === number ? 0 : -1;
  const [bubbles] = intervalRows(keys, 1, bubble.start, bubble.length);
  const of = piece.bubble;
  const pieceKeys = new Int32Array(of.length);
  for (let i = 0; i < of.length; i++) pieceKeys[i] = keys[of[i]];
  const [pieces] = intervalRows(pieceKeys, 1, piece.start, piece.length);
  return { bubbles: bubbles ?? new Intervals([], [], []), pieces };
}
