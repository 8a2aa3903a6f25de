// A ruler between two points of time.

import { colour } from "./theme.js";
import { exact } from "./units.js";
import { AXIS } from "./draw.js";

/** Draw `timeline.ruler`: {from, to} in page time. */
export function drawRuler(context, timeline) {
  const { ruler, scale, width, height } = timeline;
  const [from, to] = [ruler.from, ruler.to].sort((a, b) => a - b);
  const [left, right] = [scale.x(from), scale.x(to)];
  context.save();
  context.fillStyle = colour("--accent");
  context.globalAlpha = 0.12;
  context.fillRect(left, AXIS, right - left, height - AXIS);
  context.globalAlpha = 1;
  context.fillRect(left, AXIS - 8, 1, height);
  context.fillRect(right, AXIS - 8, 1, height);
  const text = exact(Math.round(to - from));
  context.font = "600 12px system-ui, sans-serif";
  const room = context.measureText(text).width + 14;
  const x = Math.max(2, Math.min(width - room - 2, (left + right - room) / 2));
  context.fillRect(x, AXIS + 4, room, 20);
  context.fillStyle = colour("--on-accent");
  context.fillText(text, x + 7, AXIS + 14.5);
  context.restore();
}
