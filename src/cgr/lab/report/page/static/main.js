// The controls, and what is redrawn when they change. Their state is also in the address, so that a view can be linked.

const data = readJson("data");
const runs = data.runs.map(openRun);
const state = { run: runs[0], theta: 0.99, penalty: 0.5, budget: runs[0]?.budget, abstain: false };
const lists = new Map(),
  cache = new Map();
let redrawPending = false,
  announceTimer = 0,
  addressTimer = 0;

function byId(id) {
  return document.getElementById(id);
}

function readAddress() {
  const given = new URLSearchParams(location.search);
  new URLSearchParams(location.hash.slice(1)).forEach((value, key) => given.set(key, value));
  const amount = (key) => (given.has(key) && given.get(key) !== "" ? Number(given.get(key)) : NaN);
  const named = runs.find((run) => run.info.name === given.get("run"));
  if (named) chooseRun(named);
  if (amount("theta") >= 0 && amount("theta") <= 1) state.theta = amount("theta");
  if (amount("p") >= 0 && Number.isFinite(amount("p"))) state.penalty = amount("p");
  if (state.run.budgets.includes(amount("t"))) state.budget = amount("t");
  if (given.has("abstain")) state.abstain = given.get("abstain") === "1";
  if (["light", "dark"].includes(given.get("theme"))) document.documentElement.dataset.theme = given.get("theme");
  return given.get("open");
}

function writeAddress() {
  const { theme } = document.documentElement.dataset;
  const parts = { theta: state.theta, p: state.penalty, t: state.budget, abstain: state.abstain ? 1 : 0 };
  if (runs.length > 1) parts.run = state.run.info.name;
  if (theme) parts.theme = theme;
  history.replaceState(null, "", `#${new URLSearchParams(parts)}`);
}

function chooseRun(run) {
  state.run = run;
  state.budget = run.budget;
}

function showControls() {
  const { run, theta, penalty, budget, abstain } = state,
    budgets = run.budgets;
  const slide = byId("theta-slide"),
    shown = byId("budget");
  slide.max = SLIDER_THRESHOLDS.length - 1;
  slide.value = nearest(SLIDER_THRESHOLDS, theta);
  slide.setAttribute("aria-valuetext", certaintyText(theta));
  if (Number(byId("theta").value) !== theta) byId("theta").value = theta;
  if (Number(byId("penalty").value) !== penalty) byId("penalty").value = penalty;
  shown.max = budgets.length - 1;
  shown.value = budgets.indexOf(budget);
  shown.disabled = budgets.length < 2;
  shown.setAttribute("aria-valuetext", `${tokens(budget)} tokens`);
  byId("budget-text").textContent = tokens(budget);
  byId("abstain").checked = abstain;
  byId("run").value = run.number;
}

// The interval of the report where it has one; elsewhere the page computes it.
function intervalAt(run, settings, made) {
  if (!run.graded) return null;
  const row = run.report.thresholds?.find((found) => found.threshold === settings.theta);
  const whole = settings.budget === run.budget && !settings.abstain;
  return whole && row?.ci95 ? row.ci95 : interval95(run, made.baseScore, made.cgrScore);
}

function cached(key, compute) {
  if (cache.size > 500) cache.clear();
  if (!cache.has(key)) cache.set(key, compute());
  return cache.get(key);
}

function draw() {
  redrawPending = false;
  showControls();
  const { run } = state,
    now = score(run, state);
  drawSummary(run, now);
  document.body.className = run.graded ? "has-golds" : "no-golds";
  if (!widths.size) measure();
  drawTables(run, now);
  drawFigures(run, now);
  if (run.graded) drawGraded(run, now);
  drawRules(run);
  if (!lists.has(run)) lists.set(run, new QuestionList(run));
  lists.get(run).update(state, now);
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
      `probed every ${tokens(run.interval)}`,
    ].join(" · "),
  );
  const settings =
    `θ = ${certaintyText(state.theta)}, penalty ${state.penalty}, budget ${tokens(state.budget)}` +
    `${state.abstain ? ", abstaining below θ" : ""}${runs.length > 1 ? `, run ${info.name}` : ""}.`;
  byId("settings").textContent = `Settings: ${settings}`;
  replaceIn("now", nowTable(run, state, now), facts(run, now));
  replaceIn(
    "notes",
    notesOf(run).map((note) => make("li", {}, note)),
  );
  byId("notes").hidden = !byId("notes").children.length;
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => (byId("live").textContent = byId("headline").textContent), 500);
}

function notesOf(run) {
  const notes = [...(run.report.notes ?? [])];
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
  byId("runs").hidden = runs.length < 2;
  if (runs.length > 1) replaceIn("runs-table", runsTable(runs, state));
}

function drawFigures(run, now) {
  const key = `${run.number} ${state.budget} ${state.abstain}`;
  const curve = cached(`trade ${key}`, () => tradeOff(run, state.budget, state.abstain));
  (run.graded ? drawTradeOff : drawTokensByThreshold)(run, state, now, curve);
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

// Everything that needs known answers.
function drawGraded(run, now) {
  const curve = gradeSteps(run, state.theta, state.budget),
    rows = cumulative(run, now, state.budget);
  replaceIn("accuracy-table", accuracyTable(run, state, data.thresholds, now));
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

function listen() {
  const on = (id, event, act) =>
    byId(id).addEventListener(event, ({ target }) => {
      if (act(target) !== false) changed();
    });
  on("theta-slide", "input", (slide) => {
    state.theta = SLIDER_THRESHOLDS[slide.value];
  });
  on("theta", "input", ({ value }) => setNumber("theta", value, 1));
  on("penalty", "input", ({ value }) => setNumber("penalty", value, Infinity));
  on("budget", "input", ({ value }) => {
    state.budget = state.run.budgets[value];
  });
  on("abstain", "change", ({ checked }) => {
    state.abstain = checked;
  });
  on("run", "change", ({ value }) => chooseRun(runs[value]));
  on("sweep", "toggle", () => {});
  byId("find").addEventListener("input", () => lists.get(state.run).arrange());
  byId("order").addEventListener("change", () => lists.get(state.run).arrange());
  byId("more").addEventListener("click", () => lists.get(state.run).showAll());
  byId("theme").addEventListener("click", switchTheme);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("unfold").addEventListener("click", () => {
    const open = byId("controls").classList.toggle("is-open");
    byId("unfold").setAttribute("aria-expanded", String(open));
  });
  addEventListener("hashchange", () => {
    readAddress();
    changed();
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    widths.clear();
    changed();
  });
}

// Ignores text that is not a valid number yet.
function setNumber(name, text, most) {
  const value = Number(text);
  if (text === "" || !(value >= 0 && value <= most && value < Infinity)) return false;
  state[name] = value;
  return true;
}

function switchTheme() {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  writeAddress();
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
