// Tables. A column has a metric, a title and a format; every number has its raw value in `data-value`.

const whole = (value) => plainNumber(value);
const one = (value) => plainNumber(value, 1);
const two = (value) => plainNumber(value, 2);

function table(caption, columns, rows) {
  const head = make(
    "tr",
    {},
    columns.map((column) => make("th", { scope: "col", title: column.help ?? null }, column.title)),
  );
  const body = rows.map(({ attributes = {}, values }) => {
    const cells = columns.map((column, i) => {
      const cell = number(column.metric, values[column.metric], column.format(values[column.metric]), i ? "td" : "th");
      if (!i) cell.setAttribute("scope", "row");
      return cell;
    });
    return make("tr", attributes, cells);
  });
  return captioned(caption, head, body);
}

// The caption is outside of the table, so that it stays in place when a wide table is scrolled.
function captioned(caption, head, body) {
  const words = make("p", { class: "caption" }, caption);
  const rows = make("table", {}, make("thead", {}, head), make("tbody", {}, body));
  return [words, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": words.textContent }, rows)];
}

// Rows for the thresholds of the report and for the one that is set.
function thresholdRows(run, state, thresholds, now, pick) {
  const all = [...new Set([...thresholds, state.theta])].filter((theta) => theta > run.highestBound).sort((a, b) => a - b);
  return all.map((theta) => {
    const current = theta === state.theta;
    const made = current ? summary(run, state, now) : scoreAt(run, { ...state, theta });
    return {
      attributes: { "data-threshold": theta, class: current ? "current" : null, "aria-current": current ? "true" : null },
      values: { threshold: theta, ...pick(made) },
    };
  });
}

function summary(run, settings, made) {
  const [ci_low, ci_high] = intervalAt(run, settings, made) ?? [null, null];
  return { accuracy: { ...made.accuracy, ci_low, ci_high }, savings: made.savings };
}

function scoreAt(run, settings) {
  const key = `row ${run.number} ${settings.theta} ${settings.budget} ${settings.abstain}`;
  return cached(key, () => summary(run, settings, score(run, settings)));
}

const THRESHOLD = { metric: "threshold", title: "θ", format: certaintyText };

function accuracyTable(run, state, thresholds, now) {
  const columns = [
    THRESHOLD,
    { metric: "correct_mean", title: "Acc.", format: two, help: "questions right, mean over seeds" },
    { metric: "accuracy", title: "Rel. acc.", format: percent, help: "share of right answers" },
    { metric: "diff_mean", title: "Diff.", format: (value) => points(value, 2), help: "questions, against the baseline" },
    {
      metric: "diff_points",
      title: "Points",
      format: (value) => points(value, 2),
      help: "percentage points; the paper's Rel. Diff.",
    },
    {
      metric: "diff_relative",
      title: "Ratio",
      format: (value) => (value > 0 ? "+" : "") + percent(value),
      help: "difference / baseline",
    },
    { metric: "equal", title: "Equal", format: whole, help: "seeds" },
    { metric: "better", title: "Better", format: whole, help: "seeds" },
    { metric: "worse", title: "Worse", format: whole, help: "seeds" },
    {
      metric: "ci_low",
      title: "95 % from",
      format: (value) => points(value, 2),
      help: "interval of Diff., over questions",
    },
    { metric: "ci_high", title: "to", format: (value) => points(value, 2) },
  ];
  const rows = thresholdRows(run, state, thresholds, now, (made) => made.accuracy);
  const { correct_mean, accuracy, sd } = now.baseScore;
  const spread =
    sd === null
      ? ""
      : `; standard deviation over seeds ${plainNumber(100 * sd, 1)} points, with CGR ${plainNumber(100 * now.cgrScore.sd, 1)}`;
  return table(
    [
      "Baseline: ",
      number("baseline.correct_mean", correct_mean, two(correct_mean)),
      " questions right on average, ",
      number("baseline.accuracy", accuracy, percent(accuracy)),
      spread,
      ".",
    ],
    columns,
    rows,
  );
}

function savingsTable(run, state, thresholds, now) {
  const columns = [
    THRESHOLD,
    { metric: "total", title: "Saved", format: whole, help: "thinking tokens, all traces, against their natural length" },
    { metric: "share", title: "Share", format: percent, help: "of the baseline's thinking tokens" },
    { metric: "per_seed", title: "Per seed", format: whole },
    { metric: "per_question", title: "Per question", format: one, help: "mean over questions and seeds" },
    { metric: "probe_tokens", title: "Probes", format: whole, help: "tokens decoded by probes" },
    { metric: "net_total", title: "Net", format: whole, help: "saved minus the probe tokens" },
    { metric: "net_share", title: "Net share", format: percent },
    { metric: "against_budget_total", title: "Against budget", format: whole, help: "unused tokens of the full budget" },
  ];
  const caption = "Thinking tokens saved against each trace's natural length, gross and net of probe tokens.";
  return table(
    caption,
    columns,
    thresholdRows(run, state, thresholds, now, (made) => made.savings),
  );
}

function gradeTable(run, state, penalties, now, curve) {
  const columns = [
    { metric: "penalty", title: "Penalty", format: (value) => plainNumber(value, 2) },
    {
      metric: "final",
      title: "Final",
      format: two,
      help: "Grade at the last step below the budget, with abstention",
    },
    { metric: "baseline", title: "Baseline", format: two, help: "answers every question at the budget" },
    { metric: "diff", title: "Diff.", format: (value) => points(value, 2) },
    { metric: "max", title: "Max", format: two },
    { metric: "step", title: "Step", format: whole, help: "the earliest budget with the best Grade" },
  ];
  const all = [...new Set([...penalties, state.penalty])].sort((a, b) => a - b);
  const rows = all.map((penalty) => ({
    attributes: {
      "data-threshold": state.theta,
      "data-penalty": penalty,
      class: penalty === state.penalty ? "current" : null,
    },
    values: { penalty, ...grade(curve, now.baseScore, penalty) },
  }));
  const caption =
    `Grade at θ = ${certaintyText(state.theta)}: right answers minus the penalty for each wrong one, ` +
    "without answers below θ.";
  return table(caption, columns, rows);
}

function sweepTable(run, state) {
  const columns = [
    { metric: "budget", title: "Budget", format: whole },
    { metric: "plain_accuracy", title: "Baseline", format: percent, help: "thinking cut at this budget" },
    { metric: "plain_tokens", title: "tokens", format: one, help: "thinking tokens per question" },
    { metric: "accuracy", title: "CGR", format: percent },
    { metric: "tokens", title: "tokens", format: one },
    { metric: "share", title: "Saved", format: percent },
  ];
  const rows = run.budgets.map((budget) => {
    const { baseScore, cgrScore, savings } = score(run, { ...state, budget });
    return {
      attributes: { "data-budget": budget, class: budget === state.budget ? "current" : null },
      values: {
        budget,
        plain_accuracy: baseScore.accuracy,
        plain_tokens: baseScore.tokens_mean,
        accuracy: cgrScore.accuracy,
        tokens: cgrScore.tokens_mean,
        share: savings.share,
      },
    };
  });
  return table(`Reruns at every budget, at θ = ${certaintyText(state.theta)}.`, columns, rows);
}

function runsTable(runs, state) {
  const columns = [
    { metric: "baseline", title: "Baseline", format: percent },
    { metric: "accuracy", title: "CGR", format: percent },
    { metric: "diff_points", title: "Points", format: (value) => points(value, 2) },
    { metric: "share", title: "Saved", format: percent },
    { metric: "net_share", title: "Net", format: percent },
    { metric: "tokens", title: "Tokens per question", format: one },
  ];
  const head = make(
    "tr",
    {},
    make("th", { scope: "col" }, "Run"),
    columns.map((column) => make("th", { scope: "col" }, column.title)),
  );
  const body = runs
    .filter((run) => run.traces.length)
    .map((run) => {
      const made = score(run, { theta: state.theta, budget: run.budget, abstain: state.abstain });
      const values = { ...made.accuracy, ...made.savings, baseline: made.baseScore.accuracy, tokens: made.cgrScore.tokens_mean };
      const cells = columns.map(({ metric, format }) => number(metric, values[metric], format(values[metric]), "td"));
      return make(
        "tr",
        { "data-run": run.info.name, class: run === state.run ? "current" : null },
        make("th", { scope: "row" }, run.info.name),
        cells,
      );
    });
  const caption = `Every run at θ = ${certaintyText(state.theta)}, each with its full budget.`;
  return captioned(caption, head, body);
}

// The table beside the main figure: baseline and rule at the current settings.
function nowTable(run, state, now) {
  const { baseScore, cgrScore, accuracy, savings } = now;
  const rows = [
    ["Thinking tokens per question", "tokens_mean", baseScore.tokens_mean, cgrScore.tokens_mean, one, change(savings.share)],
  ];
  if (run.graded) {
    rows.unshift([
      "Accuracy",
      "accuracy",
      baseScore.accuracy,
      cgrScore.accuracy,
      percent,
      `${points(accuracy.diff_points)} points`,
    ]);
    rows.splice(1, 0, [
      "Questions right, per seed",
      "correct_mean",
      baseScore.correct_mean,
      cgrScore.correct_mean,
      two,
      points(accuracy.diff_mean, 2),
    ]);
    if (baseScore.sd !== null)
      rows.push(["SD over seeds, points", "sd", baseScore.sd, cgrScore.sd, (value) => plainNumber(100 * value, 1), ""]);
    if (state.abstain) rows.push(...abstentionRows(baseScore, cgrScore));
  }
  const head = make(
    "tr",
    {},
    ["", "Baseline", "CGR", "Change"].map((title) => make("th", { scope: "col" }, title)),
  );
  const body = rows.map(([title, metric, before, after, format, difference]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, title),
      number(`plain.${metric}`, before, format(before), "td"),
      number(`guided.${metric}`, after, format(after), "td"),
      make("td", { class: "change" }, difference),
    ),
  );
  return make("table", { class: "now" }, make("thead", {}, head), make("tbody", {}, body));
}

function change(share) {
  return share > 0 ? `${MINUS}${percent(share)}` : "none";
}

function abstentionRows(baseScore, cgrScore) {
  return [
    ["Answered", "coverage", baseScore.coverage, cgrScore.coverage, percent, ""],
    ["Right among the answers given", "selective", baseScore.selective, cgrScore.selective, percent, ""],
  ];
}

function facts(run, now) {
  const { savings, accuracy } = now;
  const lines = [
    ["Stopped early", `${plainNumber(now.fired)} of ${plural(run.traces.length, "trace")}`],
    [
      "Saved",
      `${tokens(savings.total)} tokens; net ${tokens(savings.net_total)} (${percent(savings.net_share)})`,
    ],
  ];
  if (run.graded && run.seeds.length > 1) {
    lines.push(["Seeds", `${accuracy.better} better, ${accuracy.equal} equal, ${accuracy.worse} worse than the baseline`]);
  }
  return make(
    "dl",
    {},
    lines.map(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]),
  );
}
