// Head room and false sureness, from report.json: what a rule could save here at most, and whether certainty can be trusted.

function drawProspects(run) {
  const found = prospects(run);
  byId("prospects").hidden = !found.length;
  replaceIn("prospects", found);
  const rows = (run.report.false_sure ?? []).map((row) => ({ attributes: { "data-threshold": row.threshold }, values: row }));
  byId("false-sure-table").hidden = !rows.length;
  if (rows.length) replaceIn("false-sure-table", falseSureTable(rows));
}

const VERDICT_AT = 0.99; // false sureness is judged at this threshold

function prospects(run) {
  const { headroom, false_sure: rows, verdict } = run.report;
  if (headroom === undefined) return [];
  if (headroom === null) return [make("p", {}, "Head room and false sureness are unknown: no probe was recorded.")];
  const row = rows.find((found) => found.threshold === VERDICT_AT) ?? rows.at(-1);
  return [make("p", {}, make("strong", {}, verdict ?? goodVerdict(row))), make("p", {}, headroomText(headroom), " ", falseSureText(row))];
}

function goodVerdict({ probes }) {
  return probes
    ? "There is thinking to save here, and sure probes mostly agree with the final answers."
    : "There is thinking to save here, but no probe is sure enough to show whether certainty can be trusted.";
}

function headroomText(headroom) {
  return [
    "Head room: ",
    number("headroom", headroom, percent(headroom), "b"),
    " of the thinking comes after the answer no longer changes; no rule that keeps the answers saves more.",
  ];
}

function falseSureText({ threshold, probes, share }) {
  const at = certaintyText(threshold);
  if (!probes) return `False sureness is unknown: no probe reached ${at}.`;
  return [
    `False sureness: of the ${plural(probes, "probe")} at or above ${at}, `,
    number("false_sure", share, percent(share), "b"),
    " have another answer than the final one of their trace.",
  ];
}

function falseSureTable(rows) {
  const columns = [
    THRESHOLD,
    { metric: "probes", title: "Probes", format: whole, help: "closed probes at or above the threshold" },
    { metric: "share", title: "False", format: percent, help: "share of these whose answer differs from the final one" },
  ];
  return table("False sureness: sure probes whose answer is not the final answer of their trace.", columns, rows);
}
