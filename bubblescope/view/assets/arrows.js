// Arrows for what is selected: from a launch to what it launched, from work to who waited for it.

import { colour } from "./theme.js";

const MOST = 40; // arrows of one launch: a graph has a thousand nodes

/** The arrows of a selection: [{kind, from: [table, row, time], to: [table, row, time]}]. */
export function arrowsOf(recording, selected) {
  const { op, call, bubble } = recording;
  const launch = (operation) => {
    const row = op.launch[operation];
    return row < 0
      ? []
      : [{ kind: "launch", from: ["call", row, call.start[row]], to: ["op", operation, op.start[operation]] }];
  };
  if (selected.table === "op") return [...launch(selected.row), ...readsOf(recording, selected.row)];
  if (selected.table === "bubble") {
    const reads = new Set(Array.from(recording.chargesOf.of(selected.row), (n) => recording.charge.read[n]));
    return [...launch(bubble.op[selected.row]), ...[...reads].flatMap((read) => readArrow(recording, read))];
  }
  if (selected.table === "call") {
    const read = recording.readOfCall(selected.row);
    const launched = Array.from(recording.opsOfCall.of(selected.row)).slice(0, MOST);
    return [...launched.flatMap(launch), ...(read < 0 ? [] : readArrow(recording, read))];
  }
  return [];
}

function readArrow(recording, read) {
  const { op, read: reads } = recording;
  const work = reads.op[read];
  if (work < 0) return [];
  const returned = reads.start[read] + reads.length[read];
  const done = op.start[work] + op.length[work];
  return [{ kind: "read", from: ["op", work, done], to: ["call", reads.call[read], returned] }];
}

/** Reads that waited for an operation. */
function readsOf(recording, operation) {
  const { read } = recording;
  const found = [];
  for (let n = 0; n < read.call.length && found.length < MOST; n++) {
    if (read.op[n] === operation) found.push(...readArrow(recording, n));
  }
  return found;
}

/** Draw arrows; `place(table, row)` says where a row is: {y, height}, or null. */
export function drawArrows(context, arrows, scale, place, palette) {
  for (const { kind, from, to } of arrows) {
    const [a, b] = [from, to].map(([table, row]) => place(table, row));
    if (!a || !b) continue;
    const down = b.y > a.y;
    const [x0, x1] = [from, to].map(([, , time]) => scale.x(time));
    if (Math.max(x0, x1) < -4000 || Math.min(x0, x1) > scale.width + 4000) continue;
    const y0 = down ? a.y + a.height : a.y;
    const y1 = down ? b.y : b.y + b.height;
    arrow(context, x0, y0, x1, y1, kind === "read" ? palette.read : colour("--ink"));
  }
}

function arrow(context, x0, y0, x1, y1, ink) {
  const bend = (y1 - y0) * 0.5;
  for (const [stroke, width] of [[colour("--paper"), 4], [ink, 1.6]]) {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    context.stroke();
  }
  const point = y1 > y0 ? -6 : 6;
  context.fillStyle = ink;
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 4, y1 + point);
  context.lineTo(x1 + 4, y1 + point);
  context.fill();
}
