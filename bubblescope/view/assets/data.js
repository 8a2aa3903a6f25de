// What the page carries: deflated, as base 85, in script elements that no browser runs.

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

/** The bytes in the element of that id, inflated. */
export async function unpacked(id) {
  const holder = document.getElementById(id);
  const text = holder.textContent;
  holder.remove(); // the page need not hold them twice
  const stream = new Blob([decoded(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Four bytes from every five digits; the last group may be short. */
function decoded(text) {
  const values = new Uint8Array(128);
  for (let n = 0; n < DIGITS.length; n++) values[DIGITS.charCodeAt(n)] = n;
  const groups = Math.ceil(text.length / 5);
  const made = new Uint8Array(4 * groups);
  for (let group = 0; group < groups; group++) {
    let number = 0;
    for (let at = 5 * group; at < 5 * group + 5; at++) {
      number = number * 85 + (at < text.length ? values[text.charCodeAt(at)] : 84);
    }
    made[4 * group] = number >>> 24;
    made[4 * group + 1] = number >>> 16;
    made[4 * group + 2] = number >>> 8;
    made[4 * group + 3] = number;
  }
  return made.subarray(0, made.length - (5 * groups - text.length));
}

/** JSON in the element of that id. */
export async function unpackedJson(id) {
  return JSON.parse(new TextDecoder().decode(await unpacked(id)));
}

/** A recording's head, with its columns read: {head, column(name)}. */
export async function unpackedRecording(id) {
  const all = await unpacked(id);
  const length = new DataView(all.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(all.subarray(4, 4 + length)));
  const data = all.subarray(4 + length);
  const cut = { head, column: (name) => column(data, head.columns[name]) };
  return cut;
}

/**
 * One column: byte planes, lowest first, of zigzag values or of the differences between them.
 * A Float64Array holds every whole number up to 2^53 exactly; small columns take 32 bits.
 */
function column(data, { rows, width, delta, at }) {
  const planes = Array.from({ length: width }, (_, n) => data.subarray(at + n * rows, at + (n + 1) * rows));
  if (width > 4) return wide(planes, rows, delta);
  const made = width <= 3 && !delta ? new Int32Array(rows) : new Float64Array(rows);
  const none = new Uint8Array(width < 4 ? rows : 0);
  const [a = none, b = none, c = none, d = none] = planes;
  let sum = 0;
  for (let i = 0; i < rows; i++) {
    const value = a[i] | (b[i] << 8) | (c[i] << 16) | (d[i] << 24);
    const signed = (value >>> 1) ^ -(value & 1);
    made[i] = delta ? (sum += signed) : signed;
  }
  return made;
}

/** Values of more than 32 bits. */
function wide(planes, rows, delta) {
  const made = new Float64Array(rows);
  let sum = 0;
  for (let i = 0; i < rows; i++) {
    let value = 0;
    for (let n = planes.length - 1; n >= 0; n--) value = value * 256 + planes[n][i];
    const signed = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    made[i] = delta ? (sum += signed) : signed;
  }
  return made;
}
