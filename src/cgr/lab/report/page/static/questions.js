// The list of questions; each opens to its traces, which are only drawn then.

const FIRST = 100;

const ORDERS = {
  saved: { title: "most saved first", by: (a, b) => b.saved - a.saved },
  unsaved: { title: "least saved first", by: (a, b) => a.saved - b.saved },
  changed: { title: "changed answers first", by: (a, b) => b.changed - a.changed || b.saved - a.saved },
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
    const wanted = document.getElementById("find").value.trim().toLowerCase();
    const order = ORDERS[document.getElementById("order").value].by;
    const found = this.items.filter((item) => item.matches(wanted)).sort((a, b) => order(a, b) || a.i - b.i);
    const shown = this.all ? found : found.slice(0, FIRST);
    replaceIn(
      "question-list",
      shown.map((item) => item.element),
    );
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
      make("span", { class: "q-id" }, shortId(question.id, 24)),
      make("span", { class: "q-text" }, question.text || "(its text was not recorded)"),
      this.numbers,
    );
    this.element = make("details", { class: "question", "data-question": question.id }, summary, this.body);
    this.element.addEventListener("toggle", () => this.element.open && this.draw());
  }

  matches(wanted) {
    return (
      !wanted || `${this.question.id} ${this.question.text} ${this.question.gold ?? ""}`.toLowerCase().includes(wanted)
    );
  }

  open() {
    this.element.open = true;
  }

  update(state, now) {
    Object.assign(this, { state, now });
    const plain = now.plain.byQuestion[this.i],
      guided = now.guided.byQuestion[this.i];
    this.saved = (plain.tokens - guided.tokens) / plain.traces;
    this.changed = this.traces.filter(
      (trace) => now.baseline[trace.index].right !== now.decisions[trace.index].right,
    ).length;
    const share = plain.tokens ? (plain.tokens - guided.tokens) / plain.tokens : 0;
    this.numbers.replaceChildren(
      make("span", { class: "q-right" }, plain.graded ? `${plain.correct}→${guided.correct} of ${plain.graded} right` : ""),
      make("span", { class: "q-bar", "aria-hidden": "true" }, make("i", { style: `width:${(100 * share).toFixed(1)}%` })),
      make(
        "span",
        { class: "q-saved", "data-metric": "question.saved", "data-value": this.saved },
        `${percent(share, 0)} saved`,
      ),
    );
    if (this.element.open && this.element.isConnected) this.draw();
  }

  draw() {
    if (!this.views) this.build();
    const longest = Math.max(...this.traces.map((trace) => Math.min(trace.tokens, this.state.budget)));
    for (const view of this.views) {
      const { index } = view.trace,
        { decisions, baseline, given } = this.now;
      view.update(this.state, decisions[index], baseline[index], given[index], longest);
    }
  }

  build() {
    const { text, gold } = this.question;
    this.views = this.traces.map((trace) => new TraceView(this.run, trace));
    this.body.append(
      text ? make("p", { class: "q-full" }, text) : "",
      make("p", {}, gold === null ? "Its answer is not known." : ["The truth is ", make("b", {}, gold), "."]),
      this.run.hasTexts
        ? ""
        : make("p", { class: "quiet" }, "The thinking itself is left out of this page, since it would make it too large."),
      ...this.views.map((view) => view.element),
    );
  }
}
