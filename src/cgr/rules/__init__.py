"""Stopping rules by origin. Register your own with `@rule("name")` or by an entry point in the group `cgr.rules`."""

from cgr.rules.actions import GIVE_UP, GO_ON, STOP, WAIT, Action, GiveUp, GoOn, KeepThinking, Stop
from cgr.rules.base import Rule, Seen, known_rules, make_rule, next_multiple, rule
from cgr.rules.beyond_paper import Adaptive, GiveUpEarly, LoopBreaker, Smoothed, SureTwice
from cgr.rules.calibrated import Calibrated
from cgr.rules.deepconf import DeepConf
from cgr.rules.level_rule import Levelled, LevelRule
from cgr.rules.other_papers import AnswerConsistency, Conformal, Deer, Dynasor, Eat, PumaVerify
from cgr.rules.paper import BudgetForcing, Cgr, CgrForced, FixedBudget, NoThinking
from cgr.rules.parameters import read_parameters

__all__ = ["GIVE_UP", "GO_ON", "STOP", "WAIT", "Action", "GiveUp", "GoOn", "KeepThinking", "Stop"]
__all__ += ["LevelRule", "Levelled", "Rule", "Seen", "known_rules", "make_rule", "next_multiple", "read_parameters", "rule"]
__all__ += ["BudgetForcing", "Cgr", "CgrForced", "FixedBudget", "NoThinking"]
__all__ += ["AnswerConsistency", "Conformal", "DeepConf", "Deer", "Dynasor", "Eat", "PumaVerify"]
__all__ += ["Adaptive", "Calibrated", "GiveUpEarly", "LoopBreaker", "Smoothed", "SureTwice"]
