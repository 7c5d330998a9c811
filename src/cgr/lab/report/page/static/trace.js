// One trace: a strip with its certainty, its answers and the stop, and the text of the thinking with its probes.

class TraceView {
  constructor(run, trace) {
    this.run = run;
    this.trace = trace;
    this.line = make("p", { class: "trace-line" });
    this.strip = make("div", { class: "strip" });
    this.text = make("div", { class: "thinking" });
    this.reader = make("details", { class: "reader" }, make("summary", {}, "Read the thinking"), this.text);
    this.reader.addEventListener("toggle", () => this.writeText());
    const canRead = run.hasTexts && textsOf(run)[trace.index].some(Boolean);
    this.element = make(
      "section",
      { class: "trace", "data-seed": run.seeds[trace.seed] },
      this.line,
      this.strip,
      canRead ? this.reader : null,
    );
  }

  update(state, decision, baseline, given, longest) {
    Object.assign(this, { state, decision, baseline });
    this.line.replaceChildren(...traceLine(this.run, this.trace, decision, baseline, given));
    drawStrip(this.strip, this.run, this.trace, state, decision, longest);
    this.writeText();
  }

  writeText() {
    if (this.reader.open && this.decision)
      this.text.replaceChildren(...markedText(this.run, this.trace, this.state, this.decision));
  }
}

const textCache = new Map();

function textsOf(run) {
  if (!textCache.has(run.number))
    textCache.set(run.number, readJson(`texts-${run.number}`) ?? run.traces.map(() => ["", ""]));
  return textCache.get(run.number);
}

function verdict(trace, decision) {
  if (!trace.graded) return "";
  return decision.right ? "right" : "wrong";
}

function answerTag(trace, decision) {
  const name = verdict(trace, decision);
  const cut = decision.closed ? "" : " (did not close)";
  const text = decision.answer === "" ? "no answer" : decision.answer;
  const sign = { right: " ✓", wrong: " ✗" }[name] ?? "";
  return make(
    "b",
    { class: `answer ${name}` },
    text,
    make("span", { class: "sign" }, sign),
    cut,
    make("span", { class: "hidden" }, name && ` ${name}`),
  );
}

function ending(trace, decision) {
  if (decision.cause === "budget") return "the budget was spent";
  return trace.eos ? "the model ended its turn" : "its thinking ended";
}

function traceLine(run, trace, decision, baseline, given) {
  const saved = baseline.used - decision.used - decision.probeTokens;
  const stop =
    decision.cause === "certainty"
      ? `stopped at ${tokens(decision.used)} of ${tokens(baseline.used)} tokens, ${certaintyText(decision.certainty)} sure`
      : `not sure until ${ending(trace, decision)} at ${tokens(decision.used)} tokens`;
  return [
    make("span", { class: "seed" }, `seed ${run.seeds[trace.seed]}`),
    " ",
    given ? answerTag(trace, decision) : make("b", { class: "answer" }, "no answer given"),
    ` ${stop}`,
    saved > 0 ? make("span", { class: "saved" }, `, ${tokens(saved)} saved net of probes`) : "",
    decision.cause === "certainty" ? ["; with full thinking: ", answerTag(trace, baseline)] : "",
  ].flat();
}

// Certainty above; below, each answer as a bar until the next answer.
function drawStrip(host, run, trace, state, decision, longest) {
  const { at, certainty, flags, answer } = run.probes,
    end = Math.min(trace.tokens, state.budget);
  const chart = new Chart(host, {
    height: 104,
    margin: { left: 34, right: 8, top: 8, bottom: 44 },
    x: { ...tokenAxis([0, Math.max(longest, 1)], ""), room: 110 },
    y: numberAxis([0, 1.04], { ticks: [0, 0.5, 1] }),
    label: stripLabel(run, trace, decision),
  });
  if (state.theta <= 1) chart.across(state.theta, null);
  if (decision.used < end) chart.bar(decision.used, end - decision.used, 0, 1.04, "unspent");
  const points = [];
  for (let i = trace.from; i < trace.to && at[i] <= end; i++) points.push([at[i], certainty[i], flags[i], answer[i]]);
  chart.line(points, "accent thin");
  for (const [x, y, flag] of points) chart.dot([x, y], dotName(trace, flag), points.length > 60 ? 1.8 : 2.8);
  answerBars(
    chart,
    points.map(([x, , flag, index]) => ({ x, text: run.answers[index], name: dotName(trace, flag) })),
    end,
  );
  chart.down(decision.used, "stop");
  chart.show(
    points.map(([x]) => x),
    (k) => {
      const [x, y, flag, index] = points[k];
      const note = flag & CLOSED ? (trace.graded ? (flag & RIGHT ? ", right" : ", wrong") : "") : ", did not close";
      return `${tokens(x)} tokens: “${run.answers[index]}”, ${certaintyText(y)} sure${note}`;
    },
  );
}

function dotName(trace, flag) {
  if (!(flag & CLOSED)) return "open";
  if (!trace.graded) return "accent";
  return flag & RIGHT ? "right" : "wrong";
}

function stripLabel(run, trace, decision) {
  const stop = decision.cause === "certainty" ? `stopped at ${tokens(decision.used)} tokens` : "not stopped";
  const probes = plural(trace.to - trace.from, "probe");
  return `Seed ${run.seeds[trace.seed]}: ${probes}, ${stop}, answer ${decision.answer || "none"}.`;
}

// The position of a token in the text is not recorded, so that of a probe is estimated from the number of tokens.
function markedText(run, trace, state, decision) {
  const [text, written] = textsOf(run)[trace.index],
    { at, certainty, answer, flags } = run.probes;
  const parts = [
    make("p", { class: "quiet" }, "The positions of probes in the text are estimated from token counts."),
  ];
  const body = make("div", { class: "text" });
  let from = 0,
    target = body;
  const appendUpTo = (position) => {
    const to = wordEnd(text, Math.round((text.length * Math.min(position, trace.tokens)) / Math.max(trace.tokens, 1)));
    if (to > from) target.append(text.slice(from, to));
    from = Math.max(from, to);
  };
  for (let i = trace.from; i < trace.to && at[i] <= state.budget; i++) {
    appendUpTo(at[i]);
    const given = (run.answers[answer[i]] || "nothing") + (flags[i] & CLOSED ? "" : "…");
    const note = `${tokens(at[i])} · ${given} · ${certaintyText(certainty[i])}`;
    target.append(
      make("span", { class: `probe ${dotName(trace, flags[i])}`, title: "the answer of the probe made about here" }, note),
    );
    if (decision.cause === "certainty" && at[i] === decision.used) {
      target.append(make("span", { class: "stop-here" }, "CGR stopped about here; the rest is saved"));
      target = body.appendChild(make("span", { class: "unread" }));
    }
  }
  appendUpTo(trace.tokens);
  if (from < text.length) target.append(text.slice(from));
  parts.push(body);
  if (written)
    parts.push(
      make("p", { class: "quiet" }, "What the model wrote after its thinking (shown, not scored):"),
      make("div", { class: "text" }, written),
    );
  return parts;
}

// The next white space if it is near, so that a probe does not split a word; never inside a surrogate pair.
function wordEnd(text, place) {
  const near = text.slice(place, place + 20).search(/\s/);
  if (near >= 0) return place + near;
  const code = text.charCodeAt(place);
  return code >= 0xdc00 && code <= 0xdfff ? place - 1 : place;
}
