// Mouse, wheel and touchpad.

import { element, fill } from "./dom.js";
import { AXIS } from "./draw.js";
import { exact } from "./units.js";

const DRAG = 4; // pixels from which a press is a drag and not a click
const SNAP = 6; // pixels within which a ruler's end takes the edge of an interval

/** Let the pointer move the timeline. */
export function followPointer(timeline) {
  const { canvas, area } = timeline;
  const tip = element("div", { class: "tip", hidden: true });
  area.append(tip);
  let press = null;

  canvas.addEventListener("wheel", (event) => wheel(timeline, event), { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    const measuring = timeline.measuring || event.shiftKey || event.offsetY < AXIS;
    press = { x: event.offsetX, y: event.offsetY, measuring, moved: false };
    if (measuring) press.from = snapped(timeline, event.offsetX, event.offsetY);
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!press) return showTip(timeline, tip, event);
    const [dx, dy] = [event.offsetX - press.x, event.offsetY - press.y];
    press.moved ||= Math.hypot(dx, dy) > DRAG;
    if (!press.moved) return undefined;
    if (press.measuring) {
      timeline.ruler = { from: press.from, to: snapped(timeline, event.offsetX, event.offsetY) };
      timeline.redraw();
    } else {
      timeline.pan(-dx);
      timeline.scrollTo(timeline.scrollY - dy);
      Object.assign(press, { x: event.offsetX, y: event.offsetY });
    }
    return undefined;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (press && !press.moved) {
      timeline.ruler = null;
      const found = timeline.at(event.offsetX, event.offsetY);
      if (found?.table) timeline.select(found.strip, found.table, found.row);
      else timeline.select(null, null, -1);
    }
    press = null;
  });
  canvas.addEventListener("pointermove", (event) => (timeline.pointerX = event.offsetX));
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
    timeline.pointerX = null;
  });
  canvas.addEventListener("dblclick", () => {
    if (!timeline.selected) return;
    const { strip, table, row } = timeline.selected;
    timeline.zoomTo(...strip.recording.times(table, row).map((time) => time - strip.offset));
  });
}

/**
 * As in Perfetto: with ctrl, or a pinch, zoom at the pointer; sideways or with shift, move in time;
 * else move through the lanes, or zoom where all of them are in view.
 */
function wheel(timeline, event) {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? timeline.height : 1;
  const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
  if (event.ctrlKey || event.metaKey) timeline.zoom(Math.exp(-dy * 0.004), event.offsetX);
  else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) timeline.pan(dx || dy);
  else if (timeline.total > timeline.height + 1) timeline.scrollTo(timeline.scrollY + dy);
  else timeline.zoom(Math.exp(-dy * 0.002), event.offsetX);
}

/** The time at a pixel, or the edge of what is under it where one is near. */
function snapped(timeline, x, y) {
  const time = timeline.scale.time(x);
  const found = timeline.at(x, y);
  if (!found?.table) return time;
  const edges = found.strip.recording.times(found.table, found.row).map((t) => t - found.strip.offset);
  const near = edges.find((edge) => Math.abs(timeline.scale.x(edge) - x) <= SNAP);
  return near ?? time;
}

function showTip(timeline, tip, event) {
  const found = timeline.at(event.offsetX, event.offsetY);
  timeline.canvas.style.cursor = found?.table ? "pointer" : "default";
  tip.hidden = !found?.table;
  if (!found?.table) return;
  const { recording } = found.strip;
  const length = exact(recording[found.table].length[found.row]);
  const name = found.table === "bubble" ? `bubble: ${recording.mostOf(found.row)}` : recording.nameOf(found.table, found.row);
  fill(tip, element("b", {}, length), " ", element("span", { class: "name" }, name));
  const left = Math.min(event.offsetX + 14, timeline.width - tip.offsetWidth - 8);
  tip.style.transform = `translate(${Math.max(4, left)}px, ${event.offsetY + 16}px)`;
}
