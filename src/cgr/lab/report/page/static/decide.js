// The rule `cgr` on recorded probes, rerun with any threshold and any budget on the grid.

// A threshold of Infinity never stops: that is the baseline.
function decide(run, trace, theta, budget) {
  const { at, certainty } = run.probes;
  for (const i of trace.rises) {
    if (at[i] >= budget) break;
    if (certainty[i] >= theta) return answerOf(run, run.probes, i, trace, at[i], "certainty", i + 1);
  }
  const asked = firstAtOrPast(at, trace.from, trace.to, budget);
  if (trace.tokens < budget || budget >= run.budget) {
    return answerOf(run, run.finals, trace.index, trace, trace.tokens, trace.natural ? "end_of_thinking" : "budget", asked);
  }
  return answerOf(run, run.probes, asked, trace, budget, "budget", asked);
}

function answerOf(run, columns, i, trace, used, cause, asked) {
  return {
    cause,
    used,
    answer: run.answers[columns.answer[i]],
    certainty: columns.certainty[i],
    closed: (columns.flags[i] & CLOSED) > 0,
    right: (columns.flags[i] & RIGHT) > 0,
    probeTokens: run.spent[asked] - run.spent[trace.from],
    probes: asked - trace.from,
  };
}

function isSure(decision, theta) {
  return decision.closed && decision.certainty >= theta;
}

function firstAtOrPast(at, from, to, position) {
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
