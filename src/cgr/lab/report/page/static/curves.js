// The series behind the figures.

// Thresholds worth a stop of the slider: coarse where little changes, fine towards 1.
const LADDER = [
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

// What each threshold buys, and, for comparison, what simply cutting the thinking at each budget would.
function tradeOff(run, budget, abstain) {
  const guided = LADDER.filter((theta) => theta > run.undecided).map((theta) => {
    const decisions = decideAll(run, theta, budget);
    return { theta, ...bought(run, decisions, (decision) => !abstain || isSure(decision, theta)) };
  });
  const cut = run.budgets
    .filter((one) => one <= budget)
    .map((one) => {
      return { budget: one, ...bought(run, decideAll(run, Infinity, one), () => true) };
    });
  return { guided, cut };
}

function bought(run, decisions, isGiven) {
  let used = 0,
    right = 0;
  decisions.forEach((decision, i) => {
    used += decision.used;
    if (run.traces[i].graded && decision.right && isGiven(decision)) right += 1;
  });
  return { tokens: used / decisions.length, accuracy: run.graded ? right / run.graded : null };
}

// An answer that did not close is none, and is trusted least of all.
function trust(columns, i) {
  return columns.flags[i] & CLOSED ? columns.certainty[i] : 0;
}

// At each step: how sure the traces still thinking are, with the spread of the seeds' means, and all of them, those that
// ended carrying their final certainty on.
function certaintySteps(run) {
  const rows = run.steps.map((step) => ({ step, n: 0, carried: 0, seeds: run.seeds.map(() => [0, 0]) }));
  for (const trace of run.traces) {
    let probe = trace.from,
      last = 0;
    for (const row of rows) {
      while (probe < trace.to && run.probes.at[probe] <= row.step) last = trust(run.probes, probe++);
      const over = trace.tokens < row.step;
      row.carried += over ? trust(run.finals, trace.index) : last;
      if (over || probe === trace.from || run.probes.at[probe - 1] !== row.step) continue;
      row.n += 1;
      row.seeds[trace.seed][0] += last;
      row.seeds[trace.seed][1] += 1;
    }
  }
  return rows.map((row) => summedUp(row, run.traces.length));
}

function summedUp({ step, n, carried, seeds }, traces) {
  const living = n ? total(seeds.map(([sum]) => sum)) / n : null;
  const sd = deviation(seeds.filter(([, count]) => count).map(([sum, count]) => sum / count));
  const band = sd === null ? null : [Math.max(0, living - sd), Math.min(1, living + sd)];
  return { step, n, living, band, carried: carried / traces };
}

// Answers given by each step: at a sure probe, or once the thinking ended before it; what is left lands at the budget.
function cumulative(run, now, budget) {
  const steps = [...run.steps.filter((step) => step < budget), budget];
  const rows = steps.map((step) => ({ step, correct: 0, wrong: 0 }));
  run.traces.forEach((trace, i) => {
    if (!trace.graded || !now.given[i]) return;
    const decision = now.decisions[i];
    const from = decision.cause === "certainty" ? decision.used : decision.used + 1;
    const first = steps.findIndex((step) => step >= from);
    for (let k = first < 0 ? steps.length - 1 : first; k < steps.length; k++)
      rows[k][decision.right ? "correct" : "wrong"] += 1;
  });
  return rows.map(({ step, correct, wrong }) => {
    return {
      step,
      correct: correct / run.seeds.length,
      wrong: wrong / run.seeds.length,
      ratio: correct ? wrong / correct : null,
    };
  });
}

// Closed probes by certainty: what did not close has none to speak of.
function histogram(run, bins = 40) {
  const rows = range(0, bins, 1).map((k) => ({ low: k / bins, high: (k + 1) / bins, right: 0, wrong: 0, unknown: 0 }));
  let count = 0;
  for (const trace of run.traces) {
    for (let i = trace.from; i < trace.to; i++) {
      if (!(run.probes.flags[i] & CLOSED)) continue;
      const row = rows[Math.min(bins - 1, Math.floor(run.probes.certainty[i] * bins))];
      row[!trace.graded ? "unknown" : run.probes.flags[i] & RIGHT ? "right" : "wrong"] += 1;
      count += 1;
    }
  }
  return { rows, count };
}

// The answers that were given, as [certainty, right].
function judgements(run, decisions, given) {
  const found = [];
  decisions.forEach((decision, i) => {
    if (run.traces[i].graded && given[i]) found.push([decision.closed ? decision.certainty : 0, decision.right]);
  });
  return found;
}

// Bins of equal width, closed above; only those that hold anything.
function reliability(pairs, bins = 10) {
  const found = Array.from({ length: bins }, (_, k) => ({
    low: k / bins,
    high: (k + 1) / bins,
    count: 0,
    sure: 0,
    right: 0,
  }));
  for (const [certainty, right] of pairs) {
    let k = Math.min(bins - 1, Math.max(0, Math.ceil(certainty * bins) - 1));
    if (k > 0 && certainty <= k / bins) k -= 1;
    found[k].count += 1;
    found[k].sure += certainty;
    found[k].right += right ? 1 : 0;
  }
  return found
    .filter((bin) => bin.count)
    .map((bin) => ({ ...bin, sure: bin.sure / bin.count, right: bin.right / bin.count }));
}

function calibrationError(pairs) {
  return total(reliability(pairs).map((bin) => bin.count * Math.abs(bin.sure - bin.right))) / pairs.length;
}

// Risk among the most certain answers; those of equal certainty are taken together.
function riskCoverage(pairs) {
  const falling = [...pairs].sort((a, b) => b[0] - a[0]),
    points = [];
  let wrong = 0;
  falling.forEach(([certainty, right], i) => {
    wrong += right ? 0 : 1;
    const last = i + 1 === falling.length || falling[i + 1][0] !== certainty;
    if (last) points.push({ taken: i + 1, wrong, coverage: (i + 1) / falling.length, risk: wrong / (i + 1), certainty });
  });
  return points;
}

// AURC: trapezoids after each answer, with the average of all orders inside a tie.
function riskArea(points) {
  if (!points.length) return null;
  const all = points[points.length - 1].taken;
  let area = 0,
    before = { taken: 0, wrong: 0 },
    last = null;
  for (const point of points) {
    for (let taken = before.taken + 1; taken <= point.taken; taken++) {
      const share = (taken - before.taken) / (point.taken - before.taken);
      const risk = (before.wrong + share * (point.wrong - before.wrong)) / taken;
      area += ((last ?? risk) + risk) / 2 / all;
      last = risk;
    }
    before = point;
  }
  return area;
}
