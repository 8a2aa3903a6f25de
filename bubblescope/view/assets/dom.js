// Elements made from text only: names from recordings are never read as HTML.

// Control and format characters, and lone surrogates: what could reorder or hide text around it.
const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** A name from a recording on one line, with nothing in it that moves the text around it. */
export function clean(name) {
  return name.replace(/[\s\u0085\u2028\u2029]+/g, " ").replace(UNSAFE, "\uFFFD");
}

/**
 * An element. Attributes go in as they are, `on...` as listeners; children are elements or text,
 * and what is null or undefined among them is left out.
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : clean(String(value)));
  }
  add(made, children);
  return made;
}

/** Replace all children. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  add(parent, children);
  return parent;
}

function add(parent, children) {
  for (const child of children.flat(2)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : clean(String(child)));
  }
}

/** A button; its label is said by screen readers, its text is seen. */
export function button(text, label, onclick, attributes = {}) {
  return element(
    "button",
    { type: "button", title: label, "aria-label": label, onclick, ...attributes },
    text,
  );
}

/** The element of that id. */
export function byId(id) {
  return document.getElementById(id);
}

/** A select with options of [value, text]. */
export function select(label, options, onchange) {
  return element(
    "select",
    { "aria-label": label, title: label, onchange: (event) => onchange(event.target.value) },
    ...options.map(([value, text]) => element("option", { value: String(value) }, text)),
  );
}
