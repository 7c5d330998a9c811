// A small chart: two axes, lines, dots and bars, and a text for the point nearest to the pointer or chosen by arrow keys.
// It uses elements.js and numbers.js. An axis is {domain, labels, title, ticks, whole}: `labels` turns ticks into texts.

const MARGIN = { top: 12, right: 14, bottom: 40, left: 52 };

function scale([from, to], [start, end]) {
  const span = to - from || 1;
  const map = (value) => start + ((value - from) / span) * (end - start);
  map.invert = (place) => from + ((place - start) / (end - start)) * span;
  return map;
}

// Round numbers in equal steps between `from` and `to`, about `count` of them. `whole`: whole numbers only.
function ticks(from, to, count = 5, whole = false) {
  if (!(to > from)) return [from];
  const rough = Math.max((to - from) / count, whole ? 1 : 0),
    power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 2.5, 5, 10].map((n) => n * power).filter((n) => !whole || Number.isInteger(n));
  const step = steps.find((n) => n >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; n++)
    found.push(Number((n * step).toPrecision(12)));
  return found;
}

// Labels with as many digits as the ticks need, so that equal steps look equal: 2.5, 5.0, 7.5 and not 3, 5, 8.
function exactLabels(factor = 1, unit = "", sign = false) {
  return (values) => {
    const scaled = values.map((value) => value * factor);
    const digits = [0, 1, 2, 3, 4].find((n) => scaled.every((one) => Math.abs(one - Number(one.toFixed(n))) < 1e-9)) ?? 5;
    return scaled.map((one) => (sign ? points(one, digits) : plainNumber(one, digits)) + unit);
  };
}

function tokenLabels(most) {
  const [unit, name] = tokenUnit(most),
    labels = exactLabels(1 / unit, name);
  return (values) => labels(values).map((text, i) => (values[i] === 0 ? "0" : text));
}

function numberAxis(domain, options = {}) {
  return { domain, labels: exactLabels(), ...options };
}

// Token counts, all in the same unit.
function tokenAxis(domain, title = "thinking tokens") {
  return { domain, labels: tokenLabels(domain[1]), title };
}

function countAxis(most) {
  return { ...tokenAxis([0, Math.max(most, 1) * 1.05]), title: "" };
}

// The axis may extend a little beyond 0 and 100 %; those places get no label.
function percentAxis(domain, options = {}) {
  return { domain, labels: exactLabels(100, "\u00a0%"), within: [0, 1], ...options };
}

// A range around these values with a small margin; at least `least` wide.
function around(values, { least = 0, floor = -Infinity, ceiling = Infinity } = {}) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (value === null) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  const margin = Math.max((high - low) * 0.08, (least - (high - low)) / 2, 1e-9);
  return [Math.max(floor, low - margin), Math.min(ceiling, high + margin)];
}

// Widths are measured once: measuring between two drawings makes the browser lay out the page each time.
const widths = new Map();

function widthOf(host) {
  if (!widths.has(host)) widths.set(host, Math.max(240, Math.round(host.clientWidth || 480)));
  return widths.get(host);
}

function measure() {
  document.querySelectorAll(".plot").forEach(widthOf);
}

