"""What rules decide on recorded traces: `replay.decide` on given probes, `run.Run.decide` on a whole run."""
