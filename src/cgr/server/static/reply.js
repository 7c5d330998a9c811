// One reply while it arrives: the thinking, the probes with their places in it, the answer, and the result at the end.

class Reply {
  constructor() {
    this.thinking = "";
    this.answer = "";
    this.probes = []; // those of the API, and `place`: the length of the thinking before the probe
    this.result = null;
    this.usage = null;
    this.state = "waiting"; // thinking, answering, done, halted, failed
    this.error = "";
  }

  get ended() {
    return ["done", "halted", "failed"].includes(this.state);
  }

  // The number of thinking tokens as far as it is known: deltas do not count tokens, probes and the result do.
  get tokens() {
    return this.result?.usage?.thinking_tokens ?? this.reported ?? this.probes.at(-1)?.at ?? null;
  }

  // Thinking tokens in the usage of a reply that was passed on from another server.
  get reported() {
    return this.usage?.completion_tokens_details?.reasoning_tokens ?? this.usage?.reasoning_tokens ?? null;
  }

  feed(chunk) {
    if (chunk.cgr?.object === "cgr.probe") this.probes.push({ ...chunk.cgr, place: this.thinking.length });
    if (chunk.cgr?.object === "cgr.result") this.finish(chunk.cgr);
    if (chunk.usage) this.usage = chunk.usage;
    const delta = chunk.choices?.[0]?.delta ?? {},
      thought = delta.reasoning ?? delta.reasoning_content;
    if (thought) {
      this.thinking += thought;
      this.state = "thinking";
    }
    if (delta.content) {
      this.answer += delta.content;
      this.state = "answering";
    }
  }

  // A probe rides on the next delta. Those after which nothing came are in the result only.
  finish(result) {
    this.result = result;
    const seen = new Set(this.probes.map((probe) => probe.at));
    for (const probe of result.probes ?? []) {
      if (!seen.has(probe.at)) this.probes.push({ ...probe, place: this.thinking.length });
    }
  }

  // The probe at which the thinking was stopped; null if it was not stopped by certainty.
  get stop() {
    return this.result?.stop_cause === "certain" ? (this.probes.at(-1) ?? null) : null;
  }

  get decoded() {
    return this.result?.usage?.probe_tokens?.decoded ?? 0;
  }

  async run(body, signal, onChange) {
    try {
      await streamChat(
        body,
        (chunk) => {
          this.feed(chunk);
          onChange();
        },
        signal,
      );
      this.state = "done";
    } catch (error) {
      this.state = error.name === "AbortError" ? "halted" : "failed";
      this.error = this.state === "failed" ? error.message : "";
      this.status = error.status;
    }
    onChange();
  }
}
