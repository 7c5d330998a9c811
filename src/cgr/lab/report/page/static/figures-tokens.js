// Figures by seed and by question: accuracy, tokens, and savings.

const ONE_SEED = "There is only one seed, so there is nothing to compare.";
const NOTHING_SAVED = "No tokens are saved at these settings, so there is nothing to rank.";

function seedAxis(run) {
  const count = run.seeds.length;
  const every = Math.max(1, Math.ceil(count / 12));
  return {
    domain: [-0.5, count - 0.5],
    title: "seed",
    ticks: range(0, count, every),
    labels: (places) => places.map((place) => String(run.seeds[place])),
  };
}

function drawAccuracyBySeed(run, now) {
  const host = plot("accuracy-by-seed");
  if (run.seeds.length < 2) return showText(host, ONE_SEED);
  const share = (side) => side.bySeed.map((seed) => (seed.graded ? seed.correct / seed.graded : null));
  const before = share(now.baseScore),
    after = share(now.cgrScore);
  const chart = new Chart(host, {
    x: seedAxis(run),
    y: percentAxis(around([...before, ...after], { least: 0.1, floor: -0.02, ceiling: 1.02 })),
    label: `Accuracy of each seed, baseline and CGR: better in ${now.accuracy.better}, worse in ${now.accuracy.worse}.`,
  });
  run.seeds.forEach((_, i) => {
    if (before[i] === null) return;
    const name = after[i] > before[i] ? "right" : after[i] < before[i] ? "wrong" : "muted";
    chart.line(
      [
        [i, before[i]],
        [i, after[i] === before[i] ? null : after[i]],
      ],
      `${name} thick`,
    );
    chart.dot([i, before[i]], "hollow", 4);
    chart.dot([i, after[i]], name === "muted" ? "accent" : name, 3.4);
  });
  chart.show(
    run.seeds.map((_, i) => i),
    (i) => {
      return `Seed ${run.seeds[i]}: baseline ${percent(before[i])}, CGR ${percent(after[i])}`;
    },
  );
}

function drawDistance(run, now) {
  const host = plot("distance");
  if (run.seeds.length < 2) return showText(host, ONE_SEED);
  const gaps = run.seeds.map((_, i) => now.cgrScore.bySeed[i].correct - now.baseScore.bySeed[i].correct);
  if (gaps.every((gap) => gap === 0))
    return showText(host, "Every seed has the same number of right answers as the baseline.");
  const chart = new Chart(host, {
    height: 180,
    x: seedAxis(run),
    y: { domain: around([...gaps, 0], { least: 2.2 }), labels: exactLabels(1, "", true), whole: true },
    label: "Right answers of CGR minus those of the baseline, for each seed.",
  });
  gaps.forEach((gap, i) => chart.bar(i - 0.36, 0.72, 0, gap, `bar ${gap > 0 ? "right" : "wrong"}`));
  chart.across(0, null, "base");
  chart.show(
    gaps.map((_, i) => i),
    (i) => `Seed ${run.seeds[i]}: ${points(gaps[i], 0)} ${Math.abs(gaps[i]) === 1 ? "question" : "questions"}`,
  );
}

function drawTokensBySeed(run, now) {
  const host = plot("tokens-by-seed");
  if (run.seeds.length < 2) return showText(host, ONE_SEED);
  const rows = run.seeds.map((_, i) => netUse(now.baseScore.bySeed[i], now.cgrScore.bySeed[i]));
  const chart = new Chart(host, {
    x: seedAxis(run),
    y: countAxis(Math.max(...rows.map((row) => Math.max(row.before, row.after + row.probes)))),
    label: "Tokens of each seed: thinking and probes of CGR, and what is saved against the baseline.",
  });
  rows.forEach((row, i) => {
    for (const [from, to, name] of usedParts(row)) chart.bar(i - 0.36, 0.72, from, to, name);
  });
  chart.show(
    run.seeds.map((_, i) => i),
    (i) => `Seed ${run.seeds[i]}: ${usedText(rows[i])}`,
  );
}

// The tokens of one seed or question: of the baseline, of the rule, of its probes, and what is saved net of them.
function netUse(baseline, rule, count = 1) {
  const [before, after, probes] = [baseline.tokens / count, rule.tokens / count, rule.probeTokens / count];
  return { before, after, probes, saved: before - after - probes, share: before ? (before - after - probes) / before : 0 };
}

// The parts of a bar, as [from, to, class]; saved tokens are the rest up to the baseline.
function usedParts({ before, after, probes }) {
  const cost = after + probes;
  return [
    [0, after, "bar accent"],
    [after, cost, "bar probes"],
    [cost, Math.max(before, cost), "bar pale"],
  ];
}

function usedText({ before, after, probes, saved }) {
  const change = saved >= 0 ? `${tokens(saved)} saved` : `${tokens(-saved)} more`;
  return `${tokens(after)} thinking and ${tokens(probes)} probe tokens instead of ${tokens(before)}, ${change}`;
}

// Questions by the tokens saved on them, net of probes, most first.
function ranking(run, now) {
  return run.questions
    .map((question, i) => {
      const before = now.baseScore.byQuestion[i];
      return { i, id: question.id, ...netUse(before, now.cgrScore.byQuestion[i], before.traces) };
    })
    .sort((a, b) => b.saved - a.saved || a.before - b.before || a.i - b.i);
}

