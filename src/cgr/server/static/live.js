// The page: asking, the two replies beside each other, the slider, the key, and the choice of the view.

const page = {
  withCgr: null,
  beside: null,
  theta: Number(document.documentElement.dataset.threshold),
  halt: null,
  pending: false,
};
const panes = { withCgr: new Pane(byId("pane-cgr"), "With cgr"), beside: new Pane(byId("pane-plain"), "The plain model") };
const serverView = new ServerView();

// Asking

function bodies() {
  const question = byId("question").value.trim(),
    budget = byId("budget").value ? Number(byId("budget").value) : null,
    threshold = Number(byId("threshold").value);
  const base = {
    messages: [{ role: "user", content: question }],
    seed: Number(byId("seed").value),
    stream_options: { include_usage: true },
  };
  const cgr = { threshold, stream_probes: true, ...(budget ? { budget } : {}) };
  const beside = {
    shadow: { ...base, cgr: { ...cgr, shadow: true, full: true } },
    plain: { ...base, cgr: false, ...(budget ? { thinking_token_budget: budget } : {}) },
    none: null,
  }[byId("beside").value];
  return [{ ...base, cgr }, beside];
}

async function ask() {
  const [body, besideBody] = bodies();
  if (!body.messages[0].content) return showFieldError("ask-error", "The question is empty.");
  showFieldError("ask-error", "");
  page.halt?.abort();
  const halt = (page.halt = new AbortController());
  page.withCgr = new Reply();
  page.beside = besideBody && new Reply();
  page.theta = body.cgr.threshold;
  page.asked = body.cgr.threshold;
  panes.withCgr.start(page.withCgr);
  panes.beside.start(page.beside);
  byId("results").hidden = false;
  byId("beside-key").hidden = byId("beside").value !== "shadow";
  widths.clear();
  showSlider();
  running(true);
  draw();
  byId("results").scrollIntoView();
  const current = [page.withCgr.run(body, halt.signal, changed), page.beside?.run(besideBody, halt.signal, changed)];
  await Promise.all(current);
  if (page.halt === halt) finished();
}

function finished() {
  running(false);
  draw();
  byId("live").textContent = byId("headline").textContent;
  if ([page.withCgr, page.beside].some((reply) => reply?.status === 401)) askForKey("The API key is missing or wrong.");
}

function running(yes) {
  byId("halt").hidden = !yes;
  byId("halt").textContent = page.beside ? "Stop both" : "Stop";
  document.documentElement.dataset.state = yes ? "running" : "done";
}

// Drawing, at most once for each frame

function changed() {
  if (page.pending) return;
  page.pending = true;
  requestAnimationFrame(draw);
}

function draw() {
  page.pending = false;
  const { withCgr, beside, theta } = page;
  if (!withCgr) return;
  const found = evidence(withCgr, beside),
    usual = (withCgr.result?.rule ?? document.documentElement.dataset.rule) === "cgr";
  const decided = usual ? wouldStop(found.probes, theta, found) : { kind: "end" };
  const stop = theta === page.asked && withCgr.stop ? withCgr.stop : decided.kind === "stop" ? decided.probe : null;
  const inPlain =
    beside && found.source === beside && stop ? (beside.probes.find((probe) => probe.at === stop.at) ?? null) : null;
  panes.withCgr.update(withCgr.stop, stopText(withCgr.stop, page.asked, "stopped here"), page.asked, "kept");
  panes.beside.update(inPlain, stopText(inPlain, theta, "cgr stops here; the rest is saved"), theta, "unread");
  updateCurve(withCgr, beside, theta, stop);
  byId("what-if").textContent = whatIf(theta, withCgr, beside);
  replaceIn("headline", headlineOf(withCgr, beside));
  document.documentElement.dataset.drawn = "yes";
}

// Text arrives more often than probes: the chart is drawn only if something in it changed.
function updateCurve(withCgr, beside, theta, stop) {
  const host = byId("curve").querySelector(".plot"),
    state = [withCgr, beside].map((reply) => reply && [reply.probes.length, reply.tokens, reply.ended]),
    key = JSON.stringify([state, theta, stop?.at, widthOf(host)]);
  if (page.withCgr === page.drawnFor && key === page.curve) return;
  page.curve = key;
  page.drawnFor = page.withCgr;
  const focused = host.contains(document.activeElement);
  drawCurve(host, withCgr, beside, theta, stop);
  if (focused) host.querySelector("svg").focus({ preventScroll: true }); // a new probe must not take the keyboard away
}

