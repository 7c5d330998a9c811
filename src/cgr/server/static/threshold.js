// Applies another threshold to the probes that were received.

// What the rule `cgr` would have done at threshold `theta`: {kind, probe}, where `kind` is
//   stop:     it would have stopped at this probe;
//   unknown:  this probe stopped decoding at a bound that is not below `theta`, so it may have stopped here or later;
//   further:  no probe is certain enough, and what follows the last one was not recorded;
//   end:      no probe is certain enough until the thinking ended by itself or at the budget.
function wouldStop(probes, theta, { complete }) {
  for (const probe of probes) {
    if (probe.certainty < theta) continue;
    if (probe.bound) return { kind: "unknown", probe };
    if (probe.closed) return { kind: "stop", probe };
  }
  return { kind: complete ? "end" : "further", probe: probes.at(-1) ?? null };
}

// The probes to decide from: those of the plain run if it was probed and thought the same, since it was never stopped.
function evidence(withCgr, beside) {
  if (beside?.probes.length && thoughtTheSame(withCgr, beside)) {
    return { probes: beside.probes, complete: beside.state === "done", source: beside };
  }
  const complete = withCgr.state === "done" && withCgr.result?.stop_cause !== "certain";
  return { probes: withCgr.probes, complete, source: withCgr };
}

// Whether both replies thought the same text as far as both have it, up to the stop of the first one.
function thoughtTheSame(withCgr, beside) {
  const until = Math.min(withCgr.stop?.place ?? withCgr.thinking.length, withCgr.thinking.length, beside.thinking.length);
  return withCgr.thinking.slice(0, until) === beside.thinking.slice(0, until);
}

// The sentence below the slider.
function whatIf(theta, withCgr, beside) {
  const { result } = withCgr;
  if (!withCgr.probes.length) return "No probe was made, so there is nothing to decide from.";
  if (result && result.rule !== "cgr") {
    return `This server stops by the rule ${result.rule}; only the rule cgr can be recomputed here.`;
  }
  const found = evidence(withCgr, beside),
    { kind, probe } = wouldStop(found.probes, theta, found);
  const at = probe ? `${tokens(probe.at)} tokens` : "";
  const whole = beside?.state === "done" ? beside.tokens : null;
  const differ =
    beside?.probes.length && found.source !== beside ? " The two runs thought differently, so only the first counts." : "";
  if (kind === "stop") {
    const saved = whole && whole > probe.at ? `, ${percent((whole - probe.at) / whole, 0)} before its end` : "";
    return `At ${certaintyText(theta)} it stops after ${at}${saved}, with the answer ${quoted(probe)}, ${certaintyText(probe.certainty)} certain.${differ}`;
  }
  if (kind === "unknown") {
    return (
      `At ${certaintyText(theta)} this cannot be decided: the probe after ${at} was decoded only until its certainty was known to be ` +
      `at most ${certaintyText(probe.certainty)}. It may have stopped there or later.${differ}`
    );
  }
  if (kind === "end")
    return `At ${certaintyText(theta)} it is never certain enough: the thinking goes on to its end.${differ}`;
  const why = withCgr.stop
    ? `At ${certaintyText(theta)} it goes on after ${at}. ` +
      "What follows was not recorded: run the plain model with probes beside it."
    : `At ${certaintyText(theta)} no probe is certain enough so far.`;
  return why + differ;
}

function quoted(probe) {
  return probe.answer === null ? "withheld" : probe.answer === "" ? "nothing" : `“${probe.answer}”`;
}
