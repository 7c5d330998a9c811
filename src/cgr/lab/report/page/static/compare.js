// All rules on the same traces, computed in Python and shown here. One rule is highlighted.

const FIXED_BUDGET = "fixed-budget";
const highlighted = new Map(); // the highlighted rule of each run

function drawRules(run) {
  const found = data.comparisons?.[run.number];
  if (!found) return;
  const can = Boolean(found.entries?.length);
  byId("rules-body").hidden = !can;
  byId("rules-instead").hidden = can;
  replaceIn("rules-chosen", found.chosen ?? "");
  replaceIn("rules-instead", found.why ?? "The recordings allow no rule.");
  replaceIn("rules-missing", missingRules(found.missing ?? []));
  byId("not-compared").hidden = !found.missing?.length;
  if (!can) return;
  const name = highlighted.get(run) ?? found.entries[0].rule;
  replaceIn("verdicts", found.verdicts.flatMap(([measure, verdict]) => [make("dt", {}, measure), make("dd", {}, verdict)]));
  replaceIn("frontier-name", name);
  replaceIn("frontier-measure", worded("Accuracy", found));
  drawFrontier(found, found.entries.find((entry) => entry.rule === name));
  replaceIn("rules-table", rulesTable(run, found, name));
  if (found.oracle !== undefined) replaceIn("oracle-table", oracleTable(found, name));
}

// A text about accuracy; without golds the same about agreement, which is measured in its place.
function worded(text, { reference }) {
  if (reference !== "final" || text === null) return text;
  return text.replaceAll("accuracy", "agreement").replaceAll("Accuracy", "Agreement");
}

function headCells(heads, found) {
  return heads.map(([title, help]) => make("th", { scope: "col", title: worded(help, found) }, worded(title, found)));
}

function missingRules(missing) {
  return missing.map(([why, hint]) => make("li", {}, `${why} `, make("span", { class: "quiet" }, hint)));
}

// The values of a rule that lie on its frontier, cheapest first.
function cornersOf(entry) {
  const corners = entry.sweep.filter((point) => entry.frontier.includes(point.value));
  return corners.sort((a, b) => a.net_tokens - b.net_tokens);
}

function frontierSpan({ entries, whole }) {
  const high = Math.max(whole.accuracy, ...entries.flatMap((entry) => entry.sweep.map((point) => point.accuracy)));
  const cheapest = entries.filter((entry) => entry.rule !== FIXED_BUDGET).flatMap((entry) => cornersOf(entry).slice(0, 1));
  const low = Math.min(high - 0.06, ...cheapest.map((point) => point.accuracy));
  return around([Math.max(low, whole.accuracy - SHOWN_LOSS), high], { floor: 0, ceiling: 1.01 });
}

function drawFrontier(found, entry) {
  const { entries, whole, margin } = found;
  const span = frontierSpan(found);
  const chart = new Chart(plot("frontier"), {
    height: 340,
    x: tokenAxis([0, whole.net_tokens * 1.06], "tokens per trace, probes included"),
    y: percentAxis(span),
    label: worded(`Accuracy against tokens for ${plural(entries.length, "rule")}; ${entry.rule} is highlighted.`, found),
  });
  const line = (one, name) => chart.line(cornersOf(one).map((point) => [point.net_tokens, point.accuracy]), name);
  chart.across(whole.accuracy + margin / 100, null);
  for (const one of entries) if (one !== entry) line(one, one.rule === FIXED_BUDGET ? "muted dashed thin" : "faint");
  line(entry, "accent");
  const seen = entry.sweep.filter((point) => point.accuracy >= span[0]);
  for (const point of seen) {
    const ends = point.ci95_diff_points.map((diff) => whole.accuracy + diff / 100);
    const [low, high] = ends.map((end) => Math.min(Math.max(end, span[0]), span[1]));
    chart.line([[point.net_tokens, low], [point.net_tokens, high]], "whisker");
    chart.dot([point.net_tokens, point.accuracy], "accent");
  }
  chart.dot([whole.net_tokens, whole.accuracy], "hollow", 5);
  const ordered = seen.sort((a, b) => a.net_tokens - b.net_tokens);
  chart.show(
    ordered.map((point) => point.net_tokens),
    (i) => readPoint(entry, ordered[i]),
  );
}

