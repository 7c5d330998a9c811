// The promise of `cgr calibrate`, if the folder of the run has one: a sentence, the bound of the risk, and the saving.

function drawPromise(run) {
  const found = run.report.promise;
  if (!found) return;
  replaceIn("promise-text", found.why ?? promiseText(found));
  byId("promise-body").hidden = Boolean(found.why);
  if (found.why) return;
  drawSequence("promise-risk", found, "bound", "Upper bound of the risk", found.epsilon);
  drawSequence("promise-saving", found, "saved_share", "Saved, net of probes", null);
  replaceIn("promise-table", sequenceTable(found));
}

function promiseText({ sentence, rule, main, parameter, questions, method }) {
  const by = method === "crc" ? "conformal risk control" : "Learn-then-Test";
  const at = number("promise.parameter", parameter, valueText(parameter), "b");
  return [make("strong", {}, sentence), ` ${rule} with ${main} `, at, `, from ${plural(questions, "question")}, by ${by}.`];
}

function drawSequence(id, { sequence, main, parameter }, metric, title, allowed) {
  const values = sequence.map((step) => step[metric]);
  const shown = allowed === null ? values : values.map((value) => Math.min(value, 4 * allowed));
  const chart = new Chart(plot(id), {
    x: {
      domain: [-0.5, sequence.length - 0.5],
      ticks: sequence.map((_, i) => i).filter((i) => i % Math.ceil(sequence.length / 6) === 0),
      labels: (places) => places.map((i) => valueText(sequence[i].parameter)),
      title: `${main}, in the order tested`,
    },
    y: percentAxis(around([...shown, 0, allowed ?? 0], { least: 0.01 })),
    label: `${title} at ${plural(sequence.length, "value")} of ${main}.`,
  });
  if (allowed !== null) chart.across(allowed, `allowed: ${percent(allowed)}`);
  chart.line(shown.map((value, i) => [i, value]), "accent");
  sequence.forEach((step, i) => chart.dot([i, shown[i]], step.passed ? "accent" : "hollow"));
  const chosen = sequence.findIndex((step) => step.parameter === parameter);
  chart.mark([chosen, shown[chosen]], valueText(parameter));
  chart.show(
    sequence.map((_, i) => i),
    (i) => `${main} ${valueText(sequence[i].parameter)}: ${percent(values[i])}, ${sequence[i].passed ? "passed" : "did not pass"}`,
  );
}

function sequenceTable({ sequence, main, parameter }) {
  const columns = [
    { metric: "parameter", title: main, format: valueText },
    { metric: "loss", title: "Loss", format: percent, help: "that was seen" },
    { metric: "bound", title: "Bound", format: percent, help: "upper bound of the risk" },
    { metric: "p_value", title: "p", format: (value) => (value === null ? "–" : String(Number(value.toPrecision(2)))) },
    { metric: "passed", title: "Passed", format: (value) => (value ? "yes" : "no") },
    { metric: "saved_share", title: "Saved", format: percent, help: "share of the thinking, net of probes" },
  ];
  const rows = sequence.map((step) => ({
    attributes: { class: step.parameter === parameter ? "current" : null },
    values: { ...step, passed: Number(step.passed) },
  }));
  return table("Every value of the sequence, the most cautious first.", columns, rows);
}
