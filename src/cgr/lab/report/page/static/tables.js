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
  const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": words.textContent }, rows);
  const hint = make("p", { class: "scroll-hint" }, "Scroll this table sideways to see all its columns.");
  return [words, make("div", { class: "scroller" }, scroll), hint];
}

// Marks the tables that are wider than their place: a shadow on each side that hides columns, and a sentence.
function markScrolling() {
  for (const scroll of document.querySelectorAll(".scroll")) {
    const rest = scroll.scrollWidth - scroll.clientWidth;
    scroll.parentElement.classList.toggle("is-wide", rest > 1);
    scroll.parentElement.classList.toggle("more-left", scroll.scrollLeft > 1);
    scroll.parentElement.classList.toggle("more-right", scroll.scrollLeft < rest - 1);
    scroll.onscroll ??= markScrolling;
  }
}

// Where each table is scrolled to, so that a new drawing keeps it.
function scrolledTables() {
  const places = [...document.querySelectorAll(".scroll")].map((one) => [one.closest("[id]").id, one.scrollLeft]);
  return new Map(places.filter(([, left]) => left > 0));
}

function restoreScrolled(places) {
  places.forEach((left, id) => byId(id).querySelector(".scroll")?.scrollTo({ left, behavior: "instant" }));
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
  return { accuracy: { ...made.accuracy, ci_low, ci_high }, savings: made.savings, adaptive: adaptiveRow(run, settings, made) };
}

function scoreAt(run, settings) {
  const key = `row ${run.number} ${settings.theta} ${settings.budget} ${settings.abstain}`;
  return cached(key, () => summary(run, settings, score(run, settings)));
}

// The interval of the gain is computed only for the report: the page shows it at the thresholds of the report.
function adaptiveRow(run, settings, made) {
  const row = atWholeBudget(run, settings) && run.report.adaptive?.find((found) => found.threshold === settings.theta);
  const [gain_low, gain_high] = row?.ci95 ?? [null, null];
  return { ...made.adaptive, gain_low, gain_high };
}

function fixedTable(run, state, thresholds, now) {
  if (!run.probes.at.length)
    return make("p", { class: "instead" }, "No probe was recorded, so there is neither a rule nor a smaller budget to compare.");
  const columns = [
    THRESHOLD,
    { metric: "cost_mean", title: "Tokens", format: one, help: "per question: thinking, and tokens decoded by probes" },
    { metric: "accuracy", title: "CGR", format: percent, help: "share of right answers" },
    { metric: "fixed_accuracy", title: "Fixed budget", format: percent, help: "of the same cost" },
    { metric: "gain_points", title: "Gain", format: (value) => points(value, 2), help: "percentage points, CGR minus fixed budget" },
    { metric: "gain_low", title: "95 % from", format: (value) => points(value, 2), help: "interval of the gain, over questions" },
    { metric: "gain_high", title: "to", format: (value) => points(value, 2) },
    {
      metric: "fixed_cost_for_same_accuracy",
      title: "Fixed, same accuracy",
      format: one,
      help: "tokens per question that a fixed budget needs for the accuracy of CGR; a dash: no fixed budget reaches it",
    },
  ];
  const rows = thresholdRows(run, state, thresholds, now, (made) => made.adaptive);
  return table("CGR beside a fixed budget that costs as many tokens per question.", columns, rows);
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
    { metric: "net_share", title: "Net share", format: percent, help: "of the baseline's thinking tokens, net of probes" },
    { metric: "net_total", title: "Net", format: whole, help: "saved thinking minus the probe tokens" },
    { metric: "disagreement", title: "Changed", format: percent, help: "answers that differ from the final one of their trace" },
    { metric: "total", title: "Thinking saved", format: whole, help: "all traces, against their natural length" },
    { metric: "share", title: "Share", format: percent, help: "of the baseline's thinking tokens" },
    { metric: "probe_tokens", title: "Probes", format: whole, help: "tokens decoded by probes" },
    { metric: "per_seed", title: "Per seed", format: whole, help: "thinking saved" },
    { metric: "per_question", title: "Per question", format: one, help: "thinking saved, mean over questions and seeds" },
    { metric: "against_budget_total", title: "Against budget", format: whole, help: "unused tokens of the full budget" },
  ];
  const caption = "Tokens saved against each trace's natural length: net of probe tokens, and thinking alone.";
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
    { metric: "tokens", title: "tokens", format: one, help: "per question, probes included" },
    { metric: "net_share", title: "Saved, net", format: percent },
  ];
  const rows = run.budgets.map((budget) => {
    const { baseScore, cgrScore, savings, adaptive } = score(run, { ...state, budget });
    return {
      attributes: { "data-budget": budget, class: budget === state.budget ? "current" : null },
      values: {
        budget,
        plain_accuracy: baseScore.accuracy,
        plain_tokens: baseScore.tokens_mean,
        accuracy: cgrScore.accuracy,
        tokens: adaptive.cost_mean,
        net_share: savings.net_share,
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
    { metric: "fixed_accuracy", title: "Fixed budget", format: percent, help: "of the same cost" },
    { metric: "net_share", title: "Saved, net", format: percent },
    { metric: "share", title: "Thinking saved", format: percent },
    { metric: "cost_mean", title: "Tokens per question", format: one, help: "probes included" },
  ];
  const head = make(
    "tr",
    {},
    make("th", { scope: "col" }, "Run"),
    columns.map((column) => make("th", { scope: "col", title: column.help ?? null }, column.title)),
  );
  const body = runs
    .filter((run) => run.traces.length)
    .map((run) => {
      const made = score(run, { theta: state.theta, budget: run.budget, abstain: state.abstain });
      const values = { ...made.adaptive, ...made.accuracy, ...made.savings, baseline: made.baseScore.accuracy };
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