function stopText(probe, theta, words) {
  return probe ? `${words}: ${certaintyText(probe.certainty)} is at least ${certaintyText(theta)}` : "";
}

function headlineOf(withCgr, beside) {
  const { result, state } = withCgr;
  if (state === "failed") return ["There is no reply."];
  if (state === "halted") return ["You stopped the reply."];
  if (!result) {
    const last = withCgr.probes.at(-1);
    return last
      ? [
          "Thinking… after ",
          strong(tokens(last.at)),
          ` tokens the answer is ${shortAnswer(last.answer)}, `,
          strong(certaintyText(last.certainty)),
          " certain.",
        ]
      : ["Thinking…"];
  }
  const given = result.abstained
    ? "Not certain enough to answer"
    : result.answer
      ? [strong(shortAnswer(result.answer))]
      : "No answer";
  return [
    given,
    ` after `,
    number("used", withCgr.tokens, tokens(withCgr.tokens), "strong"),
    ...savedWords(withCgr, beside),
  ].flat();
}

function savedWords(withCgr, beside) {
  const whole = beside?.state === "done" ? beside.tokens : null;
  if (!whole) return [` thinking tokens of a budget of ${tokens(withCgr.result.budget)}.`];
  const net = whole - withCgr.tokens - withCgr.decoded,
    of = [" of ", number("whole", whole, tokens(whole)), " thinking tokens"];
  if (net <= 0) return [...of, ": nothing saved, net of probes."];
  return [
    ...of,
    ": ",
    number("net", net, tokens(net), "strong"),
    " saved, net of probes (",
    number("share", net / whole, percent(net / whole, 0), "strong"),
    ").",
  ];
}

function shortAnswer(answer) {
  return answer === null ? "withheld" : shortened(answer || "nothing", 24);
}

function strong(text) {
  return make("strong", {}, text);
}

// The slider

function showSlider() {
  const slide = byId("theta-slide");
  slide.max = SLIDER_THRESHOLDS.length - 1;
  slide.value = nearest(SLIDER_THRESHOLDS, page.theta);
  slide.setAttribute("aria-valuetext", certaintyText(page.theta));
  byId("theta-text").textContent = `θ = ${certaintyText(page.theta)}`;
}

function slid() {
  page.theta = SLIDER_THRESHOLDS[byId("theta-slide").value];
  showSlider();
  changed();
}

// The key, the model, the views

function showFieldError(id, message) {
  byId(id).textContent = message;
  byId(id).hidden = !message;
}

function askForKey(message) {
  byId("key-form").hidden = false;
  showFieldError("key-error", storedKey() ? message : "");
  byId("key").focus();
}

async function connect() {
  try {
    const { data } = await (await request("/v1/models")).json();
    const name = data.find((one) => one.parent)?.parent ?? data[0]?.id ?? "";
    byId("model").textContent = name && `· ${name}`;
    byId("key-form").hidden = true;
    document.documentElement.dataset.connected = "yes";
  } catch (error) {
    if (error.status === 401) askForKey(error.message);
    else showFieldError("ask-error", error.message);
  }
}

function showView() {
  const server = location.hash === "#server";
  byId("ask-view").hidden = server;
  byId("server-view").hidden = !server;
  for (const [id, here] of [
    ["to-ask", !server],
    ["to-server", server],
  ]) {
    if (here) byId(id).setAttribute("aria-current", "page");
    else byId(id).removeAttribute("aria-current");
  }
  widths.clear();
  serverView.show(server);
  if (!server) changed();
}

function listen() {
  byId("ask-form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  byId("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask-form").requestSubmit();
  });
  for (const example of document.querySelectorAll(".example")) {
    example.addEventListener("click", () => {
      byId("question").value = example.textContent;
      byId("question").focus();
    });
  }
  byId("halt").addEventListener("click", () => page.halt?.abort());
  addEventListener("keydown", (event) => event.key === "Escape" && page.halt?.abort());
  byId("theta-slide").addEventListener("input", slid);
  byId("theme").addEventListener("click", switchTheme);
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    storeKey(byId("key").value.trim());
    byId("key").value = "";
    connect();
    serverView.poll();
  });
  addEventListener("hashchange", showView);
  document.addEventListener("visibilitychange", () => serverView.poll());
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    widths.clear();
    changed();
    panes.withCgr.showStop();
    panes.beside.showStop();
    serverView.draw();
  });
}

function begin() {
  byId("threshold").value = document.documentElement.dataset.threshold;
  byId("question").value = document.querySelector(".example")?.textContent ?? "";
  listen();
  showView();
  connect();
  document.documentElement.dataset.drawn = "yes";
}

begin();
