// Keys, the same as in Perfetto where it has them.

export const KEYS = [
  ["w, s", "zoom in, out"],
  ["a, d", "move left, right"],
  ["f", "fit the whole window"],
  ["n, p", "next, previous bubble"],
  ["[, ]", "previous, next place of the finding"],
  ["/", "search"],
  ["Enter", "in the search: next match; with Shift: the one before"],
  ["r", "ruler on or off; or drag with Shift, or on the axis"],
  ["double click", "zoom to what is selected"],
  ["Escape", "clear search, ruler and selection"],
  ["wheel", "through the lanes, or zoom where all are in view"],
  ["Ctrl + wheel, pinch", "zoom"],
  ["Shift + wheel, sideways", "move"],
  ["?", "this list"],
];

/** Listen for keys; `actions` has a function for each of them. */
export function listenForKeys(timeline, actions) {
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return undefined; // it has the keys to itself
    const typing = event.target.closest?.("input, textarea");
    if (event.key === "Escape") return actions.clear();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return undefined;
    const share = timeline.width * 0.15;
    const act = {
      w: () => timeline.zoom(1.4, timeline.pointerX ?? timeline.width / 2),
      s: () => timeline.zoom(1 / 1.4, timeline.pointerX ?? timeline.width / 2),
      a: () => timeline.pan(-share),
      d: () => timeline.pan(share),
      f: () => timeline.fit(),
      n: () => actions.bubble(1),
      p: () => actions.bubble(-1),
      "]": () => actions.place(1),
      "[": () => actions.place(-1),
      r: () => actions.ruler(),
      "/": () => actions.search(),
      "?": () => actions.help(),
    }[event.key];
    if (!act) return undefined;
    event.preventDefault();
    return act();
  });
}
