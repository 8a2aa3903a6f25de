// Times as people read them. All times in the page are whole nanoseconds, held exactly.

const grouped = new Intl.NumberFormat("en-US");
const tenths = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Microseconds to the nanosecond: 1174514 -> "1,174.514 µs". */
export function exact(ns) {
  const whole = Math.trunc(Math.abs(ns) / 1000);
  const rest = String(Math.abs(ns) % 1000).padStart(3, "0");
  return `${ns < 0 ? "-" : ""}${grouped.format(whole)}.${rest} µs`;
}

/** Microseconds for lists and labels, rounded: "1,175", under ten "4.2", "<0.1" for next to nothing. */
export function rounded(ns) {
  if (ns < 0) return `-${rounded(-ns)}`;
  if (ns === 0) return "0";
  if (ns < 50) return "<0.1";
  if (ns < 9950) return (Math.round(ns / 100) / 10).toFixed(1);
  return grouped.format(Math.round(ns / 1000));
}

/** A duration in running text, in the unit that it is read in. */
export function span(ns) {
  if (Math.abs(ns) < 1e3) return `${Math.round(ns)} ns`;
  if (Math.abs(ns) < 1e7) return `${rounded(ns)} µs`;
  if (Math.abs(ns) < 1e10) return `${tenths.format(ns / 1e6)} ms`;
  return `${tenths.format(ns / 1e9)} s`;
}

/** A share in per cent with one decimal; never "0.0" for something. */
export function percent(part, whole) {
  if (!(whole > 0)) return "-";
  if (part === 0) return "0 %";
  const share = (100 * part) / whole;
  return share < 0.05 ? "<0.1 %" : `${share.toFixed(1)} %`;
}

/** A ratio less 1 in per cent, with its sign: -0.042 -> "-4.2 %". */
export function change(ratio) {
  return ratio === null ? "-" : `${ratio > 0 ? "+" : ""}${(100 * ratio).toFixed(1)} %`;
}

/** Bytes: 4096 -> "4,096 bytes". */
export function bytes(count) {
  return count === 1 ? "1 byte" : `${grouped.format(count)} bytes`;
}

/** Text of a report with its figures in the page's own unit: "829 us" -> "829 µs". */
export function inMicroseconds(text) {
  return text.replace(/(\d) us\b/g, "$1 µs");
}

/** A whole number with separators. */
export function count(number) {
  return grouped.format(number);
}

/** "1 start", "3 starts". */
export function plural(number, thing) {
  return `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
}
