// The first figure: accuracy against tokens at every threshold, beside fixed budgets; without known answers, tokens only.

const SHOWN_LOSS = 0.2; // figures of accuracy show at most this much below the baseline

function drawTradeOff(run, state, now, { byThreshold, byBudget }) {
  const { cost_mean: cost, fixed_accuracy: fixed } = now.adaptive,
    base = now.baseScore,
    accuracy = now.cgrScore.accuracy;
  const span = accuracySpan(base.accuracy, [accuracy, fixed, ...byThreshold.map((point) => point.accuracy)], byBudget);
  const most = Math.max(...[...byThreshold, ...byBudget].map((point) => point.cost), base.tokens_mean, cost);
  const chart = new Chart(plot("trade-off"), {
    height: 340,
    x: tokenAxis([0, most * 1.04], "tokens per question, probes included"),
    y: percentAxis(span),
    label:
      `Accuracy against tokens, probes included. Stopping at ${certaintyText(state.theta)}: ${percent(accuracy)} with ` +
      `${tokens(cost)} tokens. ${fixed === null ? "" : `A fixed budget of the same cost: ${percent(fixed)}. `}` +
      `Baseline: ${percent(base.accuracy)} with ${tokens(base.tokens_mean)}.`,
  });
  chart.line(byBudget.map(placeOf), "muted dashed");
  chart.line(byThreshold.map(placeOf), "accent");
  chart.dot([base.tokens_mean, base.accuracy], "hollow", 5);
  if (fixed !== null && fixed >= span[0]) {
    chart.line([[cost, fixed], [cost, accuracy]], "muted thin");
    chart.square([cost, fixed], "hollow");
  }
  chart.mark([cost, accuracy], `θ = ${certaintyText(state.theta)}`);
  const ordered = [...byThreshold].sort((a, b) => a.cost - b.cost);
  chart.show(
    ordered.map((point) => point.cost),
    (i) => readTradeOff(ordered[i], byBudget.length > 1 ? fixedAt(byBudget, ordered[i].cost) : null),
  );
}

function placeOf(point) {
  return [point.cost, point.accuracy];
}

function readTradeOff({ theta, cost, accuracy }, fixed) {
  const beside = fixed === null ? "" : `; a fixed budget of the same cost: ${percent(fixed)}`;
  return `θ ${certaintyText(theta)}: ${percent(accuracy)} with ${tokens(cost)} tokens per question${beside}`;
}

// The accuracies that a figure shows: those of the rule in any case, those of fixed budgets only if they are near.
function accuracySpan(baseline, ofRule, byBudget) {
  const low = Math.min(...ofRule.filter((one) => one !== null), baseline),
    high = Math.max(...ofRule.filter((one) => one !== null), ...byBudget.map((point) => point.accuracy), baseline);
  return around([Math.max(low, baseline - SHOWN_LOSS), high], { least: 0.06, floor: 0, ceiling: 1.01 });
}

// Without known answers there is no accuracy to show.
function drawTokensByThreshold(run, state, now, { byThreshold }) {
  const host = plot("trade-off"),
    base = now.baseScore.tokens_mean,
    cost = now.adaptive.cost_mean;
  const named = [0.5, 0.9, 0.99, 0.999, 0.9999, 1],
    first = doubtPlace(byThreshold[0].theta);
  const chart = new Chart(host, {
    height: 340,
    x: {
      domain: [Math.min(first, doubtPlace(state.theta)), 5],
      title: "certainty at which thinking stops",
      ticks: named.map(doubtPlace).filter((place) => place >= first),
      labels: (places) => places.map((place) => certaintyText(named.find((theta) => doubtPlace(theta) === place))),
    },
    y: countAxis(Math.max(base, cost, ...byThreshold.map((point) => point.cost))),
    label: `Tokens per question by threshold, probes included; at ${certaintyText(state.theta)} ${tokens(cost)}.`,
  });
  chart.across(base, "baseline");
  chart.line(byThreshold.map((point) => [doubtPlace(point.theta), point.cost]), "accent");
  chart.mark([doubtPlace(state.theta), cost], `θ = ${certaintyText(state.theta)}`);
  chart.show(
    byThreshold.map((point) => doubtPlace(point.theta)),
    (i) => `θ ${certaintyText(byThreshold[i].theta)}: ${tokens(byThreshold[i].cost)} tokens per question`,
  );
}
