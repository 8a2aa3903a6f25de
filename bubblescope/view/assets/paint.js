// Drawing intervals: each as it is where it is wide enough, else a column of pixels for many.

const WIDE = 2; // pixels from which an interval is drawn on its own
const LABEL = 34; // pixels from which it is worth saying its name
const LEVELS = 8; // shades of a column, by how much of it is covered
const LEAST = 6; // pixels that any bubble takes of the height of its column
const BLOCK = 256;

/**
 * Draw a row. `style`: {fill(id), many, label(id) or null, ink(id)}; `many` is the colour of columns
 * that stand for several intervals. Costs a search a pixel at most, whatever the number of intervals.
 */
export function paintRow(context, row, scale, y, height, style) {
  const { starts, ends, ids } = row;
  let run = null; // columns of one shade that follow each other are filled at once
  const wide = scale.columnWidth;
  const flush = () => {
    if (!run) return;
    context.globalAlpha = 0.3 + (0.7 * run.level) / LEVELS;
    context.fillStyle = style.many;
    context.fillRect(run.first * wide, y, run.count * wide, height);
    context.globalAlpha = 1;
    run = null;
  };
  let i = row.after(scale.from);
  while (i < row.length && starts[i] < scale.to) {
    const x = scale.x(starts[i]);
    const width = scale.x(ends[i]) - x;
    if (width >= WIDE) {
      flush();
      paintOne(context, ids[i], Math.max(x, -2), Math.min(x + width, scale.width + 2), y, height, style);
      i++;
      continue;
    }
    const column = scale.column(x);
    const from = scale.columnTime(column);
    const to = scale.columnTime(column + 1);
    let beyond = row.from(to, i + 1);
    // One that begins in this column but reaches far beyond it is drawn on its own, next.
    if (beyond - 1 > i && scale.x(ends[beyond - 1]) - scale.x(starts[beyond - 1]) >= WIDE) beyond--;
    const covered = row.covered(from, to, i, beyond) / (to - from);
    const level = Math.max(0, Math.min(LEVELS, Math.round(covered * LEVELS)));
    if (run && run.level === level && run.first + run.count === column) run.count++;
    else {
      flush();
      run = { first: column, count: 1, level };
    }
    i = beyond;
  }
  flush();
}

function paintOne(context, id, from, to, y, height, style) {
  // A pixel of ground between neighbours, where there is room for it.
  const width = to - from > 4 ? to - from - 1 : to - from;
  context.fillStyle = style.fill(id);
  context.fillRect(from, y, width, height);
  if (!style.label || width < LABEL || height < 10) return;
  const text = fitted(context, style.label(id), width - 8);
  if (!text) return;
  context.fillStyle = style.ink(id);
  context.fillText(text, Math.max(from, 0) + 4, y + height / 2 + 0.5);
}

const widths = new Map();

/** As much of a text as fits, with an ellipsis; "" where that says nothing. */
export function fitted(context, text, width) {
  const letter = widthOf(context, "n");
  if (text.length * letter * 0.6 < width && widthOf(context, text) <= width) return text;
  const letters = Math.floor(width / letter) - 1;
  // Not half of a character that takes two units.
  return letters < 3 ? "" : `${text.slice(0, letters).replace(/[\ud800-\udbff]$/, "")}\u2026`;
}

