// From time to pixels and back, and the ticks of an axis.

/**
 * Pixels are those of CSS; of the screen's own, columns, there are `density` to each, which need not
 * be a whole number. Columns share no pixel of the screen, so that none shines through the next.
 */
export class Scale {
  constructor(from, to, width, density = 1) {
    this.from = from;
    this.to = to;
    this.width = width;
    this.density = density;
    this.perPixel = (to - from) / width;
    this.columns = Math.ceil(width * density);
    this.columnWidth = 1 / density;
  }

  x(time) {
    return (time - this.from) / this.perPixel;
  }

  time(x) {
    return this.from + x * this.perPixel;
  }

  /** The column that a pixel is in. */
  column(x) {
    return Math.floor(x * this.density);
  }

  /** When a column begins. */
  columnTime(column) {
    return this.time(column * this.columnWidth);
  }

  /** The same stretch of the screen, for times that are later by `offset`. */
  moved(offset) {
    return new Scale(this.from + offset, this.to + offset, this.width, this.density);
  }

  /** Times of round value, about `apart` pixels from each other. */
  ticks(apart) {
    const wanted = this.perPixel * apart;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) ?? 10 * power;
    const whole = Math.max(1, step);
    const made = [];
    for (let n = Math.ceil(this.from / whole); n * whole <= this.to; n++) made.push(n * whole + 0); // + 0: no minus zero
    return made;
  }
}
