// A row of a lane: intervals in order of time, of which none covers another.

import { firstAbove, firstAtLeast } from "./search.js";

/** Intervals of one row. ids: what each one is, a row of a table; total: sums of lengths before. */
export class Intervals {
  constructor(starts, ends, ids) {
    this.starts = starts;
    this.ends = ends;
    this.ids = ids;
    this.total = new Float64Array(starts.length + 1);
    let sum = 0;
    for (let i = 0; i < starts.length; i++) {
      sum += ends[i] - starts[i];
      this.total[i + 1] = sum;
    }
  }

  get length() {
    return this.starts.length;
  }

  /** The first interval that ends after `time`. */
  after(time, low = 0) {
    return firstAbove(this.ends, time, low);
  }

  /** The first interval that begins at or after `time`. */
  from(time, low = 0) {
    return firstAtLeast(this.starts, time, low);
  }

  /** How much of [from, to) is covered, given the first interval that ends after `from`. */
  covered(from, to, first, beyond) {
    if (beyond <= first) return 0;
    let sum = this.total[beyond] - this.total[first];
    sum -= Math.max(0, from - this.starts[first]);
    sum -= Math.max(0, this.ends[beyond - 1] - to);
    return sum;
  }

  /** Place of the interval at `time`, within `slack` of it; -1 where there is none. */
  at(time, slack) {
    const place = this.after(time - slack);
    return place < this.length && this.starts[place] <= time + slack ? place : -1;
  }
}

/**
 * Rows of intervals from columns: `keys` says which row each one is in, from 0. Tables are ordered
 * by start within each lane, and so is every row.
 */
export function intervalRows(keys, count, starts, lengths) {
  const sizes = new Int32Array(count);
  for (let i = 0; i < keys.length; i++) if (keys[i] >= 0) sizes[keys[i]]++;
  const made = Array.from(sizes, (size) => ({
    starts: new Float64Array(size),
    ends: new Float64Array(size),
    ids: new Int32Array(size),
    used: 0,
  }));
  for (let i = 0; i < keys.length; i++) {
    if (keys[i] < 0) continue;
    const row = made[keys[i]];
    row.starts[row.used] = starts[i];
    row.ends[row.used] = starts[i] + lengths[i];
    row.ids[row.used++] = i;
  }
  return made.map((row) => new Intervals(row.starts, row.ends, row.ids));
}