function readPoint(entry, point) {
  const at = point.value === null ? "" : ` ${valueText(point.value)}`;
  const [low, high] = point.ci95_diff_points.map((end) => points(end));
  return (
    `${entry.rule}${at}: ${percent(point.accuracy)}, ${points(point.diff_points)} points (${low} to ${high}), ` +
    `${percent(point.net_share)} saved net`
  );
}

function valueText(value) {
  return Math.abs(value) >= 1000 ? plainNumber(value) : String(Number(value.toPrecision(6)));
}

const CAPTION = "Each rule at its chosen value. Select a name to highlight its line.";
const RULE_HEADS = [
  ["Rule", null],
  ["At", "the value chosen for equal accuracy"],
  ["Accuracy", null],
  ["Points", "against the full budget, with the paired 95 % interval"],
  ["Equal", "a bound of the difference, which keeps its width when nothing changed, stays above the margin on the questions shown"],
  ["Saved", "thinking tokens, against the natural length"],
  ["Net", "saved minus the probe tokens, with its 95 % interval"],
  ["Area", "under the frontier: accuracy averaged over all token budgets"],
];

function rulesTable(run, found, name) {
  const { entries, baseline } = found;
  const head = headCells(RULE_HEADS, found);
  const rest = RULE_HEADS.slice(3).map(() => make("td"));
  const baselineRow = [make("th", { scope: "row" }, "full budget"), make("td"), accuracyCell(baseline), ...rest];
  const rows = entries.map((entry) => {
    const { shown, equal } = entry,
      area = entry.figures.find((figure) => figure.measure === "area").figure;
    const at = shown.value === null ? "" : valueText(shown.value);
    return make(
      "tr",
      { "data-rule": entry.rule, class: entry.rule === name ? "current" : null },
      make("th", { scope: "row" }, ruleButton(run, entry, entry.rule === name)),
      make("td", { title: entry.parameter }, at),
      accuracyCell(shown),
      withSpan("diff_points", shown.diff_points, points(shown.diff_points), shown.ci95_diff_points.map((end) => points(end))),
      make("td", { "data-metric": "equal", "data-value": Number(equal), title: verdictText(entry) }, equal ? "yes" : entry.verdict),
      number("gross_share", shown.gross_share, percent(shown.gross_share), "td"),
      withSpan("net_share", shown.net_share, percent(shown.net_share), shown.ci95_net_share.map((end) => plainNumber(100 * end, 1))),
      number("area", area, percent(area), "td"),
    );
  });
  return captioned(CAPTION, make("tr", {}, head), [make("tr", {}, baselineRow), ...rows]);
}

// Whether accuracy is equal where values were chosen and where they are shown, and what would settle it.
function verdictText({ verdict, tuning_verdict, needed_questions }) {
  const settles = needed_questions ? `; about ${valueText(needed_questions)} shown questions would settle it` : "";
  return `where shown: ${verdict}${settles}; where chosen: ${tuning_verdict}`;
}

function accuracyCell(point) {
  return number("accuracy", point.accuracy, percent(point.accuracy), "td");
}

function withSpan(metric, value, text, [low, high]) {
  const cell = number(metric, value, text, "td");
  cell.append(make("span", { class: "span" }, ` ${low} to ${high}`));
  return cell;
}

function ruleButton(run, entry, pressed) {
  const button = make("button", { type: "button", class: "rule-name", "aria-pressed": String(pressed) }, entry.rule);
  button.addEventListener("click", () => {
    highlighted.set(run, entry.rule);
    drawRules(run);
    byId("rules-table").querySelector("[aria-pressed=true]").focus();
  });
  return button;
}
