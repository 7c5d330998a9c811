// Small helpers that make elements. Text is always inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

// A formatted number with its raw value in `data-value`, for tests and scripts.
function number(metric, value, text, name = "span") {
  const known = value !== null && value !== undefined && Number.isFinite(value);
  return make(name, { "data-metric": metric, "data-value": known ? value : null }, known ? text : DASH);
}

function pieces(parts) {
  return parts.map((part) => (typeof part === "string" ? part : number(part.metric, part.value, part.text, "strong")));
}

function byId(id) {
  return document.getElementById(id);
}

function replaceIn(id, ...children) {
  byId(id).replaceChildren(...children.flat());
}

// From light to dark and back; without a choice, the page follows the system.
function switchTheme() {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
}
