// Figures of certainty: its distribution, calibration, and risk against coverage.

function drawHistogram(run, { rows, count }) {
  const host = plot("histogram");
  if (!count) return showText(host, "No probe of this run has a closed answer.");
  const share = ({ right, wrong, unknown }) => (right + wrong + unknown) / count;
  const chart = new Chart(host, {
    height: 230,
    x: numberAxis([0, 1], { ticks: EVERY_QUARTER, title: "certainty of a probe" }),
    y: percentAxis([0, Math.max(...rows.map(share)) * 1.06]),
    label: `Certainty of probes: ${percent(share(rows.at(-1)))} are above ${certaintyText(rows.at(-1).low)}.`,
  });
  for (const row of rows) {
    let from = 0;
    for (const [kind, name] of [
      ["right", "right"],
      ["wrong", "wrong"],
      ["unknown", "accent"],
    ]) {
      const to = from + row[kind] / count;
      if (row[kind]) chart.bar(row.low + 0.002, row.high - row.low - 0.004, from, to, `bar ${name}`);
      from = to;
    }
  }
  chart.show(
    rows.map((row) => (row.low + row.high) / 2),
    (i) => {
      const { low, high, right, wrong, unknown } = rows[i];
      const kinds = run.graded ? `, ${plainNumber(right)} right and ${plainNumber(wrong)} wrong` : "";
      return `${certaintyText(low)} to ${certaintyText(high)}: ${plural(right + wrong + unknown, "probe")}${kinds}`;
    },
  );
}

function drawReliability(run, pairs) {
  const host = plot("reliability");
  if (!pairs.length) return showText(host, "No answer is given at this threshold.");
  const bins = reliability(pairs),
    most = Math.max(...bins.map((bin) => bin.count));
  const chart = new Chart(host, {
    height: 230,
    x: numberAxis([0, 1.02], { ticks: EVERY_QUARTER, title: "certainty of the answer" }),
    y: percentAxis([0, 1.04], { ticks: EVERY_QUARTER }),
    label: `Share of right answers by certainty; calibration error ${plainNumber(calibrationError(pairs), 3)}.`,
  });
  chart.add(svg("line", { x1: chart.x(0), y1: chart.y(0), x2: chart.x(1), y2: chart.y(1), class: "rule" }));
  chart.line(
    bins.map((bin) => [bin.sure, bin.right]),
    "accent",
  );
  for (const bin of bins) chart.dot([bin.sure, bin.right], "accent", 3 + 6 * Math.sqrt(bin.count / most));
  chart.show(
    bins.map((bin) => bin.sure),
    (i) => {
      const { sure, right, count } = bins[i];
      return `Certainty ${certaintyText(sure)}: ${percent(right)} of ${plural(count, "answer")} right`;
    },
  );
}

function drawRisk(run, state, pairs, points, finals) {
  const host = plot("risk");
  if (!pairs.length) return showText(host, "No answer is given at this threshold.");
  if (!points.at(-1).wrong) return showText(host, "Every answer is right: the risk is 0.");
  const [answers, ends] = [points, finals].map(withoutFirst);
  const chart = new Chart(host, {
    height: 230,
    x: percentAxis([0, 1.02], { ticks: EVERY_QUARTER, title: "share answered, most certain first" }),
    y: percentAxis([0, Math.max(...[...answers, ...ends].map((point) => point.risk)) * 1.1]),
    label: `Share of wrong answers among the most certain; over all ${percent(points.at(-1).risk)}.`,
  });
  chart.line(
    ends.map((point) => [point.coverage, point.risk]),
    "muted dashed",
  );
  chart.line(
    answers.map((point) => [point.coverage, point.risk]),
    "accent",
  );
  const sure = points.findLast((point) => point.certainty >= state.theta);
  if (sure) chart.dot([sure.coverage, sure.risk], "accent", 5);
  chart.show(
    answers.map((point) => point.coverage),
    (i) => {
      const { coverage, risk, certainty } = answers[i];
      return `The most certain ${percent(coverage, 0)} (from ${certaintyText(certainty)}): ${percent(risk)} wrong`;
    },
  );
}

// Without the first points, which are shares of very few answers.
function withoutFirst(points) {
  const all = points.at(-1)?.taken ?? 0;
  return points.filter((point) => point.taken > all / 50);
}
