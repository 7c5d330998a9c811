"""The blocks `run` and `probe_set` of a line: what is absent there is unknown, and stays unknown."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from cgr.lab.store.config import Asking, ProbeSet, RunConfig


def _unknown(value: Any) -> Any:
    """A block in which absent fields are null, so that unknown stays unknown."""
    if not isinstance(value, dict):
        return value
    asking = value.get("asking", {})
    return value | {"asking": {"prefix": None, "close_think": None} | asking if isinstance(asking, dict) else asking}


def _unknown_run(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    examples = value.get("examples")  # what a validator returns is no longer JSON, in which a list can be a tuple
    as_tuple = {"examples": tuple(examples)} if isinstance(examples, list) else {}
    return dict.fromkeys(UNKNOWN_OF_RUN) | _unknown(value) | as_tuple


UNKNOWN_OF_RUN = ("temperature", "top_p", "instruction", "written_tokens")
UNKNOWN_ASKING = Asking(prefix=None, close_think=None)
Whole = PlainSerializer(lambda block: block.to_dict())  # also the fields with default values: absent would mean unknown
RunBlock = Annotated[RunConfig, BeforeValidator(_unknown_run), Whole]
ProbeSetBlock = Annotated[ProbeSet, BeforeValidator(_unknown), Whole]
