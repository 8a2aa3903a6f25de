// What is selected, in words and exact figures.

import { button, element, fill } from "./dom.js";
import { threadTitle } from "./lanes.js";
import { bytes, count, exact, inMicroseconds, percent, rounded } from "./units.js";

const READ = "blocking read";
const MOST_BUBBLES = 5; // that the panel of a read lists

/** Show what is selected in `panel`; `go(table, row)` selects something else of its strip; `empty` says what there is to select. */
export function showDetails(panel, selected, kinds, go, empty) {
  if (!selected) return fill(panel, element("p", { class: "quiet" }, empty));
  const { strip, table, row } = selected;
  const make = { bubble: bubbleDetails, op: opDetails, call: callDetails, range: rangeDetails }[table];
  return fill(panel, ...make(strip.recording, row, { kinds, go }));
}

/** A heading with the length as its first word. */
function heading(what, ns) {
  return element("h2", {}, element("span", { class: "figure" }, exact(ns)), ` ${what}`);
}

/** Rows of [label, value], those without a value left out. */
function facts(rows) {
  const made = rows
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([label, value]) => [element("dt", {}, label), element("dd", {}, value)]);
  return element("dl", { class: "facts" }, ...made.flat());
}

/** A name that may be long or read from right to left. */
function name(text) {
  return element("bdi", { class: "name" }, text);
}

/** A name that selects what it names. */
function link(text, label, onclick) {
  return button(text, label, onclick, { class: "link" });
}

function when(recording, time) {
  const device = recording.devices.length === 1 ? recording.devices[0].steps : recording.steps;
  const step = recording.stepAt(time, device);
  const since = step < 0 ? "" : `, ${exact(time - device.start_ns[step])} into step ${device.number[step]}`;
  return `${exact(time)}${since}`;
}

function bubbleDetails(recording, row, { kinds, go }) {
  const { bubble, op } = recording;
  const ended = bubble.op[row];
  const launch = recording.launchOf(row);
  const deviceName = recording.devices[bubble.device[row]];
  return [
    heading("bubble", bubble.length[row]),
    partsTable(recording, row, kinds),
    ...owners(recording, row, go),
    facts([
      ["begins", when(recording, bubble.start[row])],
      ["device", recording.devices.length > 1 ? `rank ${deviceName.rank}, device ${deviceName.index}` : null],
      ["ended by", link(recording.nameOf("op", ended), "Show the operation", () => go("op", ended))],
      ["launched by", launch < 0 ? "not recorded" : launchLink(recording, launch, go)],
      ["launched at", launch < 0 ? null : source(recording, recording.call.frame[launch])],
      ["launched", launch < 0 ? null : before(op.start[ended] - recording.call.start[launch])],
    ]),
    ...remedies(recording, row),
  ];
}

function before(ns) {
  return ns >= 0 ? `${exact(ns)} before it began` : `${exact(-ns)} after it began, by the clocks as recorded`;
}

function launchLink(recording, launch, go) {
  return link(recording.nameOf("call", launch), "Show the launch", () => go("call", launch));
}

function source(recording, frame) {
  const text = recording.frameText(frame);
  return text === null ? null : name(text);
}

/** The parts of a bubble, each with its share and with what filled it. */
function partsTable(recording, row, kinds) {
  const { piece } = recording;
  const [first, stop] = recording.piecesOf(row);
  const found = new Map();
  for (let n = first; n < stop; n++) {
    const said = filler(recording, n);
    const part = piece.part[n];
    if (!found.has(part)) found.set(part, { ns: 0, fillers: new Map() });
    const entry = found.get(part);
    entry.ns += piece.length[n];
    if (said) entry.fillers.set(said, (entry.fillers.get(said) ?? 0) + piece.length[n]);
  }
  const whole = recording.bubble.length[row];
  const rows = [...found].sort((a, b) => b[1].ns - a[1].ns).flatMap(([part, { ns, fillers }]) => [
    element(
      "tr",
      {},
      element("th", { scope: "row" }, chip(kinds[part + 1]), kinds[part + 1].label),
      element("td", { class: "figure" }, exact(ns)),
      element("td", { class: "figure" }, percent(ns, whole)),
    ),
    ...mostOf(fillers),
  ]);
  return element("table", { class: "parts" }, element("caption", { class: "hidden" }, "Parts of the bubble"), ...rows);
}

