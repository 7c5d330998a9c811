// Head room and false sureness, from report.json: what a rule could save here at most, and whether certainty can be trusted.

function drawProspects(run) {
  const found = prospects(run);
  byId("prospects").hidden = !found.length;
  replaceIn("prospects", found);
  const rows = (run.report.false_sure ?? []).map((row) => ({ attributes: { "data-threshold": row.threshold }, values: row }));
  byId("false-sure-table").hidden = !rows.length;
  if (rows.length) replaceIn("false-sure-table", falseSureTable(rows));
}

function prospects(run) {
  const { headroom, false_sure: rows, verdict } = run.report;
  if (headroom === undefined) return [];
  return [verdict ? make("p", {}, make("strong", {}, verdict)) : null, make("p", {}, headroomText(headroom), " ", ...falseSureText(rows))].filter(Boolean);
}

function headroomText(headroom) {
  if (headroom === null) return "Head room is unknown: no probe was recorded.";
  return [
    "Head room: ",
    number("headroom", headroom, percent(headroom), "b"),
    " of the thinking comes after the last change of answer; no rule that keeps the answers saves more.",
  ];
}

function falseSureText(rows) {
  const row = rows?.at(-1);
  if (!row) return [];
  const at = certaintyText(row.threshold);
  if (!row.probes) return [`No probe reached ${at}, so false sureness is unknown.`];
  return [
    `False sureness: of the ${plural(row.probes, "probe")} at or above ${at}, `,
    number("false_sure", row.share, percent(row.share), "b"),
    " have another answer than the one at the end of their trace.",
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
