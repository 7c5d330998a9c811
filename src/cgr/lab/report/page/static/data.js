// Turns the columns inside the page into runs. Each trace has its question, its seed, and the range of its probes.

const CLOSED = 1,
  RIGHT = 2,
  BOUND = 4,
  AGREES = 8,
  NATURAL = 1,
  EOS = 2,
  GRADED = 4;

function readJson(id) {
  const element = document.getElementById(id);
  return element ? JSON.parse(element.textContent) : null;
}

function openRun(raw, number) {
  const { info, questions, seeds, answers, probes, finals, report } = raw;
  const run = { number, info, questions, seeds, answers, probes, finals, report, hasTexts: raw.texts };
  run.decodedBefore = runningSum(probes.decoded);
  run.traces = openTraces(run, raw.traces);
  run.budget = run.traces.reduce((most, trace) => Math.max(most, trace.budget), 1);
  run.interval = info.interval >= 1 ? info.interval : Math.max(1, Math.floor(run.budget / 32));
  run.graded = run.traces.filter((trace) => trace.graded).length;
  run.steps = stepsBelow(run.budget, run.interval);
  run.budgets = [...replayable(run), run.budget];
  run.highestBound = highestBound(run);
  run.onGrid = 2 * probes.at.filter((at) => at % run.interval === 0).length >= probes.at.length;
  return run;
}

function openTraces(run, columns) {
  let from = 0;
  return columns.question.map((question, index) => {
    const to = from + columns.probes[index];
    const trace = {
      index,
      question,
      from,
      to,
      seed: columns.seed[index],
      tokens: columns.tokens[index],
      budget: columns.budget[index],
      graded: (columns.flags[index] & GRADED) > 0,
      natural: (columns.flags[index] & NATURAL) > 0,
      eos: (columns.flags[index] & EOS) > 0,
      candidates: stopCandidates(run.probes, from, to),
    };
    from = to;
    return trace;
  });
}

// The closed probes with a higher certainty than every closed one before: at any threshold, the stop is one of these.
function stopCandidates(probes, from, to) {
  const candidates = [];
  let best = -1;
  for (let i = from; i < to; i++) {
    if (probes.flags[i] & CLOSED && probes.certainty[i] > best) {
      best = probes.certainty[i];
      candidates.push(i);
    }
  }
  return candidates;
}

function runningSum(values) {
  const sums = new Float64Array(values.length + 1);
  for (let i = 0; i < values.length; i++) sums[i + 1] = sums[i] + values[i];
  return sums;
}

function stepsBelow(budget, interval) {
  const steps = [];
  for (let at = interval; at < budget; at += interval) steps.push(at);
  return steps;
}

// The steps at which every trace that reached them has a whole answer: budgets that can be replayed.
function replayable(run) {
  const { at: positions, flags } = run.probes;
  const missing = new Map(run.steps.map((step) => [step, 0]));
  for (const trace of run.traces) {
    for (const step of run.steps) if (step <= trace.tokens) missing.set(step, missing.get(step) + 1);
    for (let i = trace.from; i < trace.to; i++) {
      const at = positions[i];
      if (missing.has(at) && at <= trace.tokens && !(flags[i] & BOUND)) missing.set(at, missing.get(at) - 1);
    }
  }
  return run.steps.filter((step) => missing.get(step) === 0);
}

// The certainty of a probe that stopped decoding early is only a bound: at thresholds up to the highest bound the rule
// cannot be replayed.
function highestBound(run) {
  const { flags, certainty } = run.probes;
  let highest = -1;
  for (let i = 0; i < flags.length; i++) {
    if (flags[i] & BOUND) highest = Math.max(highest, certainty[i]);
  }
  return highest;
}
