// One reply on the page: its state, the thinking with the probes in it, the answer, and its tokens.

const CAUSES = {
  certain: "stopped: certain enough",
  end_of_thinking: "the model ended its thinking",
  budget: "the budget was spent",
  gave_up: "the rule gave up",
  loop: "the thinking repeated itself",
  not_probed: "not probed, never stopped",
  error: "failed",
  client_stop: "the client left",
};

class Pane {
  constructor(host, title) {
    this.host = host;
    this.status = make("p", { class: "status quiet" });
    this.text = make("div", { class: "text", tabindex: "0", role: "group", "aria-label": `${title}: thinking` });
    this.answer = make("div", { class: "text written", "aria-label": `${title}: answer` });
    this.numbers = make("dl", { class: "numbers" });
    this.answerTitle = make("h3", {}, "Answer");
    host.replaceChildren(make("h2", {}, title), this.status, this.text, this.answerTitle, this.answer, this.numbers);
    this.start(null);
  }

  start(reply) {
    this.reply = reply;
    this.complete = false;
    this.restart();
    this.host.hidden = reply === null;
  }

  // Forget what is shown: all of it is written again.
  restart() {
    this.text.replaceChildren();
    this.target = this.text;
    this.shown = 0;
    this.marked = 0;
  }

  // `stop`: the probe of this reply at which cgr stops; `stopText`: what to write there; `rest`: the class of what follows it.
  update(stop, stopText, theta, rest) {
    if (!this.reply) return;
    const key = `${stop?.at} ${theta}`;
    const changed = this.key !== key || (this.reply.ended && !this.complete);
    if (this.key !== key) this.restart();
    this.key = key;
    this.complete = this.reply.ended;
    this.theta = theta;
    const below = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 40;
    this.write(stop, stopText, rest);
    if (below && !this.reply.ended) this.text.scrollTop = this.text.scrollHeight;
    if (changed && this.reply.ended) this.showStop();
    this.answer.textContent = this.reply.answer.trim();
    this.answerTitle.hidden = !this.reply.answer.trim();
    this.status.textContent = statusOf(this.reply);
    this.status.classList.toggle("failed", this.reply.state === "failed");
    this.numbers.replaceChildren(...numbersOf(this.reply));
  }

  // Scrolls the text such that the stop is in view.
  showStop() {
    const mark = this.text.querySelector(".stop-here");
    if (mark) this.text.scrollTop = mark.offsetTop - this.text.clientHeight / 2;
  }

  write(stop, stopText, rest) {
    const { probes, thinking } = this.reply;
    for (; this.marked < probes.length; this.marked++) {
      const probe = probes[this.marked];
      this.upTo(probe.place);
      this.target.append(probeTag(probe, this.theta));
      if (stop?.at === probe.at) {
        this.target.append(make("span", { class: "stop-here" }, stopText));
        this.target = this.text.appendChild(make("span", { class: rest }));
      }
    }
    this.upTo(thinking.length);
  }

  upTo(place) {
    if (place > this.shown) this.target.append(this.reply.thinking.slice(this.shown, place));
    this.shown = Math.max(this.shown, place);
  }
}

function probeTag(probe, theta) {
  const certain = probe.closed && !probe.bound && probe.certainty >= theta;
  const answer = probe.answer === null ? "withheld" : (probe.answer || "nothing") + (probe.closed ? "" : "…");
  return make(
    "span",
    {
      class: certain ? "probe certain" : "probe",
      title: "a probe: tokens so far, its answer, its certainty",
      "data-at": probe.at,
    },
    `${tokens(probe.at)} · ${answer} · ${probe.bound ? "≤ " : ""}${certaintyText(probe.certainty)}`,
  );
}

function statusOf(reply) {
  const { state, result } = reply;
  if (state === "failed") return reply.error;
  if (state === "halted") return "You stopped this reply.";
  if (state === "waiting") return "Waiting for the first token…";
  if (state !== "done") {
    const at = reply.tokens === null ? "" : ` ${tokens(reply.tokens)} tokens or more`;
    return state === "thinking" ? `Thinking…${at}` : "Writing the answer…";
  }
  const cause = CAUSES[result?.stop_cause] ?? result?.stop_cause ?? "complete";
  const detail = result?.stop_cause === "not_probed" && result.stop_detail ? ` (${result.stop_detail})` : "";
  return `${cause[0].toUpperCase()}${cause.slice(1)}${detail}${result?.abstained ? "; the answer is withheld" : ""}.`;
}

function numbersOf(reply) {
  const { result } = reply;
  if (!result) return [];
  const spent = result.usage ?? { thinking_tokens: reply.reported };
  const rows = [
    ["Thinking tokens", "thinking", spent.thinking_tokens],
    ["Answer tokens", "answer", spent.answer_tokens],
    ["Decoded by probes", "decoded", result.rule ? reply.decoded : null],
    ["Generated and not used", "surplus", spent.surplus_tokens || null],
    ["Budget", "budget", result.budget],
    ["Saved against the budget", "vs-budget", result.rule && !result.shadow ? result.saved?.vs_budget : null],
  ];
  return rows
    .filter(([, , value]) => value !== null && value !== undefined)
    .map(([name, metric, value]) => make("div", {}, make("dt", {}, name), number(metric, value, tokens(value), "dd")));
}
