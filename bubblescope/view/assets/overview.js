// Steps as bars of busy and each kind of bubble, drawn by plotly.

import { unpacked } from "./data.js";
import { byId } from "./dom.js";
import { colour } from "./theme.js";

const UNCOUNTED = 0.35; // how solid steps are that no median is taken over
const BARS = 240; // more steps than this are shown in groups, at their mean
const WIDEST = 0.12; // of the chart that one bar takes
const LETTER = 7; // pixels that a digit of a step's number takes

let loading = null;

/** plotly.js, which the page carries; loaded once, after the first picture of the timeline. */
export function plotly() {
  loading ??= (async () => {
    const code = new TextDecoder().decode(await unpacked("plotly"));
    const script = document.createElement("script");
    script.textContent = code; // the page's policy knows it by its hash
    document.head.append(script);
    return globalThis.Plotly;
  })();
  return loading;
}

/** What every chart of the page has in common. */
export function chartLayout(more = {}) {
  return {
    margin: { l: 62, r: 8, t: 8, b: 34 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 11, color: colour("--ink") },
    showlegend: false,
    bargap: 0.25,
    hoverlabel: { font: { size: 12 } },
    ...more,
  };
}

export function axis(title, more = {}) {
  return {
    title: { text: title, standoff: 6 },
    gridcolor: colour("--line"),
    zerolinecolor: colour("--line"),
    automargin: true,
    fixedrange: true,
    ...more,
  };
}

export const CONFIG = { displayModeBar: false, responsive: true };

/**
 * Draw the steps of recordings into the element `id`: [{recording, label}].
 * `choose(recording number, step)` is called with the step that was clicked.
 */
export async function drawOverview(id, sides, kinds, choose) {
  const Plotly = await plotly();
  const host = byId(id);
  const grouped = sides.map(({ recording }) => groups(recording));
  const several = sides.length > 1;
  const names = grouped.map((found) => found.map((group) => group.label));
  const shades = grouped.flatMap((found) => found.map((group) => (group.counted ? 1 : UNCOUNTED)));
  const traces = kinds
    .map((kind, part) => {
      const y = grouped.flatMap((found) => found.map((group) => group.ns[part] / 1000));
      const flat = names.flat();
      const side = grouped.flatMap((found, n) => found.map(() => sides[n].label));
      return {
        type: "bar",
        name: kind.label,
        x: several ? [side, flat] : flat,
        y,
        marker: { color: kind.colour, opacity: shades },
        hovertemplate: `%{y:,.3f} µs ${kind.label}<extra></extra>`,
      };
    })
    .filter((trace) => trace.y.some((value) => value > 0));
  const count = names.flat().length;
  for (const trace of traces) trace.width = Math.min(0.75, WIDEST * count);
  const devices = Math.max(...sides.map(({ recording }) => recording.devices.length));
  const layout = chartLayout({
    barmode: "stack",
    xaxis: axis(several || grouped[0][0].first < 0 ? "" : "step", {
      type: several ? "multicategory" : "category",
      tickangle: 0,
      showgrid: false,
      ...(several ? {} : ticksOf(names[0], host.clientWidth - 80)),
    }),
    yaxis: axis(devices > 1 ? `µs, sum of ${devices} devices` : "µs", { separatethousands: true, exponentformat: "none", nticks: 5 }),
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--panel"), bordercolor: colour("--line"), font: { size: 11, color: colour("--ink") } },
  });
  await Plotly.react(host, traces, layout, CONFIG);
  host.removeAllListeners?.("plotly_click");
  host.on("plotly_click", ({ points }) => {
    let at = points[0].pointIndex;
    let side = 0;
    while (at >= grouped[side].length) at -= grouped[side++].length;
    choose(side, grouped[side][at].first);
  });
}

/** The labels that have room below their bars, at round numbers. */
function ticksOf(labels, width) {
  const longest = Math.max(...labels.map((label) => label.length));
  const least = (labels.length * LETTER * (longest + 1.5)) / Math.max(1, width);
  if (least <= 1) return {};
  const every = [2, 5, 10, 20, 50, 100].find((n) => n >= least) ?? labels.length;
  const numbers = labels.every((label) => /^-?\d+$/.test(label));
  return { tickvals: labels.filter((label, n) => (numbers ? Number(label) : n) % every === 0) };
}

/** Steps, or groups of so many that there are no more bars than can be told apart. */
function groups(recording) {
  const { number, busy_ns: busy, parts_ns: parts, counted } = recording.steps;
  if (!number.length) return [whole(recording)];
  const size = Math.ceil(number.length / BARS);
  const made = [];
  for (let first = 0; first < number.length; first += size) {
    const stop = Math.min(first + size, number.length);
    const mean = (value) => {
      let sum = 0;
      for (let n = first; n < stop; n++) sum += value(n);
      return sum / (stop - first);
    };
    made.push({
      first,
      counted: counted.slice(first, stop).some(Boolean),
      label: size === 1 ? String(number[first]) : `${number[first]} to ${number[stop - 1]}`,
      ns: [mean((n) => busy[n]), ...parts[0].map((_, part) => mean((n) => parts[n][part]))],
    });
  }
  return made;
}

/** Where no steps were found: all of the window. */
function whole(recording) {
  const { report, parts } = recording;
  return { first: -1, counted: true, label: "window", ns: [report.busy_ns, ...parts.map((part) => report.parts_ns[part])] };
}
