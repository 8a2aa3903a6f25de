// What each pass brings: the ladder as a waterfall, and its table.

import { button, byId, clean, element, fill } from "./dom.js";
import { change, count, plural, rounded } from "./units.js";
import { axis, chartLayout, CONFIG, plotly } from "./overview.js";
import { colour } from "./theme.js";

const BESIDE = 0.09; // of the way to the next row: what was predicted stands beside what was measured
const BAR = 0.5; // of a bar, where 1 is the way to the next
const LETTER_WIDTH = 6; // pixels that a letter of a label takes
const SHADES = { faster: "--better", slower: "--worse", failed: "--worse" };

/** Draw the waterfall into the element `id`. */
export async function drawWaterfall(id, ablation) {
  const Plotly = await plotly();
  const { rows } = ablation;
  const places = rows.map((_, n) => n);
  const us = (ns) => ns / 1000;
  const before = rows.map((row) => (row.change ? rows.findIndex((r) => r.label === row.change.against) : -1));
  const level = before.map((n) => (n < 0 ? null : us(rows[n].step_ns)));
  const steps = rows.map((row) => us(row.step_ns));
  const bars = {
    type: "bar",
    name: "step",
    x: places,
    base: steps.map((step, n) => (level[n] === null ? 0 : Math.min(step, level[n]))),
    y: steps.map((step, n) => (level[n] === null ? step : Math.abs(step - level[n]))),
    marker: { color: rows.map((row) => colour(row.change ? (SHADES[row.change.verdict] ?? "--range-1") : "--busy")) },
    hoverinfo: "skip",
    showlegend: false,
    width: BAR,
  };
  const certain = rows.some((row) => row.interval_ns);
  const measured = {
    type: "scatter",
    mode: "markers",
    name: certain ? "measured, 95 % interval" : "measured",
    x: places.map((n) => n - BESIDE),
    y: steps,
    error_y: {
      visible: certain,
      type: "data",
      symmetric: false,
      array: rows.map((row) => (row.interval_ns ? us(row.interval_ns[1] - row.step_ns) : null)),
      arrayminus: rows.map((row) => (row.interval_ns ? us(row.step_ns - row.interval_ns[0]) : null)),
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
  const letters = Math.floor((byId(id).clientWidth - 80) / rows.length / LETTER_WIDTH);
  const layout = chartLayout({
    xaxis: axis("", { tickvals: places, ticktext: rows.map((row) => wrapped(row.label, letters).map(text).join("<br>")), tickangle: 0, showgrid: false, zeroline: false, range: [-0.5, rows.length - 0.5] }),
    yaxis: axis("step, µs", { separatethousands: true, exponentformat: "none", rangemode: "tozero" }),
    shapes: [...before.flatMap((n, row) => (n < 0 ? [] : [joint(n, row, level[row])])), ...floor],
    annotations: rows.map(caption),
    showlegend: true,
    legend: { orientation: "h", x: 1, xanchor: "right", y: 1.04, yanchor: "bottom" },
    margin: { l: 62, r: 8, t: 38, b: 34 },
  });
  await Plotly.react(byId(id), [bars, ...(some ? [predicted] : []), measured], layout, CONFIG);
}

/** The first step's length over its bar, every other's change under its interval. */
function caption({ step_ns: step, interval_ns: interval, change: changed }, x) {
  const [low, high] = interval ?? [step, step];
  const made = { x, showarrow: false, font: { size: 11, color: colour("--ink") } };
  return changed
    ? { ...made, y: low / 1000, yshift: -13, text: change(changed.change) }
    : { ...made, y: high / 1000, yshift: 13, text: `${rounded(step)} µs` };
}

/** From a row's reference to the row, at the reference's step. */
function joint(from, to, y) {
  return { type: "line", x0: from + BAR / 2, x1: to - BAR / 2, y0: y, y1: y, line: { color: colour("--faint"), width: 1 } };
}

/** A label in lines of so many letters, cut at spaces and after hyphens only. */
export function wrapped(label, letters) {
  const lines = [""];
  for (const part of label.match(/[^\s-]*-|\S+|\s+/g) ?? []) {
    const line = lines.at(-1) + part;
    if (line.trim().length <= letters || !lines.at(-1).trim()) lines[lines.length - 1] = line;
    else lines.push(part);
  }
  // A "+" alone on a line says nothing.
  const made = lines.map((line) => line.trim()).filter(Boolean);
  return made[0] === "+" && made.length > 1 ? [`+ ${made[1]}`, ...made.slice(2)] : made;
}

/** A label as plotly shows it as it is: it reads some tags, and no others, in text. */
function text(label) {
  return clean(label).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function floorLine(value) {
  const line = { color: colour("--faint"), dash: "dot", width: 1 };
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line, label: { text: "floor", textposition: "end" } };
}

const pair = (range, said) => (range ? `${said(range[0])} to ${said(range[1])}` : null);
const maybe = (value, said) => (value === null ? null : said(value));

/** Columns of the table: [head, of a row, of the total]; a cell is null where there is nothing to say. */
const COLUMNS = [
  ["step µs", (row) => rounded(row.step_ns)],
  ["95 %", (row) => pair(row.interval_ns, rounded)],
  ["p99 µs", (row) => rounded(row.p99_ns)],
  ["TPOT µs", (row) => rounded(row.tpot_ns)],
  ["tok/s", (row) => count(Math.round(row.tokens_per_s))],
  ["change", (row) => row.change && change(row.change.change), (total) => change(total.change)],
  ["95 %", (row) => row.change && pair(row.change.interval, change), (total) => pair(total.interval, change)],
  ["verdict", (row) => row.change && row.change.verdict, (total) => total.verdict],
  ["predicted", (row) => row.change && maybe(row.change.predicted, change), (total) => maybe(total.predicted, change)],
  ["idle µs", (row) => maybe(row.idle_ns, rounded)],
  ["reads", (row) => maybe(row.reads, (value) => value.toFixed(1))],
  ["launches", (row) => maybe(row.launches, (value) => value.toFixed(1))],
  ["floor", (row) => maybe(row.floor_share, (value) => `${Math.round(100 * value)} %`)],
  ["gate", (row) => row.gate || null],
];

/** The table; `open(row)` shows the recording of a row that has one. Empty columns are left out. */
export function ablationTable(ablation, traces, open) {
  const { rows, total } = ablation;
  const columns = COLUMNS.filter(([, cell]) => rows.some((row) => cell(row) !== null));
  const some = traces.some((trace) => trace !== null);
  const heads = ["pass", ...columns.map(([head]) => head), ...(some ? ["trace"] : [])];
  const figures = (cells) => cells.map((said) => element("td", { class: "figure" }, said));
  const made = rows.map((row, n) =>
    element(
      "tr",
      { class: row.change ? row.change.verdict.replace(" ", "-") : "" },
      element("th", { scope: "row" }, element("bdi", {}, row.label)),
      figures(columns.map(([, cell]) => cell(row) ?? (row.change ? "-" : ""))),
      some && element("td", {}, (traces[n] ?? null) === null ? "" : button("show", `Show the recording of ${row.label}`, () => open(n))),
    ),
  );
  const last = total && element(
    "tr",
    { class: "total" },
    element("th", { scope: "row" }, "in all, against none"),
    figures(columns.map(([, , cell]) => (cell ? (cell(total) ?? "-") : ""))),
    some && element("td", {}),
  );
  const table = element(
    "table",
    { class: "ablation" },
    element("caption", { class: "hidden" }, "What each pass brings"),
    element("thead", {}, element("tr", {}, ...heads.map((said) => element("th", { scope: "col" }, said)))),
    element("tbody", {}, ...made, last),
  );
  const reasons = why(rows).map((line) => element("li", {}, element("bdi", {}, line)));
  return reasons.length ? [table, element("ul", { class: "notes" }, ...reasons)] : table;
}

/** What the table has no room for: which gates did not pass, and why nothing was predicted. */
function why(rows) {
  const found = new Map();
  const add = (line, label) => found.set(line, [...(found.get(line) ?? []), label]);
  for (const { label, gates, change: changed } of rows) {
    for (const { gate, verdict, detail } of gates) if (verdict !== "passed") add(`gate ${gate} ${verdict}, ${detail}`, label);
    if (changed?.why_not) add(`nothing predicted, ${changed.why_not}`, label);
  }
  const noise = Math.max(...rows.map((row) => row.change?.noise ?? -1));
  return [
    ...[...found].map(([line, labels]) => `${labels.join(", ")}: ${line}`),
    ...(noise < 0 ? [] : [`noise: the baseline against itself shows up to ${(100 * noise).toFixed(1)} %`]),
  ];
}

/** What was measured, and what the figures rest on. */
export function ablationFacts(host, ablation) {
  const { plan, about } = ablation;
  const shape = `${plan.ladder}: ${plural(plan.starts, "start")} of ${plural(plan.rounds, "round")} of ${plural(plan.steps, "step")}`;
  const lines = [shape, ...["model", "shard", "weights", "acceptance", "device"].map((key) => about[key] && `${key}: ${about[key]}`), ...ablation.notes];
  return fill(
    host,
    element("h2", {}, "What was measured"),
    element("ul", { class: "notes" }, ...lines.filter(Boolean).map((line) => element("li", {}, line))),
  );
}
