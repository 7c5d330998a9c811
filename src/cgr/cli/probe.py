"""`cgr probe`: the paper's protocol on saved traces."""

from __future__ import annotations

from pathlib import Path

import click

from cgr import certainty, probing
from cgr.lab.config import WHERE, Where


@click.command("probe")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--at", "where", type=click.Choice(WHERE), default="interval", show_default=True,
              help="Where to cut: every --interval tokens, before each Wait, or after each paragraph.")  # fmt: skip
@click.option("--interval", type=int, help="Thinking tokens between probes.  [default: the run's]")
@click.option("--prefix", help="What a probe appends.  [default: the run's]")
@click.option("--close-think", type=click.Choice(probing.CLOSE_THINK), help="Whether the end tag goes before the prefix.")
@click.option("--max-answer-tokens", type=int, help="Tokens of an answer at most.  [default: the run's]")
@click.option("--aggregate", help=f"One of {', '.join(certainty.AGGREGATES)}.  [default: the run's]")
@click.option("--set", "name", help="What to call these probes.  [default: default, then by what they are]")
@click.option("--model", help="A model to ask instead of the one that thought.")
@click.option("--sessions", type=int, help="Traces in flight.  [default: 8 for the embedded model, else 1]")
@click.option("--think-tags", help="The tags of a model that does not name them: '<think>,</think>'.")
@click.option("--threads", type=int, help="Threads to compute with.  [default: half of the cores]")
@click.option("--quiet", is_flag=True, help="Show no progress and no summary.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end and nothing else.")
def command(
    run: Path,
    where: Where,
    interval: int | None,
    prefix: str | None,
    close_think: probing.CloseThink | None,
    max_answer_tokens: int | None,
    aggregate: str | None,
    name: str | None,
    model: str | None,
    sessions: int | None,
    think_tags: str | None,
    threads: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Cut every saved trace of a RUN, ask at each cut what the answer would be, and record it.

    A run can hold several sets of probes. Interrupted at any moment, the same command goes on where it stopped.
    """
    from cgr.cli.lab import finish, sessions_for
    from cgr.lab.probes import Wish, check_probeable, probe
    from cgr.lab.progress import Progress
    from cgr.lab.store import Store
    from cgr.solve import open_model

    wish = Wish(where, interval, prefix, close_think, max_answer_tokens, aggregate, name)
    with Store.open(run) as store:
        check_probeable(store)
        config = store.config
    at_once = sessions_for(sessions, model or config.model)
    progress = Progress(quiet=quiet or as_json)
    asked = open_model(
        model or config.model, sessions=at_once, budget=config.budget, threads=threads, think_tags=think_tags
    )
    return finish(
        lambda: probe(run, wish, asked, open_teller=open_model, sessions=at_once, progress=progress),
        run,
        None,
        progress,
        quiet,
        as_json,
    )
