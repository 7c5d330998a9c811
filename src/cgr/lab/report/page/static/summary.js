// What stands beside the first figure: the baseline, a fixed budget of the same cost and the rule, and facts about the run.

function nowTable(run, state, now) {
  const titles = ["", "Baseline", "Fixed budget, same cost", "CGR"].filter((_, i) => run.graded || i !== 2);
  const body = nowRows(run, state, now).map(({ title, metric, values, format, change, part }) => {
    const [plain, fixed, guided] = values.map((value) => (value === undefined ? null : value));
    const cells = [
      number(`plain.${metric}`, plain, format(plain), "td"),
      run.graded ? number(`fixed.${metric}`, fixed, format(fixed), "td") : null,
      number(`guided.${metric}`, guided, format(guided), "td"),
    ];
    if (change) cells[2].append(make("span", { class: "span" }, change));
    return make("tr", { class: part ? "part" : null }, make("th", { scope: "row" }, title), cells);
  });
  const head = make("tr", {}, titles.map((title) => make("th", { scope: "col" }, title)));
  return make("table", { class: "now" }, make("thead", {}, head), make("tbody", {}, body));
}

function nowRows(run, state, { baseScore, cgrScore, accuracy, savings, adaptive }) {
  const cost = adaptive.cost_mean,
    probes = cost - cgrScore.tokens_mean;
  const rows = [
    { title: "Tokens per question", metric: "cost_mean", values: [baseScore.tokens_mean, cost, cost], format: one, change: changeOf(savings) },
    { title: "thinking", metric: "tokens_mean", values: [baseScore.tokens_mean, cost, cgrScore.tokens_mean], format: one, part: true },
    { title: "probes", metric: "probe_tokens_mean", values: [0, 0, probes], format: one, part: true },
  ];
  if (!run.graded) return rows;
  const change = `${points(accuracy.diff_points)} points`;
  rows.unshift({
    title: "Accuracy",
    metric: "accuracy",
    values: [baseScore.accuracy, adaptive.fixed_accuracy, cgrScore.accuracy],
    format: percent,
    change,
  });
  const spread = (value) => plainNumber(value === null ? null : 100 * value, 1);
  if (baseScore.sd !== null)
    rows.push({ title: "SD over seeds, points", metric: "sd", values: [baseScore.sd, null, cgrScore.sd], format: spread });
  if (state.abstain) rows.push(...abstentionRows(baseScore, cgrScore));
  return rows;
}

function changeOf({ net_share: share }) {
  return share ? points(-100 * share) + "\u00a0%" : "no change";
}

function abstentionRows(baseScore, cgrScore) {
  return [
    { title: "Answered", metric: "coverage", values: [baseScore.coverage, 1, cgrScore.coverage], format: percent },
    {
      title: "Right among the answers given",
      metric: "selective",
      values: [baseScore.selective, null, cgrScore.selective],
      format: percent,
    },
  ];
}

function facts(run, state, now) {
  if (!run.probes.at.length) return make("p", { class: "instead" }, "Nothing can be stopped or saved: no probe was recorded.");
  const lines = [
    ["Stopped early", `${plainNumber(now.fired)} of ${plural(run.traces.length, "trace")}`],
    ["Saved, net", savedText(now.savings)],
  ];
  if (now.adaptive.fixed_accuracy !== null)
    lines.push(["Gain", gainText(adaptiveRow(run, state, now))], ["Same accuracy", sameAccuracyText(now.adaptive)]);
  if (run.graded && run.seeds.length > 1) {
    const { better, equal, worse } = now.accuracy;
    lines.push(["Seeds", `${better} better, ${equal} equal, ${worse} worse than the baseline`]);
  }
  return make("dl", {}, lines.map(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
}

// How the run was made. What its recording does not say is unknown.
function madeBy(run) {
  const { info } = run;
  const unknown = make("span", { class: "quiet" }, "unknown");
  const text = (value) => (value === null || value === undefined || value === "" ? unknown.cloneNode(true) : String(value));
  const lines = [
    ["Name", text(info.name)],
    ["Model", text(info.model)],
    ["Engine", text(info.engine)],
    ["Questions", text(info.source)],
    ["Temperature", text(info.temperature)],
    ["Probe prefix", info.prefix ? make("code", {}, info.prefix) : text(info.prefix)],
    ["Budget", `${tokens(info.budget)} thinking tokens`],
    ["Probes", probing(run)],
  ];
  return lines.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
}

function probing(run) {
  if (!run.probes.at.length) return "not probed";
  return run.onGrid ? `probed every ${tokens(run.interval)}` : "probed at irregular positions";
}

function savedText({ net_total: net, total: thinking, probe_tokens: probes }) {
  return `${plural(net, "token")}: ${tokens(thinking)} of thinking, minus ${tokens(probes)} for probes`;
}

function gainText({ gain_points: gain, gain_low: low, gain_high: high }) {
  const interval = low === null ? "" : ` (95\u00a0% interval ${points(low)} to ${points(high)})`;
  return `${points(gain)} points over a fixed budget of the same cost${interval}`;
}

function sameAccuracyText({ fixed_cost_for_same_accuracy: cost }) {
  return cost === null
    ? "no fixed budget reaches the accuracy of CGR"
    : `a fixed budget needs ${one(cost)} tokens per question for the accuracy of CGR`;
}
