// Formats numbers. A number that is missing is a dash.

const MINUS = "\u2212",
  DASH = "\u2013";

function signed(text, value) {
  return value > 0 ? `+${text}` : text;
}

const formats = new Map();

function plainNumber(value, digits = 0) {
  if (value === null || !Number.isFinite(value)) return DASH;
  if (!formats.has(digits)) {
    formats.set(digits, new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  }
  const text = formats.get(digits).format(Math.abs(value));
  return value < 0 && /[1-9]/.test(text) ? MINUS + text : text;
}

function tokens(value) {
  return plainNumber(value, value !== null && Math.abs(value) < 10 && !Number.isInteger(value) ? 1 : 0);
}

function percent(share, digits = 1) {
  return share === null || !Number.isFinite(share) ? DASH : `${plainNumber(100 * share, digits)}\u00a0%`;
}

function points(value, digits = 1) {
  return signed(plainNumber(value, digits), Number((value ?? 0).toFixed(digits)));
}

// A threshold or a certainty, with enough digits to distinguish it from 1.
function certaintyText(value) {
  if (value === null || !Number.isFinite(value)) return DASH;
  const rounded = Number(value.toFixed(value > 0.99 ? 5 : 3));
  return rounded === 1 && value < 1 ? ">0.99999" : String(rounded);
}

function plural(count, one, many = `${one}s`) {
  return `${plainNumber(count)} ${count === 1 ? one : many}`;
}

// The unit of token counts on an axis, and its name.
function tokenUnit(most) {
  return most >= 1e6 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
}

// Thresholds in equal steps of doubt: 0.9, 0.99, 0.999, 0.9999, and 1 one step further.
function doubtPlace(theta) {
  return theta >= 1 ? 5 : Math.min(5, -Math.log10(1 - theta));
}

// The thresholds of the slider: in larger steps at first, in smaller steps near 1.
const SLIDER_THRESHOLDS = [
  ...range(50, 90, 1).map((n) => n / 100),
  ...range(900, 980, 5).map((n) => n / 1000),
  ...range(980, 999, 1).map((n) => n / 1000),
  ...range(9990, 10000, 1).map((n) => n / 10000),
  1,
];

function range(from, to, step) {
  const numbers = [];
  for (let n = from; n < to; n += step) numbers.push(n);
  return numbers;
}
