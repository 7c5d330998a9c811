// What is shown, and what is redrawn when a setting changes.

const data = readJson("data");
const runs = data.runs.map(openRun);
const state = { run: runs[0], theta: 0.99, penalty: 0.5, budget: runs[0]?.budget, abstain: false };
const lists = new Map(),
  cache = new Map();
let redrawPending = false,
  announceTimer = 0,
  addressTimer = 0;

function chooseRun(run) {
  state.run = run;
  state.budget = run.budget;
}

// The settings of report.json: the whole budget, always answering.
function atWholeBudget(run, { budget, abstain }) {
  return budget === run.budget && !abstain;
}

// The interval of the report where it has one; elsewhere the page computes it.
function intervalAt(run, settings, made) {
  if (!run.graded) return null;
  const row = run.report.thresholds?.find((found) => found.threshold === settings.theta);
  return atWholeBudget(run, settings) && row?.ci95 ? row.ci95 : interval95(run, made.baseScore, made.cgrScore);
}

function cached(key, compute) {
  if (cache.size > 500) cache.clear();
  if (!cache.has(key)) cache.set(key, compute());
  return cache.get(key);
}

function draw() {
  redrawPending = false;
  const scrolled = scrolledTables();
  showControls();
  const { run } = state,
    now = score(run, state);
  drawSummary(run, now);
  document.body.className = run.graded ? "has-golds" : "no-golds";
  byId("runs").hidden = runs.length < 2;
  byId("rules").hidden = !data.comparisons?.[run.number];
  showContents();
  if (!widths.size) measure();
  drawTables(run, now);
  drawFigures(run, now);
  if (run.graded) drawGraded(run, now);
  drawRules(run);
  if (!lists.has(run)) lists.set(run, new QuestionList(run));
  lists.get(run).update(state, now);
  restoreScrolled(scrolled);
  markScrolling();
  document.documentElement.dataset.drawn = "yes";
}

function drawSummary(run, now) {
  const { info, seeds, questions } = run;
  const ci = intervalAt(run, state, now);
  replaceIn("headline", pieces(headline(run, state, now, ci)));
  replaceIn(
    "what",
    [
      info.model || info.name,
      `${plural(questions.length, "question")} × ${plural(seeds.length, "seed")}`,
      `up to ${tokens(run.budget)} thinking tokens`,
      probing(run),
    ].join(" · "),
  );
  const settings =
    `θ = ${certaintyText(state.theta)}, penalty ${state.penalty}, budget ${tokens(state.budget)}` +
    `${state.abstain ? ", abstaining below θ" : ""}${runs.length > 1 ? `, run ${info.name}` : ""}.`;
  byId("settings").textContent = `Settings: ${settings}`;
  replaceIn("now-table", nowTable(run, state, now));
  replaceIn("facts", facts(run, state, now));
  replaceIn("made-list", madeBy(run));
  drawProspects(run);
  replaceIn(
    "notes",
    notesOf(run).map((note) => make("li", {}, note)),
  );
  byId("notes").hidden = !byId("notes").children.length;
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => (byId("live").textContent = byId("headline").textContent), 500);
}

function notesOf(run) {
  const notes = [...(state.ignored ?? []), ...(run.report.notes ?? [])];
  if (state.theta <= run.highestBound) {
    notes.push(
      "Some probes stopped decoding early, so their certainty is only a bound: " +
        `at thresholds up to ${certaintyText(run.highestBound)} these numbers are not reliable.`,
    );
  }
  return notes;
}

function drawTables(run, now) {
  replaceIn("savings-table", savingsTable(run, state, data.thresholds, now));
  if (byId("sweep").open) replaceIn("sweep-table", sweepTable(run, state));
  if (runs.length > 1) replaceIn("runs-table", runsTable(runs, state));
}

function drawFigures(run, now) {
  drawHero(run, now);
  drawCertainty(
    run,
    state,
    cached(`certainty ${run.number}`, () => certaintySteps(run)),
  );
  drawTokensBySeed(run, now);
  const ranked = ranking(run, now);
  drawRanking(run, now, ranked);
  drawHeatMap(run, now, ranked);
  drawHistogram(
    run,
    cached(`histogram ${run.number}`, () => histogram(run)),
  );
}

function drawHero(run, now) {
  if (!run.probes.at.length) return showText(plot("trade-off"), "No probe was recorded, so there is no threshold to show.");
  const key = `thresholds ${run.number} ${state.budget} ${state.abstain}`;
  const byThreshold = cached(key, () => costByThreshold(run, state.budget, state.abstain));
  const curve = { byThreshold, byBudget: costByBudget(run, state.budget) };
  return (run.graded ? drawTradeOff : drawTokensByThreshold)(run, state, now, curve);
}

// Everything that needs known answers.
function drawGraded(run, now) {
  const curve = gradeSteps(run, state.theta, state.budget),
    rows = cumulative(run, now, state.budget);
  replaceIn("accuracy-table", accuracyTable(run, state, data.thresholds, now));
  replaceIn("fixed-table", fixedTable(run, state, data.thresholds, now));
  replaceIn("grade-table", gradeTable(run, state, data.penalties, now, curve));
  drawGrade(run, state, grade(curve, now.baseScore, state.penalty), gradeAlways(run, state));
  drawCumulative(run, state, rows);
  drawRatio(run, state, rows);
  drawAccuracyBySeed(run, now);
  drawDistance(run, now);
  drawTrust(run, now);
}

function drawTrust(run, now) {
  const pairs = gradedAnswers(run, now.decisions, now.given),
    points = riskCoverage(pairs);
  drawReliability(run, pairs);
  drawRisk(
    run,
    state,
    pairs,
    points,
    riskCoverage(
      gradedAnswers(
        run,
        now.baselineDecisions,
        now.baselineDecisions.map(() => true),
      ),
    ),
  );
  if (!pairs.length) return replaceIn("trust", "No answer is given at these settings.");
  const ece = calibrationError(pairs),
    aurc = riskArea(points);
  return replaceIn(
    "trust",
    "Answers given: calibration error (ECE) ",
    number("ece", ece, plainNumber(ece, 3), "b"),
    ", area under the risk-coverage curve (AURC) ",
    number("aurc", aurc, plainNumber(aurc, 3), "b"),
    ".",
  );
}

function changed() {
  if (redrawPending) return;
  redrawPending = true;
  requestAnimationFrame(draw);
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 200);
}

function begin() {
  if (!runs.some((run) => run.traces.length)) {
    byId("headline").textContent = "This report has no traces.";
    document.body.classList.add("is-empty");
    document.documentElement.dataset.drawn = "yes";
    return;
  }
  if (!state.run.traces.length) chooseRun(runs.find((run) => run.traces.length));
  const options = runs
    .filter((run) => run.traces.length)
    .map((run) => make("option", { value: run.number }, run.info.name));
  replaceIn("run", options);
  byId("run-control").hidden = options.length < 2;
  replaceIn(
    "order",
    Object.entries(ORDERS).map(([value, { title }]) => make("option", { value }, title)),
  );
  const opened = readAddress();
  listen();
  draw();
  if (opened !== null) lists.get(state.run).open(opened);
}

begin();
