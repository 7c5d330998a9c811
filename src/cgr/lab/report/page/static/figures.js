// What happens over the thinking: the trade-off, certainty, answers, Grade.

function plot(id) {
  return document.querySelector(`#${id} .plot`);
}

function tokenAxis(domain, title = "thinking tokens") {
  return { domain, format: shortTokens(domain[1]), title };
}

function countAxis(most) {
  return { domain: [0, Math.max(most, 1) * 1.05], format: shortTokens(most) };
}

// A little air above 100 % is not a place for a number.
function percentAxis(domain) {
  const digits = domain[1] - domain[0] < 0.04 ? 1 : 0;
  return {
    domain,
    format: (value) => percent(value, digits),
    ticks: ticks(...domain).filter((value) => value >= 0 && value <= 1),
  };
}

function drawTradeOff(run, state, now, { guided, cut }) {
  const host = plot("trade-off"),
    all = [...guided, ...cut];
  const most = Math.max(...all.map((point) => point.tokens), now.plain.tokens_mean);
  const chart = new Chart(host, {
    height: 330,
    x: tokenAxis([0, most * 1.04], "thinking tokens per question"),
    y: percentAxis(
      around([...all.map((point) => point.accuracy), now.plain.accuracy], { least: 0.06, floor: 0, ceiling: 1.01 }),
    ),
    label:
      `Accuracy against thinking tokens. Stopping at ${certaintyText(state.theta)}: ${percent(now.guided.accuracy)} with ` +
      `${tokens(now.guided.tokens_mean)} tokens. Baseline: ${percent(now.plain.accuracy)} with ` +
      `${tokens(now.plain.tokens_mean)}.`,
  });
  if (cut.length > 1)
    chart.line(
      cut.map((point) => [point.tokens, point.accuracy]),
      "muted dashed",
    );
  chart.line(
    guided.map((point) => [point.tokens, point.accuracy]),
    "accent",
  );
  chart.dot([now.plain.tokens_mean, now.plain.accuracy], "hollow", 5);
  chart.mark([now.guided.tokens_mean, now.accuracy.accuracy], `θ = ${certaintyText(state.theta)}`);
  const ordered = [...guided].sort((a, b) => a.tokens - b.tokens);
  chart.show(
    ordered.map((point) => point.tokens),
    (i) => {
      const { theta, tokens: used, accuracy } = ordered[i];
      return `θ ${certaintyText(theta)}: ${percent(accuracy)} right with ${tokens(used)} tokens per question`;
    },
  );
}

// Without truths the trade has one side left.
function drawTokensByThreshold(run, state, now, { guided }) {
  const places = guided.map((_, i) => i),
    shown = [0.5, 0.9, 0.99, 0.999, 1];
  const chart = new Chart(plot("trade-off"), {
    height: 330,
    x: {
      domain: [0, guided.length - 1],
      title: "certainty at which thinking stops",
      ticks: shown.map((theta) => guided.findIndex((point) => point.theta === theta)).filter((place) => place >= 0),
      format: (place) => certaintyText(guided[place].theta),
    },
    y: countAxis(now.plain.tokens_mean),
    label: `Thinking tokens per question by threshold; at ${certaintyText(state.theta)} ${tokens(now.guided.tokens_mean)}.`,
  });
  chart.across(now.plain.tokens_mean, "baseline");
  chart.line(
    guided.map((point, i) => [i, point.tokens]),
    "accent",
  );
  chart.mark(
    [
      nearest(
        guided.map((point) => point.theta),
        state.theta,
      ),
      now.guided.tokens_mean,
    ],
    `θ = ${certaintyText(state.theta)}`,
  );
  chart.show(places, (i) => `θ ${certaintyText(guided[i].theta)}: ${tokens(guided[i].tokens)} tokens per question`);
}

function drawCertainty(run, state, rows) {
  const host = plot("certainty");
  if (!run.probes.at.length) return sayInstead(host, "No probe was recorded, so there is no certainty to follow.");
  const chart = new Chart(host, {
    x: tokenAxis([0, run.budget]),
    y: { domain: [0, 1.02], format: certaintyText, ticks: [0, 0.25, 0.5, 0.75, 1] },
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
    rows.map((row) => [row.step, row.living]),
    "accent",
  );
  if (state.theta <= 1) chart.across(state.theta, null);
  chart.down(state.budget, "cursor-now");
  chart.show(
    rows.map((row) => row.step),
    (i) => {
      const { step, living, n, carried } = rows[i];
      const alive = n ? `${certaintyText(living)} over ${plural(n, "trace")} still thinking` : "no trace is still thinking";
      return `${tokens(step)} tokens: ${alive}; ${certaintyText(carried)} over all`;
    },
  );
}

function drawCumulative(run, state, rows) {
  const host = plot("cumulative");
  const start = { step: 0, correct: 0, wrong: 0 },
    all = [start, ...rows];
  const chart = new Chart(host, {
    x: tokenAxis([0, state.budget]),
    y: {
      domain: [0, Math.max(...rows.map((row) => Math.max(row.correct, row.wrong)), 1) * 1.06],
      format: (value) => plainNumber(value, value % 1 ? 1 : 0),
    },
    label:
      `Questions answered right and wrong by each step; in the end ${plainNumber(rows.at(-1).correct, 1)} and ` +
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
  if (!rows.some((row) => row.wrong > 0)) return sayInstead(host, "No answer that was given is wrong.");
  const known = rows.filter((row) => row.ratio !== null);
  if (!known.length) return sayInstead(host, "No answer that was given is right, so there is nothing to divide by.");
  const chart = new Chart(host, {
    x: tokenAxis([0, state.budget]),
    y: { domain: [0, Math.max(...known.map((row) => row.ratio)) * 1.08 || 1], format: (value) => plainNumber(value, 2) },
    label: `Wrong answers for each right one by each step; in the end ${plainNumber(rows.at(-1).ratio, 2)}.`,
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
    return sayInstead(host, "The budget is no longer than one interval: there is no step below it.");
  if (!found.answered)
    return sayInstead(
      host,
      "Below the budget nothing is sure at this threshold: nothing is answered, and every Grade is 0.",
    );
  const steps = run.steps.filter((step) => step < state.budget);
  const values = [...found.grades, ...always.map(([, value]) => value), found.baseline];
  const chart = new Chart(host, {
    x: tokenAxis([0, state.budget], "budget, thinking tokens"),
    y: { domain: around(values, { least: 1 }), format: (value) => plainNumber(value, value % 1 ? 1 : 0) },
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
    const other = answering.has(steps[i]) ? `, answering always ${plainNumber(answering.get(steps[i]), 2)}` : "";
    return `Budget ${tokens(steps[i])}: Grade ${plainNumber(found.grades[i], 2)}${other}`;
  });
}

// Grade of a rerun with each budget that answers always: the sure probe before its end, else what the baseline says there.
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
  return remembered(`right ${run.number} ${budget}`, () => {
    return Uint8Array.from(run.traces, (trace) => decide(run, trace, Infinity, budget).right);
  });
}