function widthOf(context, text) {
  const key = `${context.font} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 20000) widths.clear();
    widths.set(key, context.measureText(text).width);
  }
  return widths.get(key);
}

/** Sums of parts over stretches of pieces, by blocks of them. */
class PartSums {
  constructor(row, piece, parts) {
    this.row = row;
    this.part = piece.part;
    this.parts = parts;
    this.blocks = new Float64Array(Math.ceil(row.length / BLOCK) * parts);
    for (let i = 0; i < row.length; i++) {
      const at = Math.floor(i / BLOCK) * parts + this.part[row.ids[i]];
      this.blocks[at] += row.ends[i] - row.starts[i];
    }
  }

  /** Time of each part in [from, to), given the first piece that ends after `from`. */
  between(from, to, first, sums) {
    const { row, part, parts } = this;
    sums.fill(0);
    let i = first;
    const stop = row.from(to, first);
    while (i < stop) {
      if (i % BLOCK === 0 && i + BLOCK < stop && i > first) {
        const at = (i / BLOCK) * parts;
        for (let p = 0; p < parts; p++) sums[p] += this.blocks[at + p];
        i += BLOCK;
      } else {
        sums[part[row.ids[i]]] += Math.min(row.ends[i], to) - Math.max(row.starts[i], from);
        i++;
      }
    }
    return stop;
  }
}

const sumsOf = new WeakMap();

/**
 * Draw a lane of bubbles: wide ones cut into their parts, others as columns in which each part is as
 * high as its share of that time. Every bubble shows, however narrow.
 */
export function paintBubbles(context, lane, recording, scale, y, height, colours) {
  const bubbles = lane.rows[0];
  const { pieces } = lane;
  if (!sumsOf.has(lane)) sumsOf.set(lane, new PartSums(pieces, recording.piece, colours.length));
  const parts = sumsOf.get(lane);
  const sums = new Float64Array(colours.length);
  let i = bubbles.after(scale.from);
  let piece = pieces.after(scale.from);
  while (i < bubbles.length && bubbles.starts[i] < scale.to) {
    const x = scale.x(bubbles.starts[i]);
    const end = scale.x(bubbles.ends[i]);
    if (end - x >= WIDE) {
      piece = pieces.after(bubbles.starts[i], piece);
      piece = paintPieces(context, pieces, recording.piece.part, piece, bubbles.ends[i], scale, y, height, colours);
      i++;
      continue;
    }
    const column = scale.column(x);
    const from = scale.columnTime(column);
    const to = scale.columnTime(column + 1);
    let beyond = bubbles.from(to, i + 1);
    const last = beyond - 1;
    if (last > i && scale.x(bubbles.ends[last]) - scale.x(bubbles.starts[last]) >= WIDE) beyond--;
    piece = pieces.after(from, Math.max(0, piece - 1));
    piece = Math.max(piece, pieces.after(Math.max(from, bubbles.starts[i]), piece));
    parts.between(from, Math.min(to, bubbles.ends[beyond - 1]), piece, sums);
    paintColumn(context, scale, column, y, height, sums, to - from, colours);
    i = beyond;
  }
}

/** Pieces up to a bubble's end; those of one part that follow each other are filled at once. */
function paintPieces(context, pieces, part, from, end, scale, y, height, colours) {
  let piece = from;
  while (piece < pieces.length && pieces.starts[piece] < end) {
    const first = piece;
    const kind = part[pieces.ids[first]];
    while (piece + 1 < pieces.length && pieces.starts[piece + 1] < end && part[pieces.ids[piece + 1]] === kind) piece++;
    const left = Math.max(scale.x(pieces.starts[first]), -2);
    const right = Math.min(scale.x(pieces.ends[piece]), scale.width + 2);
    context.fillStyle = colours[kind];
    if (right > left) context.fillRect(left, y, Math.max(right - left, 0.6), height);
    piece++;
  }
  return piece;
}

/** One column of a bubble lane, parts from the bottom up. */
function paintColumn(context, scale, column, y, height, sums, length, colours) {
  let idle = 0;
  for (const sum of sums) idle += sum;
  if (idle <= 0) return;
  const tall = Math.max(LEAST, Math.min(height, (idle / length) * height));
  let bottom = y + height;
  const x = column * scale.columnWidth;
  const width = scale.columnWidth;
  for (let part = 0; part < sums.length; part++) {
    if (sums[part] <= 0) continue;
    const share = (sums[part] / idle) * tall;
    context.fillStyle = colours[part];
    context.fillRect(x, bottom - share, width, share);
    bottom -= share;
  }
}

/** Draw a track as columns. `value(from, to)` gives [least, most]. */
export function paintTrack(context, scale, y, height, top, value, solid, faint) {
  if (!(top > 0)) return;
  for (let column = 0; column < scale.columns; column++) {
    const [least, most] = value(scale.columnTime(column), scale.columnTime(column + 1));
    if (most <= 0) continue;
    const x = column * scale.columnWidth;
    const high = Math.max(1, (most / top) * height);
    const low = (Math.max(0, least) / top) * height;
    context.fillStyle = faint;
    context.fillRect(x, y + height - high, scale.columnWidth, high);
    context.fillStyle = solid;
    context.fillRect(x, y + height - low, scale.columnWidth, low);
  }
}
