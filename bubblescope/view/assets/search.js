// Searching ordered arrays.

/** The first place in [low, high) whose value is at least `wanted`; high if there is none. */
export function firstAtLeast(values, wanted, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first place in [low, high) whose value is above `wanted`; high if there is none. */
export function firstAbove(values, wanted, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