function mostOf(fillers) {
  const ordered = [...fillers].sort((a, b) => b[1] - a[1]);
  const rows = ordered.slice(0, 4).map(([said, ns]) => fillerRow(said, exact(ns)));
  const rest = ordered.slice(4).reduce((sum, [, ns]) => sum + ns, 0);
  return rest ? [...rows, fillerRow(`${ordered.length - 4} more`, exact(rest))] : rows;
}

function fillerRow(said, figure) {
  return element(
    "tr",
    { class: "filler" },
    element("td", {}, name(said)),
    element("td", { class: "figure" }, figure),
    element("td", {}),
  );
}

/** What the launching thread was doing in a piece, "" where the part says it all. */
function filler(recording, n) {
  const { piece, parts, doings } = recording;
  const part = parts[piece.part[n]];
  if (part === "read tail") return recording.nameOf("call", piece.call[n]);
  if (part !== "host gap") return "";
  const doing = doings[piece.doing[n]];
  // The range is named where it is what filled the gap, the call where that did.
  if (["framework op", "annotation", "Python frame"].includes(doing) && piece.range[n] >= 0) {
    return `${doing}: ${recording.nameOf("range", piece.range[n])}`;
  }
  if (piece.call[n] >= 0) return `${doing}: ${recording.nameOf("call", piece.call[n])}`;
  return doing;
}

export function chip(kind) {
  const made = element("span", { class: "chip", "aria-hidden": "true" });
  made.style.background = kind.colour;
  return made;
}

/** The reads that a bubble is charged to. */
function owners(recording, row, go) {
  const { charge, read } = recording;
  const sums = new Map();
  for (const n of recording.chargesOf.of(row)) {
    sums.set(charge.read[n], (sums.get(charge.read[n]) ?? 0) + charge.ns[n]);
  }
  return [...sums].map(([n, ns]) =>
    element(
      "p",
      { class: "owner" },
      element("b", {}, exact(ns)),
      " of it is charged to ",
      link(recording.nameOf("call", read.call[n]), "Show the read", () => go("call", read.call[n])),
      `, which held the host for ${exact(read.length[n])}`,
      ...place(recording, read.site[n], read.call[n]),
    ),
  );
}

function place(recording, site, call) {
  const found = site < 0 ? null : recording.report.reads[site];
  if (found?.site) return [" at ", name(`${found.site.file}:${found.site.line} ${found.site.function}`)];
  const frame = recording.frameText(recording.call.frame[call]);
  if (frame) return [" at ", name(frame)];
  return found?.under ? [" in ", name(found.under)] : [];
}

/** What would remove a bubble: the findings that it is part of. */
function remedies(recording, row) {
  const { place: places, report } = recording;
  const found = Array.from(recording.placesOf.of(row), (n) => [places.finding[n], places.ns[n]]);
  if (!found.length) return [];
  found.sort((a, b) => b[1] - a[1]);
  return [
    element("h3", {}, "What would remove it"),
    ...found.map(([n, ns]) => {
      const finding = report.findings[n];
      const saving = finding.predicted_saving_ns_per_step;
      return element(
        "details",
        { open: n === found[0][0] ? true : null },
        element("summary", {}, element("span", { class: "figure" }, exact(ns)), " ", kindOf(finding)),
        element("p", {}, name(inMicroseconds(finding.why))),
        element(
          "p",
          { class: "quiet" },
          saving === null ? "" : `Without all of this, a step is predicted ${rounded(saving)} µs shorter. `,
          finding.passes.length
            ? `${finding.passes.length === 1 ? "Pass" : "Passes"}: ${finding.passes.join(", ")}.`
            : "No pass addresses this yet.",
        ),
      );
    }),
  ];
}

function kindOf(finding) {
  return finding.kind === READ || finding.call ? `${finding.kind}: ${finding.call}` : finding.kind;
}

