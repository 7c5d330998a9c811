// The view of the server's own numbers, from /metrics.

const POLL_MS = 2000,
  KEPT_POLLS = 90;

// Prometheus' text to a list of {name, labels, value}.
function parseMetrics(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, key, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[key] = value.replace(/\\(.)/g, (_, sign) => (sign === "n" ? "\n" : sign));
    }
    found.push({ name: match[1], labels, value: Number(match[3].replace("Inf", "Infinity")) });
  }
  return found;
}

class Numbers {
  constructor(samples) {
    this.samples = samples;
  }

  named(name) {
    return this.samples.filter((sample) => sample.name === `cgr_${name}`);
  }

  sum(name, wanted = {}) {
    const fits = ({ labels }) => Object.entries(wanted).every(([key, value]) => labels[key] === value);
    return this.named(name)
      .filter(fits)
      .reduce((total, { value }) => total + value, 0);
  }

  // A metric by one of its labels, largest first.
  by(name, label) {
    const totals = new Map();
    for (const { labels, value } of this.named(name)) totals.set(labels[label], (totals.get(labels[label]) ?? 0) + value);
    return [...totals].filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
  }

  // A histogram as [upper bound, count in the bucket].
  buckets(name) {
    const counts = new Map();
    for (const { labels, value } of this.named(`${name}_bucket`)) {
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      counts.set(bound, (counts.get(bound) ?? 0) + value);
    }
    const sorted = [...counts].sort((a, b) => a[0] - b[0]);
    return sorted.map(([bound, count], i) => [bound, count - (i ? sorted[i - 1][1] : 0)]).filter(([bound]) => bound <= 1);
  }

  get saved() {
    return this.sum("baseline_tokens_total") - this.sum("thinking_tokens_total") - this.decoded;
  }

  get decoded() {
    return this.sum("probe_tokens_total", { kind: "decoded" });
  }
}

class ServerView {
  constructor() {
    this.history = [];
    this.timer = 0;
    this.open = false;
  }

  show(open) {
    this.open = open;
    clearTimeout(this.timer);
    if (open) this.poll();
    else this.history = [];
  }

  async poll() {
    clearTimeout(this.timer);
    if (!this.open) return;
    try {
      if (!document.hidden) await this.read();
      showFieldError("server-error", "");
    } catch (error) {
      showFieldError("server-error", error.message);
      if (error.status === 401) askForKey(error.message);
    }
    this.timer = setTimeout(() => this.poll(), POLL_MS);
  }

  async read() {
    const reply = await request("/metrics"),
      numbers = new Numbers(parseMetrics(await reply.text()));
    if (!this.open) return;
    const now = { at: performance.now() / 1000, thinking: numbers.sum("thinking_tokens_total"), decoded: numbers.decoded };
    this.history = [...this.history, now].slice(-KEPT_POLLS);
    this.numbers = numbers;
    this.draw();
  }

  draw() {
    const { numbers } = this;
    if (!numbers) return;
    const requests = numbers.sum("requests_total");
    replaceIn("server-headline", serverHeadline(requests, numbers));
    replaceIn("tiles", tilesOf(requests, numbers));
    drawPromise(numbers);
    drawRows(
      "causes",
      numbers.by("requests_total", "stop_cause").map(([cause, count]) => [CAUSES[cause] ?? cause, count, cause]),
    );
    drawRows("spent", [
      ["thinking", numbers.sum("thinking_tokens_total"), "spent-thinking"],
      ["answers", numbers.sum("answer_tokens_total"), "spent-answers"],
      ["decoded by probes", numbers.decoded, "spent-probes"],
      ["generated and not used", numbers.sum("surplus_tokens_total"), "spent-surplus"],
    ]);
    drawCertainties(numbers);
    drawRate(this.history);
    byId("server-note").textContent =
      "Saved: the thinking that the same requests take without early stops, minus their thinking, minus what all probes decoded. " +
      "Without early stops, a request is taken to be as long as plain and shadow requests are on average. Until there is one, " +
      "or --baseline-tokens says it, nothing counts as saved.";
    document.documentElement.dataset.polled = String(this.history.length);
  }
}

function serverHeadline(requests, numbers) {
  if (!requests) return ["No request has been answered yet."];
  const saved = numbers.saved,
    baseline = numbers.sum("baseline_tokens_total");
  const share =
    baseline > 0 && saved > 0
      ? [" (", number("saved-share", saved / baseline, percent(saved / baseline, 0), "strong"), ")"]
      : [];
  return [
    number("requests", requests, plural(requests, "request"), "strong"),
    ": ",
    number("saved", saved, tokens(saved), "strong"),
    " tokens saved, net of probes",
    ...share,
    ".",
  ];
}

