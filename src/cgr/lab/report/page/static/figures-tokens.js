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
    format: (place) => String(run.seeds[place]),
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
    y: { domain: around([...gaps, 0], { least: 2 }), format: (value) => points(value, value % 1 ? 1 : 0) },
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
  const before = now.baseScore.bySeed.map((seed) => seed.tokens),
    after = now.cgrScore.bySeed.map((seed) => seed.tokens);
  const chart = new Chart(host, {
    x: seedAxis(run),
    y: countAxis(Math.max(...before)),
    label: "Thinking tokens of each seed: used by CGR, and saved against the baseline.",
  });
  run.seeds.forEach((_, i) => {
    chart.bar(i - 0.36, 0.72, 0, before[i], "bar pale");
    chart.bar(i - 0.36, 0.72, 0, after[i], "bar accent");
  });
  chart.show(
    run.seeds.map((_, i) => i),
    (i) => {
      const saved = tokens(before[i] - after[i]);
      return `Seed ${run.seeds[i]}: ${tokens(after[i])} of ${tokens(before[i])} tokens, ${saved} saved`;
    },
  );
}

// Questions by the tokens saved on them, most first.
function ranking(run, now) {
  return run.questions
    .map((question, i) => {
      const { tokens: before, traces } = now.baseScore.byQuestion[i],
        after = now.cgrScore.byQuestion[i].tokens;
      return { i, id: question.id, before: before / traces, after: after / traces, saved: (before - after) / traces };
    })
    .sort((a, b) => b.saved - a.saved || a.before - b.before || a.i - b.i);
}

function shortId(id, most = 14) {
  const letters = [...id];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : id;
}

function drawRanking(run, now, ranked) {
  const host = plot("ranking");
  if (!now.savings.total) return showText(host, NOTHING_SAVED);
  const named = ranked.length <= 40,
    count = ranked.length;
  const most = Math.max(...ranked.map((row) => row.before), 1);
  const chart = new Chart(host, {
    height: named ? 56 + 19 * count : 260,
    margin: named ? { left: 112 } : {},
    x: named
      ? tokenAxis([0, most * 1.03], "thinking tokens per trace")
      : { domain: [0, count], format: (n) => plainNumber(n), title: "questions, most saved first" },
    y: named
      ? { domain: [count, 0], ticks: ranked.map((_, k) => k + 0.5), format: (place) => shortId(ranked[place - 0.5].id) }
      : countAxis(most),
    label: `Tokens saved on each question; most on ${ranked[0].id}: ${tokens(ranked[0].saved)} per trace.`,
  });
  ranked.forEach((row, k) => {
    for (const [value, name] of [
      [row.before, "bar pale"],
      [row.after, "bar accent"],
    ]) {
      if (named) chart.bar(0, value, k + 0.18, k + 0.82, name);
      else chart.bar(k, 1, 0, value, `${name} tight`);
    }
  });
  const read = ({ id, saved, before }) => `${id}: ${tokens(saved)} of ${tokens(before)} tokens saved per trace`;
  if (named) return readRows(chart, ranked.map(read));
  return chart.show(
    ranked.map((_, k) => k + 0.5),
    (k) => read(ranked[k]),
  );
}

function drawHeatMap(run, now, ranked) {
  const host = plot("heat-map");
  if (!now.savings.total) return showText(host, NOTHING_SAVED);
  if (run.seeds.length < 2) return showText(host, ONE_SEED);
  const rows = ranked.length,
    columns = run.seeds.length,
    named = rows <= 40;
  const place = new Map(ranked.map((row, k) => [row.i, k]));
  const saved = now.baselineDecisions.map((decision, i) => decision.used - now.decisions[i].used);
  const most = saved.reduce((high, one) => Math.max(high, one), 1);
  const chart = new Chart(host, {
    height: 56 + (named ? 19 * rows : Math.min(480, Math.max(160, rows))),
    margin: { left: named ? 112 : 52 },
    x: seedAxis(run),
    y: named
      ? { domain: [rows, 0], ticks: ranked.map((_, k) => k + 0.5), format: (at) => shortId(ranked[at - 0.5].id) }
      : { domain: [rows, 0], format: (n) => plainNumber(n) },
    label: `Tokens saved for each seed and question; the most is ${tokens(most)}.`,
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
    const i = cells.get(k * columns + seed);
    return i === undefined
      ? null
      : `${ranked[k].id}, seed ${run.seeds[seed]}: ${tokens(saved[i])} of ${tokens(now.baselineDecisions[i].used)} tokens saved`;
  });
}

function readRows(chart, lines) {
  chart.show(null);
  readCells(chart, (_, k) => lines[k] ?? null);
}

// A text for the cell under the pointer.
function readCells(chart, read) {
  const reading = make("p", { class: "reading", "aria-hidden": "true" });
  chart.host.append(reading);
  chart.root.addEventListener("pointermove", (event) => {
    const box = chart.root.getBoundingClientRect();
    const x = chart.x.invert(((event.clientX - box.left) / box.width) * chart.width);
    const y = chart.y.invert(((event.clientY - box.top) / box.height) * chart.height);
    const text = y < 0 ? null : read(Math.round(x), Math.floor(y));
    chart.host.classList.toggle("is-reading", text !== null);
    reading.textContent = text ?? "";
  });
  chart.root.addEventListener("pointerleave", () => chart.host.classList.remove("is-reading"));
}
