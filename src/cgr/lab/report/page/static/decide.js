// Applies the rule `cgr` to recorded probes, at any threshold and at any budget on the grid.

// A threshold of Infinity never stops: that is the baseline.
function decide(run, trace, theta, budget) {
  const { at, certainty } = run.probes;
  for (const i of trace.candidates) {
    if (at[i] >= budget) break;
    if (certainty[i] >= theta) return decision(run, run.probes, i, trace, at[i], "certainty", i + 1);
  }
  const end = firstAtOrAfter(at, trace.from, trace.to, budget);
  if (trace.tokens < budget || budget >= run.budget) {
    return decision(run, run.finals, trace.index, trace, trace.tokens, trace.natural ? "end_of_thinking" : "budget", end);
  }
  return decision(run, run.probes, end, trace, budget, "budget", end);
}

// The answer in row `i` of `columns`, given after `used` thinking tokens. Probes before the index `end` were made.
function decision(run, columns, i, trace, used, cause, end) {
  return {
    cause,
    used,
    answer: run.answers[columns.answer[i]],
    certainty: columns.certainty[i],
    closed: (columns.flags[i] & CLOSED) > 0,
    right: (columns.flags[i] & RIGHT) > 0,
    agrees: columns === run.finals || (columns.flags[i] & AGREES) > 0,
    probeTokens: run.decodedBefore[end] - run.decodedBefore[trace.from],
    probes: end - trace.from,
  };
}

function isSure(decision, theta) {
  return decision.closed && decision.certainty >= theta;
}

function firstAtOrAfter(at, from, to, position) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (at[middle] < position) from = middle + 1;
    else to = middle;
  }
  return from;
}

function decideAll(run, theta, budget) {
  return run.traces.map((trace) => decide(run, trace, theta, budget));
}
