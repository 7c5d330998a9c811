// The list of questions. Each opens to show its traces, which are drawn only then.

const FIRST_SHOWN = 100;

// The list shows shares, and orders by them.
const ORDERS = {
  saved: { title: "most saved first", by: (a, b) => b.share - a.share },
  unsaved: { title: "least saved first", by: (a, b) => a.share - b.share },
  changed: { title: "changed answers first", by: (a, b) => b.changed - a.changed || b.share - a.share },
  source: { title: "as in the source", by: (a, b) => a.i - b.i },
};

class QuestionList {
  constructor(run) {
    this.run = run;
    this.items = run.questions.map((question, i) => new QuestionView(run, question, i));
    this.all = false;
  }

  update(state, now) {
    Object.assign(this, { state, now });
    for (const item of this.items) item.update(state, now);
    this.arrange();
  }

  arrange() {
    const text = document.getElementById("find").value.trim().toLowerCase();
    const order = ORDERS[document.getElementById("order").value].by;
    const found = this.items.filter((item) => item.matches(text)).sort((a, b) => order(a, b) || a.i - b.i);
    const shown = this.all ? found : found.slice(0, FIRST_SHOWN);
    const list = document.getElementById("question-list"),
      longest = this.items.reduce((most, item) => Math.max(most, item.question.id.length), 0);
    list.style.setProperty("--id", `${longest + 2}ch`);
    list.replaceChildren(...shown.map((item) => item.element));
    const more = document.getElementById("more");
    more.hidden = shown.length === found.length;
    more.textContent = `Show all ${plainNumber(found.length)} questions`;
    document.getElementById("found").textContent = found.length ? "" : "No question matches.";
  }

  showAll() {
    this.all = true;
    this.arrange();
  }

  open(id) {
    this.items.find((item) => item.question.id === id)?.open();
  }
}

class QuestionView {
  constructor(run, question, i) {
    Object.assign(this, { run, question, i, views: null });
    this.traces = run.traces.filter((trace) => trace.question === i);
    this.numbers = make("span", { class: "q-numbers" });
    this.body = make("div", { class: "q-body" });
    const summary = make(
      "summary",
      {},
      make("span", { class: "q-id" }, question.id),
      make("span", { class: "q-text" }, question.text || "(the text was not recorded)"),
      this.numbers,
    );
    this.element = make("details", { class: "question", "data-question": question.id }, summary, this.body);
    this.element.addEventListener("toggle", () => this.element.open && this.draw());
  }

  matches(text) {
    return (
      !text || `${this.question.id} ${this.question.text} ${this.question.gold ?? ""}`.toLowerCase().includes(text)
    );
  }

  open() {
    this.element.open = true;
  }

  update(state, now) {
    Object.assign(this, { state, now });
    const baseScore = now.baseScore.byQuestion[this.i],
      cgrScore = now.cgrScore.byQuestion[this.i];
    this.share = netUse(baseScore, cgrScore).share;
    this.changed = this.traces.filter(
      (trace) => now.baselineDecisions[trace.index].right !== now.decisions[trace.index].right,
    ).length;
    const filled = 100 * Math.min(1, Math.max(0, this.share));
    this.numbers.replaceChildren(
      make("span", { class: "q-right" }, baseScore.graded ? `${baseScore.correct}→${cgrScore.correct} of ${baseScore.graded} right` : ""),
      make("span", { class: "q-bar", "aria-hidden": "true" }, make("i", { style: `width:${filled.toFixed(1)}%` })),
      make(
        "span",
        { class: "q-saved", "data-metric": "question.net_share", "data-value": this.share },
        this.share < 0 ? `${percent(-this.share, 0)} more` : `${percent(this.share, 0)} saved`,
      ),
    );
    if (this.element.open && this.element.isConnected) this.draw();
  }

  draw() {
    if (!this.views) this.build();
    const longest = Math.max(...this.traces.map((trace) => Math.min(trace.tokens, this.state.budget)));
    for (const view of this.views) {
      const { index } = view.trace,
        { decisions, baselineDecisions, given } = this.now;
      view.update(this.state, decisions[index], baselineDecisions[index], given[index], longest);
    }
  }

  build() {
    const { text, gold } = this.question;
    this.views = this.traces.map((trace) => new TraceView(this.run, trace));
    this.body.append(
      text ? make("p", { class: "q-full" }, text) : "",
      make("p", {}, gold === null ? "The correct answer is not known." : ["The correct answer is ", make("b", {}, gold), "."]),
      this.run.hasTexts
        ? ""
        : make("p", { class: "quiet" }, "The text of the thinking is left out, because it would make this page too large."),
      ...this.views.map((view) => view.element),
    );
  }
}
