// How far the host is ahead of a device: operations queued, and until when they will take.

import { firstAbove } from "./search.js";

const CHANGES = 128;

/** A figure that changes in steps; its least and most over any stretch are found quickly. */
export class Stairs {
  constructor(times, values) {
    this.times = times;
    this.values = values;
    const blocks = Math.ceil(values.length / CHANGES);
    this.least = new Int32Array(blocks).fill(2 ** 31 - 1);
    this.most = new Int32Array(blocks);
    for (let i = 0; i < values.length; i++) {
      const block = (i / CHANGES) | 0;
      if (values[i] < this.least[block]) this.least[block] = values[i];
      if (values[i] > this.most[block]) this.most[block] = values[i];
    }
    this.top = this.most.reduce((a, b) => Math.max(a, b), 0);
  }

  /** [least, most] in [from, to). */
  between(from, to) {
    let i = firstAbove(this.times, from) - 1;
    const stop = firstAbove(this.times, to);
    let least = i >= 0 ? this.values[i] : 0;
    let most = least;
    for (i = Math.max(0, i); i < stop; ) {
      if (i % CHANGES === 0 && i + CHANGES <= stop) {
        least = Math.min(least, this.least[i / CHANGES]);
        most = Math.max(most, this.most[i / CHANGES]);
        i += CHANGES;
      } else {
        const value = this.values[i++];
        if (value < least) least = value;
        if (value > most) most = value;
      }
    }
    return [least, most];
  }
}

/** Until when the device will work on what was launched so far. */
export class Ahead {
  constructor(times, reach) {
    this.times = times;
    this.reach = reach;
    this.top = 0;
    for (let i = 0; i < times.length; i++) this.top = Math.max(this.top, reach[i] - times[i]);
  }

  /** The most in [from, to), ns. */
  between(from, to) {
    const last = firstAbove(this.times, to) - 1;
    if (last < 0) return 0;
    let most = Math.max(0, this.reach[last] - Math.max(from, this.times[last]));
    const before = firstAbove(this.times, from) - 1;
    if (before >= 0) most = Math.max(most, this.reach[before] - from);
    return most;
  }
}

/** Both tracks of a device: what was launched counts from the beginning of its launch call. */
export function tracksOf(recording, device) {
  const launched = launchedOn(recording, device);
  const { op, call } = recording;
  const [start, length, launch, called] = [op.start, op.length, op.launch, call.start];
  const begins = new Float64Array(launched.length);
  const ends = new Float64Array(launched.length);
  const reach = new Float64Array(launched.length);
  let last = -Infinity;
  let inOrder = true;
  for (let i = 0; i < launched.length; i++) {
    const row = launched[i];
    begins[i] = called[launch[row]];
    ends[i] = start[row] + length[row];
    inOrder &&= ends[i] >= last;
    reach[i] = last = Math.max(last, ends[i]);
  }
  if (!inOrder) ends.sort();
  return { queued: queued(begins, ends), ahead: new Ahead(begins, reach) };
}

/** The operations of a device whose launch is known, in the order in which they were launched. */
function launchedOn({ op, streams }, device) {
  const onDevice = streams.map((stream) => stream.device === device);
  const [order, launch, lane] = [op.order, op.launch, op.stream];
  const made = new Int32Array(order.length);
  let count = 0;
  for (let i = 0; i < order.length; i++) {
    const row = order[i];
    if (launch[row] >= 0 && onDevice[lane[row]]) made[count++] = row;
  }
  return made.subarray(0, count);
}

function queued(begins, ends) {
  const times = new Float64Array(2 * begins.length);
  const values = new Int32Array(times.length);
  let begun = 0;
  let ended = 0;
  for (let i = 0; i < times.length; i++) {
    if (begun < begins.length && begins[begun] <= ends[ended]) times[i] = begins[begun++];
    else times[i] = ends[ended++];
    values[i] = begun - ended;
  }
  return new Stairs(times, values);
}
