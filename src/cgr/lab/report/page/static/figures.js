// Figures over the thinking: certainty, answers, Grade.

const EVERY_QUARTER = [0, 0.25, 0.5, 0.75, 1];

function plot(id) {
  return document.querySelector(`#${id} .plot`);
}

function drawCertainty(run, state, rows) {
  const host = plot("certainty");
  if (!run.probes.at.length) return showText(host, "No probe was recorded, so there is no certainty to show.");
  const chart = new Chart(host, {
    x: tokenAxis([0, run.budget]),
    y: numberAxis([0, 1.02], { ticks: EVERY_QUARTER }),
    label: "Average certainty at each step, of the traces still thinking and of all traces.",
  });
  chart.band(
    rows.map((row) => [row.step, row.band]),
    "accent",
  );
  chart.line(
    rows.map((row) => [row.step, row.carried]),
    "muted dashed",
  );
  chart.line(
    rows.map((row) => [row.step, row.running]),
    "accent",
  );
  if (state.theta <= 1) chart.across(state.theta, null);
  chart.down(state.budget, "cursor-now");
  chart.show(
    rows.map((row) => row.step),
    (i) => {
      const { step, running, n, carried } = rows[i];
      const thinking = n ? `${certaintyText(running)} over ${plural(n, "trace")} still thinking` : "no trace is still thinking";
      return `${tokens(step)} tokens: ${thinking}; ${certaintyText(carried)} over all`;
    },
  );
}

function drawCumulative(run, state, rows) {
  const host = plot("cumulative");
  const start = { step: 0, correct: 0, wrong: 0 },
    all = [start, ...rows];
  const chart = new Chart(host, {
    x: tokenAxis([0, state.budget]),
    y: numberAxis([0, Math.max(...rows.map((row) => Math.max(row.correct, row.wrong)), 1) * 1.06]),
    label:
      `Questions answered right and wrong by each step; at the end ${plainNumber(rows.at(-1).correct, 1)} and ` +
      `${plainNumber(rows.at(-1).wrong, 1)}.`,
  });
  chart.line(
    all.map((row) => [row.step, row.correct]),
    "right",
  );
  chart.line(
    all.map((row) => [row.step, row.wrong]),
    "wrong",
  );
  chart.show(
    rows.map((row) => row.step),
    (i) => {
      const { step, correct, wrong } = rows[i];
      return `By ${tokens(step)} tokens: ${plainNumber(correct, 1)} right, ${plainNumber(wrong, 1)} wrong`;
    },
  );
}

function drawRatio(run, state, rows) {
  const host = plot("ratio");
  if (!rows.some((row) => row.wrong > 0)) return showText(host, "No answer given is wrong.");
  const known = rows.filter((row) => row.ratio !== null);
  if (!known.length) return showText(host, "No answer given is right, so there is no ratio.");
  const chart = new Chart(host, {
    x: tokenAxis([0, state.budget]),
    y: numberAxis([0, Math.max(...known.map((row) => row.ratio)) * 1.08 || 1]),
    label: `Wrong answers for each right one by each step; at the end ${plainNumber(rows.at(-1).ratio, 2)}.`,
  });
  chart.line(
    known.map((row) => [row.step, row.ratio]),
    "wrong",
  );
  chart.show(
    known.map((row) => row.step),
    (i) => `By ${tokens(known[i].step)} tokens: ${plainNumber(known[i].ratio, 3)} wrong for each right`,
  );
}

function drawGrade(run, state, found, always) {
  const host = plot("grade-figure");
  if (!found.grades.length)
    return showText(host, "The budget is not longer than one interval: there is no step below it.");
  if (!found.answered)
    return showText(
      host,
      "Below the budget no answer reaches this threshold: nothing is answered, and every Grade is 0.",
    );
  const steps = run.steps.filter((step) => step < state.budget);
  const values = [...found.grades, ...always.map(([, value]) => value), found.baseline];
  const chart = new Chart(host, {
    x: tokenAxis([0, state.budget], "budget, thinking tokens"),
    y: numberAxis(around(values, { least: 1 })),
    label: `Grade by budget, penalty ${state.penalty}. Best: ${plainNumber(found.max, 2)} at ${tokens(found.step)} tokens.`,
  });
  chart.across(found.baseline, "baseline");
  chart.line(always, "muted dashed");
  chart.line(
    steps.map((step, k) => [step, found.grades[k]]),
    "accent",
  );
  chart.mark([found.step, found.max], `best ${plainNumber(found.max, 2)}`);
  const answering = new Map(always);
  chart.show(steps, (i) => {
    const other = answering.has(steps[i]) ? `, without abstention ${plainNumber(answering.get(steps[i]), 2)}` : "";
    return `Budget ${tokens(steps[i])}: Grade ${plainNumber(found.grades[i], 2)}${other}`;
  });
}

// Grade of a rerun at each budget without abstention: the sure probe before its end, else the answer of the baseline there.
function gradeAlways(run, state) {
  const budgets = run.budgets.filter((budget) => budget <= state.budget),
    right = budgets.map(() => 0);
  const ends = budgets.map((budget) => baselineRight(run, budget));
  for (const trace of run.traces) {
    if (!trace.graded) continue;
    const { cause, used, right: sure } = decide(run, trace, state.theta, run.budget);
    budgets.forEach((budget, k) => {
      right[k] += cause === "certainty" && used < budget ? Number(sure) : ends[k][trace.index];
    });
  }
  return budgets.map((budget, k) => [budget, (right[k] - state.penalty * (run.graded - right[k])) / run.seeds.length]);
}

function baselineRight(run, budget) {
  return cached(`right ${run.number} ${budget}`, () => {
    return Uint8Array.from(run.traces, (trace) => decide(run, trace, Infinity, budget).right);
  });
}