class Chart {
  constructor(host, { height = 260, x, y, label, margin = {} }) {
    this.host = host;
    this.width = widthOf(host);
    this.height = height;
    this.margin = { ...MARGIN, ...margin };
    const { left, right, top, bottom } = this.margin;
    this.x = scale(x.domain, [left, this.width - right]);
    this.y = scale(y.domain, [height - bottom, top]);
    this.axes = { x, y };
    this.root = svg("svg", { viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-label": label, class: "chart" });
    this.clip = this.addClip();
    this.back = this.add(svg("g", { class: "axes", "aria-hidden": "true" }));
    this.drawX(x);
    this.drawY(y);
  }

  add(element) {
    this.root.append(element);
    return element;
  }

  // Lines end at the edges of the chart, with room for their own width.
  addClip() {
    const { left, right, top, bottom } = this.margin,
      id = `clip-${++Chart.count}`;
    const [width, height] = [this.width - left - right + 6, this.height - top - bottom + 6];
    this.add(svg("clipPath", { id }, svg("rect", { x: left - 3, y: top - 3, width, height })));
    return `url(#${id})`;
  }

  drawX(axis) {
    const base = this.height - this.margin.bottom;
    for (const [value, text] of labelled(axis, (this.width - this.margin.left) / (axis.room ?? 62))) {
      const place = this.x(value);
      this.back.append(
        svg("line", { x1: place, x2: place, y1: base, y2: base + 4, class: "tick" }),
        svg("text", { x: place, y: base + 17, "text-anchor": "middle", class: "x-label" }, text),
      );
    }
    this.back.append(
      svg("line", { x1: this.margin.left, x2: this.width - this.margin.right, y1: base, y2: base, class: "base" }),
    );
    const middle = (this.margin.left + this.width - this.margin.right) / 2;
    this.back.append(
      svg("text", { x: middle, y: this.height - 5, "text-anchor": "middle", class: "title" }, axis.title ?? ""),
    );
  }

  drawY(axis) {
    for (const [value, text] of labelled(axis, this.height / 56)) {
      const place = this.y(value);
      this.back.append(
        svg("line", { x1: this.margin.left, x2: this.width - this.margin.right, y1: place, y2: place, class: "grid" }),
        svg("text", { x: this.margin.left - 8, y: place + 4, "text-anchor": "end", class: "y-label" }, text),
      );
    }
  }

  line(points, name, { step = false } = {}) {
    const known = points.filter(([, value]) => value !== null);
    if (!known.length) return;
    let path = "";
    known.forEach(([x, y], i) => {
      const [px, py] = [this.x(x).toFixed(1), this.y(y).toFixed(1)];
      path += i === 0 ? `M${px} ${py}` : step ? `H${px}V${py}` : `L${px} ${py}`;
    });
    this.add(svg("path", { d: path, class: `line ${name}`, "clip-path": this.clip }));
    if (known.length === 1) this.dot(known[0], name);
  }

  band(points, name) {
    const known = points.filter(([, span]) => span !== null);
    if (known.length < 2) return;
    const up = known.map(([x, [, high]]) => `${this.x(x).toFixed(1)} ${this.y(high).toFixed(1)}`);
    const down = known.reverse().map(([x, [low]]) => `${this.x(x).toFixed(1)} ${this.y(low).toFixed(1)}`);
    this.add(svg("path", { d: `M${[...up, ...down].join("L")}Z`, class: `band ${name}` }));
  }

  square([x, y], name, half = 4.5) {
    const [px, py] = [this.x(x) - half, this.y(y) - half];
    this.add(svg("rect", { x: px, y: py, width: 2 * half, height: 2 * half, class: `dot ${name}` }));
  }

  dot([x, y], name, radius = 3.2) {
    this.add(svg("circle", { cx: this.x(x).toFixed(1), cy: this.y(y).toFixed(1), r: radius, class: `dot ${name}` }));
  }

  // The point of the current settings.
  mark([x, y], text) {
    const [px, py] = [this.x(x), this.y(y)];
    this.add(svg("circle", { cx: px, cy: py, r: 10, class: "halo" }));
    this.add(svg("circle", { cx: px, cy: py, r: 5, class: "dot now" }));
    const left = px > this.width * 0.6,
      below = py < this.margin.top + 24;
    const [dx, anchor] = left ? [-13, "end"] : [13, "start"];
    this.add(svg("text", { x: px + dx, y: py + (below ? 18 : -8), "text-anchor": anchor, class: "note" }, text));
  }

  across(value, text, name = "rule") {
    const place = this.y(value),
      right = this.width - this.margin.right;
    this.add(svg("line", { x1: this.margin.left, x2: right, y1: place, y2: place, class: name }));
    if (text) this.add(svg("text", { x: this.margin.left + 4, y: place - 5, class: "note" }, text));
  }

  down(value, name = "rule") {
    const place = this.x(value);
    this.add(svg("line", { x1: place, x2: place, y1: this.margin.top, y2: this.height - this.margin.bottom, class: name }));
  }

  bar(x, width, from, to, name) {
    const [a, b] = [this.y(from), this.y(to)];
    const height = Math.max(Math.abs(a - b), from === to ? 0 : 1);
    return this.add(
      svg("rect", { x: this.x(x), y: Math.min(a, b), width: this.x(x + width) - this.x(x), height, class: name }),
    );
  }

  // Shows the chart. `read(index)` is the text for places[index].
  show(places, read) {
    this.host.replaceChildren(this.root);
    if (places?.length) attachReading(this, places, read);
  }
}

Chart.count = 0;

// The ticks of an axis with their labels, as pairs.
function labelled(axis, count) {
  const [from, to] = [Math.min(...axis.domain), Math.max(...axis.domain)];
  const [low, high] = axis.within ?? [-Infinity, Infinity];
  const found = axis.ticks ?? ticks(from, to, Math.max(2, Math.floor(count)), axis.whole);
  const values = found.filter((value) => value >= low && value <= high);
  const texts = axis.labels(values);
  return values.map((value, i) => [value, texts[i]]);
}

// The left margin that these labels need, at most `share` of the width; the labels that still do not fit are cut.
function roomForLabels(host, labels, share = 0.45) {
  const width = labelWidth();
  const most = widthOf(host) * share;
  const left = Math.min(most, Math.max(...labels.map(width)) + 14);
  return { left, texts: labels.map((text) => cutTo(text, left - 10, width)) };
}

function labelWidth() {
  if (!Chart.pen) {
    Chart.pen = document.createElement("canvas").getContext("2d");
    Chart.pen.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  }
  return (text) => Chart.pen.measureText(text).width;
}

function cutTo(text, room, width) {
  const letters = [...text];
  if (width(text) <= room) return text;
  while (letters.length > 1 && width(`${letters.join("")}…`) > room) letters.pop();
  return `${letters.join("")}…`;
}

function attachReading(chart, places, read) {
  const { root, host } = chart;
  const cursor = chart.add(svg("line", { y1: chart.margin.top, y2: chart.height - chart.margin.bottom, class: "cursor" }));
  const reading = make("p", { class: "reading", role: "status" });
  host.append(reading);
  let at = -1;
  const go = (index) => {
    at = index;
    host.classList.toggle("is-reading", at >= 0);
    if (at < 0) return;
    const x = chart.x(places[at]);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    reading.textContent = read(at);
  };
  root.setAttribute("tabindex", "0");
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const value = chart.x.invert(((event.clientX - box.left) / box.width) * chart.width);
    go(nearest(places, value));
  });
  root.addEventListener("pointerleave", () => go(-1));
  root.addEventListener("blur", () => go(-1));
  root.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    go(Math.max(0, Math.min(places.length - 1, at < 0 ? (move > 0 ? 0 : places.length - 1) : at + move)));
  });
}