function opDetails(recording, row, { go }) {
  const { op, call, streams, names } = recording;
  const launch = op.launch[row];
  const stream = streams[op.stream[row]];
  const start = op.start[row];
  return [
    heading(names.op_kind[op.kind[row]], op.length[row]),
    element("p", {}, name(recording.nameOf("op", row))),
    facts([
      ["begins", when(recording, start)],
      ["stream", `${stream.stream} of device ${stream.index}`],
      ["launch latency", launch < 0 ? "not recorded" : exact(start - call.start[launch])],
      ["after the call", launch < 0 ? null : exact(start - call.start[launch] - call.length[launch])],
      ["launched by", launch < 0 ? "not recorded" : launchLink(recording, launch, go)],
      ["launched at", launch < 0 ? null : source(recording, call.frame[launch])],
      ["graph", op.graph[row] < 0 ? null : count(op.graph[row])],
      ["graph node", op.node[row] < 0 ? null : String(op.node[row])],
      ["grid", sizes(names.grid[op.grid[row]])],
      ["block", sizes(names.block[op.block[row]])],
      ["bytes", op.bytes[row] < 0 ? null : bytes(op.bytes[row])],
      ["bytes a second", op.bytes[row] > 0 && op.length[row] > 0 ? `${(op.bytes[row] / op.length[row]).toFixed(1)} GB/s` : null],
    ]),
  ];
}

/** "84,1,1" as it is read. */
function sizes(text) {
  return text.replaceAll(",", " x ");
}

function callDetails(recording, row, { go }) {
  const { call, read } = recording;
  const launched = recording.opsOfCall.of(row);
  const found = recording.readOfCall(row);
  const first = launched[0];
  const rows = [
    ["begins", when(recording, call.start[row])],
    ["called at", source(recording, call.frame[row])],
    ["thread", threadText(recording, call.thread[row])],
    ["launched", launched.length ? count(launched.length) + (launched.length === 1 ? " operation" : " operations") : null],
    ["first of them", launched.length ? link(recording.nameOf("op", first), "Show the operation", () => go("op", first)) : null],
    ["began after", launched.length ? exact(recording.op.start[first] - call.start[row]) : null],
  ];
  if (found >= 0) {
    const work = read.op[found];
    rows.push(
      ["held the host", exact(read.length[found])],
      ["exposes idle", exact(read.exposed[found])],
      ["waited for", work < 0 ? "not recorded" : link(recording.nameOf("op", work), "Show the operation", () => go("op", work))],
    );
  }
  return [
    heading(found >= 0 ? "blocking read" : "call", call.length[row]),
    element("p", {}, name(recording.nameOf("call", row))),
    facts(rows),
    ...exposed(recording, found, go),
  ];
}

/** The bubbles that a read is charged with. */
function exposed(recording, read, go) {
  if (read < 0) return [];
  const { charge } = recording;
  const sums = new Map();
  for (const n of recording.chargesOfRead.of(read)) {
    sums.set(charge.bubble[n], (sums.get(charge.bubble[n]) ?? 0) + charge.ns[n]);
  }
  const bubbles = [...sums].sort((a, b) => b[1] - a[1]);
  if (!bubbles.length) return [];
  const more = bubbles.length - MOST_BUBBLES;
  return [
    element("h3", {}, "Bubbles that it is charged with"),
    element(
      "ul",
      {},
      ...bubbles.slice(0, MOST_BUBBLES).map(([n, ns]) =>
        element("li", {}, link(exact(ns), "Show the bubble", () => go("bubble", n)), ` of ${exact(recording.bubble.length[n])}`),
      ),
      more > 0 && element("li", { class: "quiet" }, `${count(more)} more`),
    ),
  ];
}

function rangeDetails(recording, row) {
  const { range, names } = recording;
  return [
    heading(names.range_kind[range.kind[row]], range.length[row]),
    element("p", {}, name(recording.nameOf("range", row))),
    facts([
      ["begins", when(recording, range.start[row])],
      ["at", source(recording, range.frame[row])],
      ["thread", threadText(recording, range.thread[row])],
    ]),
  ];
}

function threadText(recording, number) {
  const of = recording.threads[number];
  return of.thread < 0 ? "not recorded" : threadTitle(of);
}
