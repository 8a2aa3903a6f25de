// What each pass brings: the ladder as a waterfall, and its table.

import { button, byId, clean, element, fill } from "./dom.js";
import { change, count, rounded } from "./units.js";
import { axis, chartLayout, CONFIG, plotly } from "./overview.js";
import { colour } from "./theme.js";

const BESIDE = 0.09; // of the way to the next row: what was predicted stands beside what was measured
const SHADES = { faster: "--better", slower: "--worse", failed: "--worse" };

/** Draw the waterfall into the element `id`. */
export async function drawWaterfall(id, ablation) {
  const Plotly = await plotly();
  const { rows } = ablation;
  const places = rows.map((_, n) => n);
  const us = (ns) => ns / 1000;
  const before = rows.map((row) => (row.change ? rows.find((r) => r.label === row.change.against) : null));
  const bars = {
    type: "bar",
    name: "step",
    x: places,
    base: rows.map((row, n) => (before[n] ? us(Math.min(row.step_ns, before[n].step_ns)) : 0)),
    y: rows.map((row, n) => us(before[n] ? Math.abs(row.step_ns - before[n].step_ns) : row.step_ns)),
    marker: { color: rows.map((row) => colour(row.change ? (SHADES[row.change.verdict] ?? "--range-1") : "--busy")) },
    hoverinfo: "skip",
    width: 0.5,
  };
  const measured = {
    type: "scatter",
    mode: "markers",
    name: "measured, 95 % interval",
    x: places.map((n) => n - BESIDE),
    y: rows.map((row) => us(row.step_ns)),
    error_y: {
      type: "data",
      symmetric: false,
      array: rows.map((row) => us(row.interval_ns ? row.interval_ns[1] - row.step_ns : 0)),
      arrayminus: rows.map((row) => us(row.interval_ns ? row.step_ns - row.interval_ns[0] : 0)),
      color: colour("--ink"),
      thickness: 1.5,
      width: 6,
    },
    marker: { color: colour("--ink"), size: 7 },
    hovertemplate: "%{y:,.3f} µs measured<extra></extra>",
  };
  const predicted = {
    type: "scatter",
    mode: "markers",
    name: "predicted",
    x: places.map((n) => n + BESIDE),
    y: rows.map((row) => (row.predicted_ns === null ? null : us(row.predicted_ns))),
    marker: { color: colour("--paper"), size: 10, symbol: "diamond", line: { color: colour("--predicted"), width: 2 } },
    hovertemplate: "%{y:,.3f} µs predicted<extra></extra>",
  };
  const some = predicted.y.some((value) => value !== null);
  const floor = ablation.floor_ns === null ? [] : [floorLine(us(ablation.floor_ns))];
  const layout = chartLayout({
    xaxis: axis("", { tickvals: places, ticktext: rows.map((row) => text(row.label)), tickangle: 0, showgrid: false, zeroline: false, range: [-0.5, rows.length - 0.5] }),
    yaxis: axis("step, µs", { tickformat: ",.0f", rangemode: "tozero" }),
    shapes: floor,
    showlegend: true,
    legend: { orientation: "h", y: 1.12, x: 0 },
    margin: { l: 62, r: 8, t: 24, b: 34 },
  });
  bars.showlegend = false;
  await Plotly.react(byId(id), some ? [bars, predicted, measured] : [bars, measured], layout, CONFIG);
}

/** A label as plotly shows it as it is: it reads some tags, and no others, in text. */
function text(label) {
  return clean(label).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function floorLine(value) {
  const line = { color: colour("--faint"), dash: "dot", width: 1 };
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line, label: { text: "floor", textposition: "end" } };
}

/** The table; `open(row)` shows the recording of a row that has one. */
export function ablationTable(ablation, traces, open) {
  const heads = ["pass", "step µs", "95 %", "p99 µs", "TPOT µs", "tok/s", "change", "95 %", "", "predicted", "idle µs", "reads", "launches", "floor", "gate"];
  const some = traces.some((trace) => trace !== null);
  if (some) heads.push("trace");
  const pair = (range, text) => (range ? `${text(range[0])} to ${text(range[1])}` : "-");
  const maybe = (value, text) => (value === null ? "-" : text(value));
  const rows = ablation.rows.map((row, n) => {
    const changed = row.change;
    const cells = [
      rounded(row.step_ns),
      pair(row.interval_ns, rounded),
      rounded(row.p99_ns),
      rounded(row.tpot_ns),
      count(Math.round(row.tokens_per_s)),
      changed ? change(changed.change) : "",
      changed ? pair(changed.interval, change) : "",
      changed ? changed.verdict : "",
      changed ? (changed.predicted === null ? changed.why_not || "-" : change(changed.predicted)) : "",
      maybe(row.idle_ns, rounded),
      maybe(row.reads, (value) => value.toFixed(1)),
      maybe(row.launches, (value) => value.toFixed(1)),
      maybe(row.floor_share, (value) => `${Math.round(100 * value)} %`),
      row.gate,
    ];
    return element(
      "tr",
      { class: changed ? changed.verdict.replace(" ", "-") : "" },
      element("th", { scope: "row" }, element("bdi", {}, row.label)),
      ...cells.map((text) => element("td", { class: "figure" }, text)),
      some && element("td", {}, (traces[n] ?? null) === null ? "" : button("show", `Show the recording of ${row.label}`, () => open(n))),
    );
  });
  return element(
    "table",
    { class: "ablation" },
    element("caption", { class: "hidden" }, "What each pass brings"),
    element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows, total(ablation, heads.length)),
  );
}

function total(ablation, columns) {
  const found = ablation.total;
  if (!found) return null;
  const cells = [change(found.change), found.interval ? found.interval.map(change).join(" to ") : "-", found.verdict, change(found.predicted)];
  return element(
    "tr",
    { class: "total" },
    element("th", { scope: "row" }, "in all, against none"),
    ...Array.from({ length: 5 }, () => element("td", {})),
    ...cells.map((text) => element("td", { class: "figure" }, text)),
    element("td", { colspan: String(columns - 10) }),
  );
}

/** What was measured, and what the figures rest on. */
export function ablationFacts(host, ablation) {
  const { plan, about } = ablation;
  const shape = `${plan.ladder}: ${plan.starts} starts of ${plan.rounds} rounds of ${plan.steps} steps`;
  const lines = [shape, ...["model", "shard", "weights", "acceptance", "device"].map((key) => about[key] && `${key}: ${about[key]}`), ...ablation.notes];
  return fill(host, element("ul", { class: "notes" }, ...lines.filter(Boolean).map((line) => element("li", {}, line))));
}
