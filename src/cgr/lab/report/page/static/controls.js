// The controls, the contents, and the address, which has the settings too, so that a view can be linked.

function readAddress() {
  const given = new URLSearchParams(location.search);
  new URLSearchParams(location.hash.slice(1)).forEach((value, key) => given.set(key, value));
  const amount = (key) => (given.has(key) && given.get(key) !== "" ? Number(given.get(key)) : NaN);
  const named = runs.find((run) => run.info.name === given.get("run"));
  if (named) chooseRun(named);
  state.ignored = [];
  const take = (key, name, field) => {
    const problem = given.has(key) ? problemWith(name, given.get(key)) : "";
    if (problem) state.ignored.push(`The address has ${name} ${given.get(key) || "without a number"}. ${problem} It is ignored.`);
    else if (given.has(key)) state[field] = amount(key);
  };
  take("theta", "θ", "theta");
  take("p", "penalty", "penalty");
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

function showControls() {
  const { run, theta, penalty, budget, abstain } = state,
    budgets = run.budgets;
  const slide = byId("theta-slide"),
    shown = byId("budget");
  slide.max = SLIDER_THRESHOLDS.length - 1;
  slide.value = nearest(SLIDER_THRESHOLDS, theta);
  slide.setAttribute("aria-valuetext", certaintyText(theta));
  showNumber("theta", theta);
  showNumber("penalty", penalty);
  shown.max = budgets.length - 1;
  shown.value = budgets.indexOf(budget);
  shown.disabled = budgets.length < 2;
  shown.setAttribute("aria-valuetext", `${tokens(budget)} tokens`);
  byId("budget-text").textContent = tokens(budget);
  byId("abstain").checked = abstain;
  byId("run").value = run.number;
}

// Writes a number into its field, unless the field has it already, and removes the mark of an invalid one.
function showNumber(name, value) {
  const field = byId(name);
  if (field.value === "" || Number(field.value) !== value) field.value = value;
  markInvalid(name, "");
}

// Links to the sections that are shown. A click keeps the settings in the address.
function showContents() {
  for (const link of document.querySelectorAll(".contents a")) {
    link.parentElement.hidden = byId(link.hash.slice(1)).hidden;
  }
}

function goTo(event) {
  const link = event.target.closest("a");
  if (!link) return;
  event.preventDefault();
  const section = byId(link.hash.slice(1)),
    heading = section.querySelector("h2") ?? section;
  heading.setAttribute("tabindex", "-1");
  section.scrollIntoView();
  heading.focus({ preventScroll: true });
}

// The bar with the controls stays at the top, and the contents below it: both need its height.
function measureBar() {
  document.documentElement.style.setProperty("--bar", `${byId("controls").offsetHeight}px`);
}

function listen() {
  const on = (id, event, act) =>
    byId(id).addEventListener(event, ({ target }) => {
      if (act(target) !== false) changed();
    });
  on("theta-slide", "input", (slide) => {
    state.theta = SLIDER_THRESHOLDS[slide.value];
  });
  on("theta", "input", ({ value }) => setNumber("theta", "θ", value));
  on("penalty", "input", ({ value }) => setNumber("penalty", "penalty", value));
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
  byId("theme").addEventListener("click", () => {
    switchTheme();
    writeAddress();
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("unfold").addEventListener("click", () => {
    const open = byId("controls").classList.toggle("is-open");
    byId("unfold").setAttribute("aria-expanded", String(open));
  });
  document.querySelector(".contents").addEventListener("click", goTo);
  document.querySelector(".skip").addEventListener("click", goTo);
  new ResizeObserver(measureBar).observe(byId("controls"));
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

// What is wrong with this text as a setting; empty if nothing is.
function problemWith(name, text) {
  const value = text.trim() === "" ? NaN : Number(text);
  if (name === "θ") return value >= 0 && value <= 1 ? "" : "A certainty is a number from 0 to 1.";
  return value >= 0 && value < Infinity ? "" : "A penalty is a number from 0.";
}

// Marks a number that is not valid; the figures stay at the last valid one.
function setNumber(id, name, text) {
  const problem = problemWith(name, text);
  markInvalid(id, problem);
  if (problem) return false;
  state[id] = Number(text);
  return true;
}

function markInvalid(id, problem) {
  const message = byId(`${id}-error`);
  byId(id).setAttribute("aria-invalid", String(Boolean(problem)));
  message.hidden = !problem;
  message.textContent = problem && `${problem} Shown: ${certaintyText(state[id])}.`;
}
