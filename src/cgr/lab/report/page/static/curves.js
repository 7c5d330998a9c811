// Computes the series that the figures show.

// Cost (thinking and probe tokens) and accuracy at each threshold.
function costByThreshold(run, budget, abstain) {
  return SLIDER_THRESHOLDS.filter((theta) => theta > run.highestBound).map((theta) => {
    const decisions = decideAll(run, theta, budget);
    return { theta, ...costAndAccuracy(run, decisions, (decision) => !abstain || isSure(decision, theta)) };
  });
}

// Cost and accuracy of each fixed budget up to `budget`: it makes no probes, and always answers.
function costByBudget(run, budget) {
  const all = cached(`fixed ${run.number}`, () =>
    run.budgets.map((one) => {
      const decisions = decideAll(run, Infinity, one).map((decision) => ({ ...decision, probeTokens: 0 }));
      return { budget: one, ...costAndAccuracy(run, decisions, () => true) };
    }),
  );
  return all.filter((point) => point.budget <= budget);
}

function costAndAccuracy(run, decisions, isGiven) {
  let cost = 0,
    right = 0;
  decisions.forEach((decision, i) => {
    cost += decision.used + decision.probeTokens;
    if (run.traces[i].graded && decision.right && isGiven(decision)) right += 1;
  });
  return { cost: cost / decisions.length, accuracy: run.graded ? right / run.graded : null };
}

// The rule beside a fixed budget of the same cost, with the names of report.json.
function adaptive(run, budget, cost_mean, accuracy) {
  const curve = costByBudget(run, budget);
  const known = accuracy !== null && curve.length > 1;
  const fixed_accuracy = known ? fixedAt(curve, cost_mean) : null;
  return {
    cost_mean,
    accuracy,
    fixed_accuracy,
    gain_points: fixed_accuracy === null ? null : 100 * (accuracy - fixed_accuracy),
    fixed_cost_for_same_accuracy: known ? fixedCostOf(curve, accuracy) : null,
  };
}

// The accuracy of fixed budgets at this mean cost: linear between neighbours, level above the last; null below the first.
function fixedAt(curve, cost) {
  if (cost < curve[0].cost - 1e-9) return null;
  const place = between(curve.findLastIndex((point) => point.cost <= cost), 0, curve.length - 2);
  const [before, after] = [curve[place], curve[place + 1]];
  const share = between((cost - before.cost) / (after.cost - before.cost || 1), 0, 1);
  return before.accuracy + share * (after.accuracy - before.accuracy);
}

// The least mean cost at which fixed budgets reach this accuracy; null if they never do.
function fixedCostOf(curve, accuracy) {
  const first = curve.findIndex((point) => point.accuracy >= accuracy - 1e-12);
  if (first <= 0) return first < 0 ? null : curve[0].cost;
  const [before, after] = [curve[first - 1], curve[first]];
  const share = between((accuracy - before.accuracy) / (after.accuracy - before.accuracy), 0, 1);
  return before.cost + share * (after.cost - before.cost);
}

function between(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

// The certainty of an answer; 0 if it did not close.
function closedCertainty(columns, i) {
  return columns.flags[i] & CLOSED ? columns.certainty[i] : 0;
}

// Mean certainty at each step: of the traces still thinking, with its spread over seeds, and of all traces, where an ended
// trace keeps its final certainty.
function certaintySteps(run) {
  const rows = run.steps.map((step) => ({ step, n: 0, carried: 0, seeds: run.seeds.map(() => [0, 0]) }));
  for (const trace of run.traces) {
    let probe = trace.from,
      last = 0;
    for (const row of rows) {
      while (probe < trace.to && run.probes.at[probe] <= row.step) last = closedCertainty(run.probes, probe++);
      const ended = trace.tokens < row.step;
      row.carried += ended ? closedCertainty(run.finals, trace.index) : last;
      if (ended || probe === trace.from || run.probes.at[probe - 1] !== row.step) continue;
      row.n += 1;
      row.seeds[trace.seed][0] += last;
      row.seeds[trace.seed][1] += 1;
    }
  }
  return rows.map((row) => means(row, run.traces.length));
}

function means({ step, n, carried, seeds }, traces) {
  const running = n ? total(seeds.map(([sum]) => sum)) / n : null;
  const sd = deviation(seeds.filter(([, count]) => count).map(([sum, count]) => sum / count));
  const band = sd === null ? null : [Math.max(0, running - sd), Math.min(1, running + sd)];
  return { step, n, running, band, carried: carried / traces };
}

// Answers given by each step: at a sure probe, or after the end of the thinking; the rest is given at the budget.
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

// A histogram of the certainty of closed probes.
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

// The graded answers that were given, as [certainty, right].
function gradedAnswers(run, decisions, given) {
  const found = [];
  decisions.forEach((decision, i) => {
    if (run.traces[i].graded && given[i]) found.push([decision.closed ? decision.certainty : 0, decision.right]);
  });
  return found;
}

// Bins of equal width that include their upper end; empty ones are left out.
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

// The share of wrong answers among the most certain ones; answers of equal certainty are taken together.
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

// AURC by the trapezoid rule; among answers of equal certainty, the mean over all orders.
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