function drawRanking(run, now, ranked) {
  const host = plot("ranking");
  if (!now.savings.total) return showText(host, NOTHING_SAVED);
  const named = ranked.length <= 40,
    count = ranked.length;
  const most = Math.max(...ranked.map((row) => Math.max(row.before, row.after + row.probes)), 1);
  const ids = named ? idAxis(host, ranked) : null;
  const chart = new Chart(host, {
    height: named ? 56 + 19 * count : 260,
    margin: named ? ids.margin : {},
    x: named
      ? tokenAxis([0, most * 1.03], "tokens per trace, probes included")
      : numberAxis([0, count], { title: "questions, most saved first", whole: true }),
    y: named ? ids.axis : countAxis(most),
    label: `Tokens saved on each question, net of probes; most on ${ranked[0].id}: ${tokens(ranked[0].saved)} per trace.`,
  });
  ranked.forEach((row, k) => {
    for (const [from, to, name] of usedParts(row)) {
      if (named) chart.bar(from, to - from, k + 0.18, k + 0.82, name);
      else chart.bar(k, 1, from, to, `${name} tight`);
    }
  });
  const read = (row) => `${row.id}: ${usedText(row)} per trace`;
  if (named) return readRows(chart, ranked.map(read));
  return chart.show(
    ranked.map((_, k) => k + 0.5),
    (k) => read(ranked[k]),
  );
}

// An axis with the ids of questions from top to bottom, and the margin that they need.
function idAxis(host, ranked) {
  const { left, texts } = roomForLabels(host, ranked.map((row) => row.id));
  const axis = { domain: [ranked.length, 0], ticks: ranked.map((_, k) => k + 0.5), labels: () => texts };
  return { axis, margin: { left } };
}

function drawHeatMap(run, now, ranked) {
  const host = plot("heat-map");
  if (!now.savings.total) return showText(host, NOTHING_SAVED);
  if (run.seeds.length < 2) return showText(host, ONE_SEED);
  const rows = ranked.length,
    columns = run.seeds.length,
    named = rows <= 40;
  const place = new Map(ranked.map((row, k) => [row.i, k]));
  const saved = now.baselineDecisions.map((decision, i) => decision.used - now.decisions[i].used - now.decisions[i].probeTokens);
  const most = saved.reduce((high, one) => Math.max(high, one), 1);
  const ids = named ? idAxis(host, ranked) : null;
  const chart = new Chart(host, {
    height: 56 + (named ? 19 * rows : Math.min(480, Math.max(160, rows))),
    margin: named ? ids.margin : {},
    x: seedAxis(run),
    y: named ? ids.axis : numberAxis([rows, 0], { whole: true }),
    label: `Tokens saved for each seed and question, net of probes; the most is ${tokens(most)}.`,
  });
  const gap = rows > 120 ? 0 : 1,
    levels = 8,
    paths = Array.from({ length: levels + 1 }, () => "");
  const cells = new Map();
  run.traces.forEach((trace, i) => {
    const k = place.get(trace.question),
      level = saved[i] > 0 ? Math.max(1, Math.round((levels * saved[i]) / most)) : 0;
    const [left, right] = [chart.x(trace.seed - 0.5), chart.x(trace.seed + 0.5) - gap];
    const [top, bottom] = [chart.y(k), chart.y(k + 1) - gap];
    paths[level] += `M${left.toFixed(1)} ${top.toFixed(1)}H${right.toFixed(1)}V${bottom.toFixed(1)}H${left.toFixed(1)}Z`;
    cells.set(k * columns + trace.seed, i);
  });
  paths.forEach(
    (path, level) => path && chart.add(svg("path", { d: path, class: "cell", style: `--level:${level / levels}` })),
  );
  chart.show(null);
  readCells(chart, (seed, k) => {
    const i = seed in run.seeds ? cells.get(k * columns + seed) : undefined;
    return i === undefined
      ? null
      : `${ranked[k].id}, seed ${run.seeds[seed]}: ${tokens(saved[i])} of ${tokens(now.baselineDecisions[i].used)} tokens saved, net of probes`;
  });
}

function readRows(chart, lines) {
  chart.show(null);
  readCells(chart, (_, k) => lines[k] ?? null);
}

// A text for the cell under the pointer, or for the one chosen by arrow keys.
function readCells(chart, read) {
  const { host, root } = chart,
    reading = make("p", { class: "reading", role: "status" });
  host.append(reading);
  let cell = null;
  const show = (text) => {
    host.classList.toggle("is-reading", text !== null);
    reading.textContent = text ?? "";
  };
  root.setAttribute("tabindex", "0");
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const x = chart.x.invert(((event.clientX - box.left) / box.width) * chart.width);
    const y = chart.y.invert(((event.clientY - box.top) / box.height) * chart.height);
    show(y < 0 ? null : read(Math.round(x), Math.floor(y)));
  });
  root.addEventListener("keydown", (event) => {
    const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = cell ? [cell[0] + move[0], cell[1] + move[1]] : [0, 0];
    if (read(...next) === null) return;
    cell = next;
    show(read(...cell));
  });
  for (const left of ["pointerleave", "blur"]) root.addEventListener(left, () => show(null));
}
