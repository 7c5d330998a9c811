// What each rule gets of the oracle's saving, where the rest goes, and what a fixed budget of the same cost gets.

const ORACLE_HEADS = [
  ["Rule", null],
  ["Net", "saved minus the probe tokens"],
  ["Of the oracle", "the net saving as a share of the oracle's"],
  ["Unsolved", "missing: thinking on traces whose final answer is wrong, as a share of the baseline's thinking"],
  ["Late", "missing: thinking past the oracle's stop on the other traces, less what earlier stops gain"],
  ["Probes", "missing: tokens decoded by probes"],
  ["Fixed budget", "accuracy of a fixed budget of the same cost"],
  ["Gain", "percentage points over that fixed budget, with the paired 95 % interval"],
  ["Fixed, same accuracy", "tokens per question that a fixed budget needs for the rule's accuracy; a dash: none reaches it"],
  ["Worst split", "the smallest net saving over several splits of the questions, the value chosen anew in each"],
];

// By agreement: every final answer agrees with itself, so no trace is unsolved, and the oracle's saving is the head room.
const AGREEMENT_HEADS = ORACLE_HEADS.filter(([title]) => title !== "Unsolved").map(([title, help]) => {
  if (title === "Of the oracle") return ["Of the head room", "the net saving as a share of the head room"];
  if (title === "Late") return [title, "missing: thinking past the place where the final answer is there for good, less what earlier stops gain"];
  return [title, help];
});

function oracleTable(found, name) {
  const { entries, oracle, reference } = found;
  const saved = percent(oracle);
  const byAgreement = reference === "final";
  const caption = byAgreement
    ? `Head room on the questions shown is ${saved}: what is saved if each trace stops where its final answer is there for good. ` +
      "Net, late and probes add up to it."
    : `The oracle stops each trace where its answer becomes right for good, or at once if it never does. It saves ${saved}: ` +
      "net, unsolved, late and probes add up to it.";
  const head = headCells(byAgreement ? AGREEMENT_HEADS : ORACLE_HEADS, found);
  const rows = entries.map((entry) => oracleRow(entry, entry.rule === name, byAgreement));
  return captioned(caption, make("tr", {}, head), rows);
}

function oracleRow({ rule, shown, oracle_share, adaptive, splits }, current, byAgreement) {
  const share = (metric, value) => number(metric, value, percent(value), "td");
  return make(
    "tr",
    { "data-rule": rule, class: current ? "current" : null },
    make("th", { scope: "row" }, rule),
    share("net_share", shown.net_share),
    share("oracle_share", oracle_share),
    ...(byAgreement ? [] : [share("unsolved", shown.unsolved)]),
    share("late", shown.late),
    share("probes", shown.probes),
    share("fixed_accuracy", adaptive.fixed_accuracy),
    gainCell(adaptive),
    number("fixed_cost_for_same_accuracy", adaptive.fixed_cost_for_same_accuracy, one(adaptive.fixed_cost_for_same_accuracy), "td"),
    share("net_share_worst", splits?.net_share_worst ?? null),
  );
}

function gainCell({ gain_points: gain, ci95 }) {
  if (ci95 === null) return number("gain_points", gain, points(gain), "td");
  return withSpan("gain_points", gain, points(gain), ci95.map((end) => points(end)));
}
