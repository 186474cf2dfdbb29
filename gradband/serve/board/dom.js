// Elements from data. Text is only ever set as text, so nothing from the server can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; null and false are left out. */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for a part of a picture. */
export function s(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const keyOf = (node) => node.getAttribute?.("data-key") ?? null;

/** Makes the children of an element those that are given, and keeps what is there: focus, open details. */
export function render(element, ...children) {
  const wanted = element.cloneNode(false);
  fill(wanted, null, children);
  changeChildren(element, wanted);
}

function change(from, to) {
  if (from.nodeName !== to.nodeName || keyOf(from) !== keyOf(to)) {
    from.replaceWith(to);
  } else if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
  } else {
    changeAttributes(from, to);
    changeChildren(from, to);
  }
}

function changeAttributes(from, to) {
  for (const { name } of [...from.attributes]) {
    const ofUser = name === "open" && from.nodeName === "DETAILS";
    if (!to.hasAttribute(name) && !ofUser) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
}

function changeChildren(from, to) {
  const wanted = [...to.childNodes];
  const keys = new Set(wanted.map(keyOf));
  const present = new Map([...from.childNodes].map((child) => [keyOf(child), child]));
  let at = from.firstChild;
  const next = () => {
    const here = at;
    at = at.nextSibling;
    return here;
  };
  for (const child of wanted) {
    const key = keyOf(child);
    while (at && keyOf(at) !== null && !keys.has(keyOf(at))) next().remove();
    if (key === null) {
      if (at && keyOf(at) === null) change(next(), child);
      else from.insertBefore(child, at);
    } else if (at && keyOf(at) === key) {
      change(next(), child);
    } else if (present.has(key)) {
      from.insertBefore(present.get(key), at);
      change(present.get(key), child);
    } else {
      from.insertBefore(child, at);
    }
  }
  while (at) next().remove();
}