// The promise of a calibration, and what its audits found; nothing without a calibration.
function drawPromise(numbers) {
  const host = byId("promise"),
    broken = numbers.sum("promise_broken") > 0,
    promised = `a risk of at most ${percent(numbers.sum("promise_epsilon"), 2)}`;
  host.hidden = !numbers.named("calibration_info").length;
  host.classList.toggle("broken", broken);
  if (host.hidden) return;
  if (!numbers.named("audit_total").length) {
    host.textContent = `The calibration promises ${promised}. It is not audited.`;
    return;
  }
  const [audits, losses] = ["audit_total", "audit_losses_total"].map((name) => numbers.sum(name)),
    [lower, upper] = ["audit_risk_lower", "audit_risk_upper"].map((name) => percent(numbers.sum(name), 2));
  host.replaceChildren(
    broken ? make("b", {}, "The promise is broken.") : "",
    broken ? ` The calibration promised ${promised}. ` : `The calibration promises ${promised}. `,
    number("audits", audits, plural(audits, "audit")),
    " with ",
    number("audit-losses", losses, plural(losses, "loss", "losses")),
    `: the risk is at least ${lower} and at most ${upper}.`,
  );
}

function tilesOf(requests, numbers) {
  const rejected = numbers.sum("rejected_total"),
    left = numbers.sum("client_disconnects_total");
  return [
    ["Requests", "tile-requests", requests],
    ["Being worked on", "in-flight", numbers.sum("requests_in_flight")],
    ["Waiting for a place", "queued", numbers.sum("requests_queued")],
    ["Probes", "probes", numbers.sum("probes_total")],
    ["Answers withheld", "withheld", numbers.sum("abstentions_total")],
    ["Turned away", "rejected", rejected],
    ["Clients that left", "left", left],
  ].map(([name, metric, value]) => make("div", {}, make("dt", {}, name), number(metric, value, tokens(value), "dd")));
}

// Rows of a name, a bar and a count.
function drawRows(id, rows) {
  const host = byId(id).querySelector(".rows"),
    most = Math.max(1, ...rows.map(([, count]) => count));
  if (!rows.some(([, count]) => count)) return showText(host, "Nothing yet.");
  return host.replaceChildren(
    ...rows.map(([name, count, metric]) =>
      make(
        "div",
        { class: "row" },
        make("span", { class: "row-name" }, name),
        svg(
          "svg",
          { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", class: "row-bar" },
          svg("rect", { width: (100 * count) / most, height: 10, class: "bar accent" }),
        ),
        number(metric, count, tokens(count)),
      ),
    ),
  );
}

function drawCertainties(numbers) {
  const host = byId("certainties").querySelector(".plot"),
    series = [
      [numbers.buckets("probe_certainty"), "bar pale", 0.06, "probes"],
      [numbers.buckets("stop_certainty"), "bar accent", 0.5, "ends"],
    ].map(([buckets, ...rest]) => [buckets, buckets.reduce((total, [, count]) => total + count, 0), ...rest]);
  const [[bounds, all]] = series;
  if (!all) return showText(host, "No probe was made yet.");
  const share = (count, total) => (total ? count / total : 0);
  const most = Math.max(...series.flatMap(([buckets, total]) => buckets.map(([, count]) => share(count, total))));
  const chart = new Chart(host, {
    height: 240,
    x: {
      domain: [0, bounds.length],
      ticks: bounds.map((_, i) => i + 0.5),
      labels: () => bounds.map(([bound]) => (bound < 1 ? String(bound).replace("0.", ".") : "1")),
      title: "certainty at most",
    },
    y: percentAxis([0, most * 1.05]),
    label: `Shares of ${plural(all, "probe")} by certainty.`,
  });
  for (const [buckets, total, name, from] of series) {
    buckets.forEach(([, count], i) => count && chart.bar(i + from, 0.44, 0, share(count, total), name));
  }
  return chart.show(
    bounds.map((_, i) => i + 0.5),
    (i) =>
      `at most ${bounds[i][0]}: ${series.map(([buckets, , , , name]) => `${tokens(buckets[i]?.[1] ?? 0)} ${name}`).join(", ")}`,
  );
}

function drawRate(history) {
  const host = byId("rate").querySelector(".plot"),
    rates = history.slice(1).map((now, i) => {
      const before = history[i],
        seconds = Math.max(now.at - before.at, 0.001);
      return [
        now.at - history.at(-1).at,
        Math.max(0, now.thinking - before.thinking) / seconds,
        Math.max(0, now.decoded - before.decoded) / seconds,
      ];
    });
  if (rates.length < 2) return showText(host, "A few seconds are needed for this.");
  const chart = new Chart(host, {
    height: 240,
    x: numberAxis([Math.min(rates[0][0], -10), 0], { title: "seconds", whole: true }),
    y: countAxis(Math.max(...rates.map(([, thinking]) => thinking))),
    label: `Tokens per second; now ${tokens(Math.round(rates.at(-1)[1]))} of thinking.`,
  });
  chart.line(
    rates.map(([at, thinking]) => [at, thinking]),
    "accent",
  );
  chart.line(
    rates.map(([at, , decoded]) => [at, decoded]),
    "muted",
  );
  return chart.show(
    rates.map(([at]) => at),
    (i) =>
      `${tokens(Math.round(-rates[i][0]))} s ago: ${tokens(Math.round(rates[i][1]))} of thinking, ${tokens(Math.round(rates[i][2]))} of probes`,
  );
}
