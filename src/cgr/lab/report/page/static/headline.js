// The first sentence of the page, as strings and numbers with a metric name. What cannot be computed is explained in words.

function headline(run, state, now, ci) {
  const threshold = certaintyText(state.theta);
  if (!run.probes.at.length)
    return ["No probe was recorded in this run, so no threshold can stop its thinking", ...unchanged(run, now)];
  if (!now.fired) {
    const cost = now.savings.probe_tokens ? [", and the probes cost ", netShare(-now.savings.net_share), " more tokens"] : [];
    return [`At a threshold of ${threshold} no trace stopped early: no probe of this run reached it`, ...cost, ...unchanged(run, now)];
  }
  const gain = gainClause(adaptiveRow(run, state, now));
  return [`Stopping at a certainty of ${threshold} `, ...netClause(now.savings), ...accuracyClause(run, now, ci, gain)];
}

function netClause({ net_share: share, net_total: saved }) {
  if (saved > 0) return ["saves ", netShare(share), " of the tokens, net of its probes,"];
  if (saved === 0) return ["saves no tokens, because its probes cost as much as it saves,"];
  return ["costs ", netShare(-share), " more tokens than full thinking, because its probes cost more than it saves,"];
}

function netShare(share) {
  return strong("headline.net_share", share, percent(share, Math.abs(share) < 0.1 ? 1 : 0));
}

function unchanged(run, now) {
  if (!run.graded) return [". No question has a known answer, so accuracy is not reported."];
  const { accuracy } = now.baseScore;
  return [". The accuracy of the baseline is ", strong("headline.accuracy", accuracy, percent(accuracy)), "."];
}

function accuracyClause(run, now, ci, gain) {
  if (!run.graded) return [" compared with full thinking. No question has a known answer, so accuracy is not reported."];
  const { diff_points: diff, accuracy } = now.accuracy;
  const change = strong("headline.diff_points", diff, `${points(diff)} points`);
  if (now.baseScore.accuracy === 1 && accuracy === 1)
    return [" and every answer is right with the rule and without it; ", ...gain];
  const clause = diff === 0 ? [" and does not change accuracy"] : [" and changes accuracy by ", change];
  return [...clause, intervalClause(run, ci), ...gain];
}

function intervalClause(run, ci) {
  if (!ci) return " (an interval needs at least two questions); ";
  const [low, high] = ci.map((end) => points((100 * end * run.seeds.length) / run.graded));
  return ` (95\u00a0% interval ${low} to ${high}); `;
}

// The gain over a fixed budget of the same cost, and what that budget gets.
function gainClause({ accuracy, fixed_accuracy: fixed, gain_points: gain, gain_low: low, gain_high: high }) {
  if (fixed === null) return ["no smaller budget was recorded to compare with."];
  const interval = low === null ? "" : ` (95\u00a0% interval ${points(low)} to ${points(high)})`;
  const change = gain < 0 ? "loses " : "gains ";
  return [
    `against a fixed budget of the same cost it ${change}`,
    strong("headline.gain_points", gain, `${plainNumber(Math.abs(gain), 1)} points`),
    `${interval}: `,
    strong("headline.accuracy", accuracy, percent(accuracy)),
    " right, not ",
    strong("headline.fixed_accuracy", fixed, percent(fixed)),
    ".",
  ];
}

function strong(metric, value, text) {
  return { metric, value, text };
}
