// The certainty of each probe against the thinking tokens, the threshold, the stop, and what the plain model thinks after it.

const NAMED_CERTAINTIES = [0, 0.9, 0.99, 0.999, 0.9999, 1];

// Certainties in equal steps of doubt, so that 0.99 and 0.999 are apart.
function certaintyAxis() {
  return {
    domain: [0, 5.2],
    ticks: NAMED_CERTAINTIES.map(doubtPlace),
    labels: (places) => places.map((place) => String(NAMED_CERTAINTIES.find((one) => doubtPlace(one) === place))),
  };
}

function drawCurve(host, withCgr, beside, theta, stop) {
  const same = beside !== null && thoughtTheSame(withCgr, beside),
    last = withCgr.probes.at(-1)?.at ?? Infinity,
    after = same ? beside.probes.filter((probe) => probe.at >= last) : [];
  const own = withCgr.probes.map((probe) => (same && probe.bound ? decodedWhole(probe, beside) : probe)),
    all = [...own, ...after.filter((probe) => probe.at > (own.at(-1)?.at ?? 0))];
  const whole = Math.max(withCgr.tokens ?? 0, beside?.tokens ?? 0),
    running = !withCgr.ended || (beside && !beside.ended);
  const most = running ? growing(whole) : Math.max(whole, 1) * 1.02;
  const chart = new Chart(host, {
    height: 280,
    margin: { bottom: 64, left: 50 },
    x: { ...tokenAxis([0, most], ""), room: 90 },
    y: certaintyAxis(),
    label: curveLabel(all, theta, stop),
  });
  const end = beside?.ended ? beside.tokens : null;
  if (stop && end > stop.at) chart.bar(stop.at, end - stop.at, 0, 5.2, "unspent");
  chart.across(doubtPlace(theta), `θ = ${certaintyText(theta)}`, "rule threshold-line");
  chart.line(after.map(placeOfProbe), "muted");
  chart.line(own.map(placeOfProbe), "accent");
  const radius = all.length > 60 ? 2 : 3.4;
  for (const probe of all) chart.dot(placeOfProbe(probe), dotOf(probe, own.includes(probe)), radius);
  answerBars(
    chart,
    all.map((probe) => ({ x: probe.at, text: probe.answer ?? "", name: probe.closed ? "" : "open" })),
    whole,
  );
  if (stop) chart.down(stop.at, "stop");
  chart.show(
    all.map((probe) => probe.at),
    (k) => readProbe(all[k]),
  );
}

// The same probe in the plain run, where it was decoded to its end.
function decodedWhole(probe, beside) {
  return beside.probes.find((one) => one.at === probe.at) ?? probe;
}

// While tokens arrive, the axis grows in steps and not with each of them.
function growing(most) {
  let end = 128;
  while (end < most * 1.05) end *= 1.5;
  return end;
}

function placeOfProbe(probe) {
  return [probe.at, doubtPlace(probe.certainty)];
}

function dotOf(probe, own) {
  if (!probe.closed || probe.bound) return "open";
  return own ? "accent" : "muted";
}

function readProbe(probe) {
  const note = probe.bound ? ", only a bound" : probe.closed ? "" : ", did not close";
  return `${tokens(probe.at)} tokens: ${quoted(probe)}, ${probe.bound ? "at most " : ""}${certaintyText(probe.certainty)} certain${note}`;
}

function curveLabel(probes, theta, stop) {
  const last = probes.at(-1);
  return (
    `Certainty of ${plural(probes.length, "probe")} against thinking tokens, threshold ${certaintyText(theta)}. ` +
    (stop ? `Stop after ${tokens(stop.at)} tokens. ` : "Not stopped. ") +
    (last ? `Last probe: ${readProbe(last)}.` : "")
  );
}
