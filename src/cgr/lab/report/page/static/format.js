// Formats numbers and writes sentences. A number that cannot be computed is explained in words.

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

// A formatter for token counts on an axis, all in the same unit.
function shortTokens(most) {
  const [unit, name] = most >= 1e7 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
  return (value) => {
    const count = Number((value / unit).toPrecision(6));
    return plainNumber(count, count % 1 ? 1 : 0) + (count ? name : "");
  };
}

// The first sentence of the page, as strings and numbers with a metric name.
function headline(run, state, now, ci) {
  const threshold = certaintyText(state.theta);
  if (!now.fired) {
    return [
      `At a threshold of ${threshold} no trace stopped early: no probe of this run reached it`,
      ...unchanged(run, now),
    ];
  }
  const saved =
    now.savings.total > 0
      ? ["saves ", strong("headline.share", now.savings.share, percent(now.savings.share, 0)), " of the thinking tokens"]
      : ["saves no thinking tokens"];
  return [`Stopping at a certainty of ${threshold} `, ...saved, ...accuracyClause(run, state, now, ci)];
}

function unchanged(run, now) {
  if (!run.graded) return [". No question has a known answer, so accuracy is not reported."];
  const { accuracy } = now.baseScore;
  return [". The accuracy of the baseline is ", strong("headline.accuracy", accuracy, percent(accuracy)), "."];
}

function accuracyClause(run, state, now, ci) {
  if (!run.graded) return [". No question has a known answer, so accuracy is not reported."];
  if (now.baseScore.accuracy === 1 && now.accuracy.accuracy === 1)
    return [", and every answer is right with the rule and without it."];
  const { diff_points: diff } = now.accuracy;
  const change = strong("headline.diff_points", diff, `${points(diff)} points`);
  const clause = diff === 0 ? [" and does not change accuracy"] : [" and changes accuracy by ", change];
  return [...clause, intervalClause(run, ci)];
}

function intervalClause(run, ci) {
  if (!ci) return "; an interval needs at least two questions.";
  const [low, high] = ci.map((end) => points((100 * end * run.seeds.length) / run.graded));
  return ` (95\u00a0% interval ${low} to ${high}).`;
}

function strong(metric, value, text) {
  return { metric, value, text };
}