function nearest(places, value) {
  let best = 0;
  places.forEach((place, i) => {
    if (Math.abs(place - value) < Math.abs(places[best] - value)) best = i;
  });
  return best;
}

// Shows a sentence in place of a figure that cannot be drawn.
function showText(host, sentence) {
  host.replaceChildren(make("p", { class: "instead" }, sentence));
}

// Below the axis, each answer as a bar until the next answer. `answers`: {x, text, name} in order; the last one ends at `end`.
function answerBars(chart, answers, end) {
  const top = chart.height - chart.margin.bottom + 22;
  let k = 0;
  while (k < answers.length) {
    const { x, text, name } = answers[k];
    while (k < answers.length && answers[k].text === text && answers[k].name === name) k += 1;
    const left = chart.x(x),
      right = chart.x(k < answers.length ? answers[k].x : Math.max(end, answers[k - 1].x));
    const width = Math.max(right - left - 1, 1.5),
      fits = Math.floor((width - 6) / 6.6);
    chart.add(svg("rect", { x: left, y: top, width, height: 17, rx: 2, class: `answered ${name}` }));
    if (text && fits >= Math.min(text.length, 3)) {
      chart.add(svg("text", { x: left + 4, y: top + 12.5, class: "answer-text" }, shortened(text, fits)));
    }
  }
}

function shortened(text, most) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}
