"""cgr: Certainty-Guided Reasoning. A model stops thinking when it is sure, continues when it is not, and abstains if it
never becomes sure.

    >>> import cgr
    >>> solution = cgr.solve("Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x.")  # doctest: +SKIP
    >>> solution.answer, solution.certainty, solution.stop_cause  # doctest: +SKIP
"""

from cgr import interrupt as _interrupt  # noqa: F401 - first, before anything takes time
from cgr.drive.events import Decided, Event, Probed, Thinking
from cgr.errors import CgrError
from cgr.records import Decision, Probe, Question, Token, Trace
from cgr.rules import GIVE_UP, GO_ON, STOP, KeepThinking, Rule, Seen, known_rules, next_multiple, rule
from cgr.settings import Settings
from cgr.solve import Model, Solution, asolve, open_model, solve

__version__ = "0.1.0"

__all__ = [
    "GIVE_UP",
    "GO_ON",
    "STOP",
    "CgrError",
    "Decided",
    "Decision",
    "Event",
    "KeepThinking",
    "Model",
    "Probe",
    "Probed",
    "Question",
    "Rule",
    "Seen",
    "Settings",
    "Solution",
    "Thinking",
    "Token",
    "Trace",
    "asolve",
    "known_rules",
    "next_multiple",
    "open_model",
    "rule",
    "solve",
]
