// Scores decisions, with the names of report.json: means are over seeds, savings are sums over traces.

function score(run, { theta, budget, abstain }) {
  const baselineDecisions = decideAll(run, Infinity, budget);
  const decisions = decideAll(run, theta, budget);
  const given = decisions.map((decision) => !abstain || isSure(decision, theta));
  const baseScore = tally(
    run,
    baselineDecisions,
    baselineDecisions.map(() => true),
  );
  const cgrScore = tally(run, decisions, given);
  const cost = cgrScore.tokens_mean + total(decisions.map((decision) => decision.probeTokens)) / decisions.length;
  return {
    baselineDecisions,
    decisions,
    given,
    baseScore,
    cgrScore,
    fired: decisions.filter((decision) => decision.cause === "certainty").length,
    accuracy: compare(run, baseScore, cgrScore),
    adaptive: adaptive(run, budget, cost, cgrScore.accuracy),
    savings: computeSavings(run, baselineDecisions, decisions, budget),
  };
}

// Counts of correct, wrong and withheld answers and of tokens: by seed, by question, and in total. Traces without a known
// answer count only in tokens.
function tally(run, decisions, given) {
  const empty = () => ({ correct: 0, wrong: 0, withheld: 0, graded: 0, tokens: 0, probeTokens: 0, traces: 0 });
  const bySeed = run.seeds.map(empty),
    byQuestion = run.questions.map(empty),
    all = empty();
  run.traces.forEach((trace, i) => {
    const outcome = !given[i] ? "withheld" : decisions[i].right ? "correct" : "wrong";
    for (const sums of [bySeed[trace.seed], byQuestion[trace.question], all]) {
      sums.tokens += decisions[i].used;
      sums.probeTokens += decisions[i].probeTokens;
      sums.traces += 1;
      if (!trace.graded) continue;
      sums.graded += 1;
      sums[outcome] += 1;
    }
  });
  const known = all.graded > 0,
    seeds = run.seeds.length;
  return {
    bySeed,
    byQuestion,
    all,
    tokens_mean: all.tokens / all.traces,
    correct_mean: known ? all.correct / seeds : null,
    wrong_mean: known ? all.wrong / seeds : null,
    withheld_mean: known ? all.withheld / seeds : null,
    accuracy: known ? all.correct / all.graded : null,
    selective: all.correct + all.wrong > 0 ? all.correct / (all.correct + all.wrong) : null,
    coverage: known ? 1 - all.withheld / all.graded : null,
    sd: deviation(bySeed.filter((seed) => seed.graded).map((seed) => seed.correct / seed.graded)),
  };
}

function compare(run, baseScore, cgrScore) {
  if (!run.graded) return { correct_mean: null, accuracy: null, diff_mean: null, diff_points: null, diff_relative: null };
  const diffs = run.seeds.map((_, seed) => cgrScore.bySeed[seed].correct - baseScore.bySeed[seed].correct);
  const diff = cgrScore.all.correct - baseScore.all.correct;
  return {
    correct_mean: cgrScore.correct_mean,
    accuracy: cgrScore.accuracy,
    diff_mean: diff / run.seeds.length,
    diff_points: (100 * diff) / run.graded,
    diff_relative: baseScore.all.correct > 0 ? diff / baseScore.all.correct : null,
    equal: diffs.filter((one) => one === 0).length,
    better: diffs.filter((one) => one > 0).length,
    worse: diffs.filter((one) => one < 0).length,
  };
}

function computeSavings(run, baselineDecisions, decisions, budget) {
  const natural = total(baselineDecisions.map((decision) => decision.used));
  const used = total(decisions.map((decision) => decision.used));
  const probeTokens = total(decisions.map((decision) => decision.probeTokens));
  const allowed = total(run.traces.map((trace) => Math.min(trace.budget, budget)));
  const saved = natural - used;
  return {
    total: saved,
    per_seed: saved / run.seeds.length,
    per_question: saved / run.traces.length,
    probe_tokens: probeTokens,
    net_total: saved - probeTokens,
    share: natural > 0 ? saved / natural : 0,
    net_share: natural > 0 ? (saved - probeTokens) / natural : 0,
    against_budget_total: allowed - used,
    against_budget_share: allowed > 0 ? (allowed - used) / allowed : 0,
    disagreement: decisions.filter((decision) => !decision.agrees).length / Math.max(decisions.length, 1),
  };
}

// Right and wrong answers at each step with abstention: from the first sure probe at or before it, else from a sure final
// answer if the thinking ended before it.
function gradeSteps(run, theta, budget) {
  const steps = run.steps.filter((step) => step < budget);
  const correct = steps.map(() => 0),
    wrong = steps.map(() => 0);
  for (const trace of run.traces) {
    if (!trace.graded) continue;
    const decision = decide(run, trace, theta, run.budget);
    if (!isSure(decision, theta)) continue;
    const from = decision.cause === "certainty" ? decision.used : decision.used + 1;
    const counts = decision.right ? correct : wrong;
    for (let k = steps.length - 1; k >= 0 && steps[k] >= from; k--) counts[k] += 1;
  }
  return { steps, correct, wrong, seeds: run.seeds.length };
}

function grade(curve, baseScore, penalty) {
  const grades = curve.steps.map((_, k) => (curve.correct[k] - penalty * curve.wrong[k]) / curve.seeds);
  const baseline = baseScore.correct_mean === null ? null : baseScore.correct_mean - penalty * baseScore.wrong_mean;
  if (!grades.length || baseline === null)
    return { grades: [], answered: 0, baseline, final: null, diff: null, max: null, step: null };
  const final = grades[grades.length - 1],
    max = Math.max(...grades);
  const earliest = grades.findIndex((one) => one >= max - 1e-9);
  const answered = curve.correct.at(-1) + curve.wrong.at(-1);
  return { grades, answered, baseline, final, diff: final - baseline, max, step: curve.steps[earliest] };
}

// The interval of the difference in correct answers: a paired bootstrap over questions, with the same draws every time.
function interval95(run, baseScore, cgrScore, rounds = 2000) {
  const diffs = run.questions
    .map((_, question) => [baseScore.byQuestion[question], cgrScore.byQuestion[question]])
    .filter(([before]) => before.graded > 0)
    .map(([before, after]) => (after.correct - before.correct) / run.seeds.length);
  if (diffs.length < 2) return null;
  const random = generator(1);
  const sums = Array.from({ length: rounds }, () => {
    let sum = 0;
    for (let i = 0; i < diffs.length; i++) sum += diffs[Math.floor(random() * diffs.length)];
    return sum;
  });
  sums.sort((a, b) => a - b);
  return [quantile(sums, 0.025), quantile(sums, 0.975)];
}

// mulberry32: a small random generator that gives the same numbers in every browser.
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function total(values) {
  let sum = 0;
  for (const value of values) sum += value;
  return sum;
}

function mean(values) {
  return values.length ? total(values) / values.length : null;
}

function deviation(values) {
  if (values.length < 2) return null;
  const centre = mean(values);
  return Math.sqrt(total(values.map((value) => (value - centre) ** 2)) / (values.length - 1));
}

function quantile(sorted, share) {
  const place = share * (sorted.length - 1),
    low = Math.floor(place);
  return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
