"""Stopping rules, one file each. Register your own with `@rule("name")` or by an entry point in the group `cgr.rules`."""

from cgr.rules.actions import GIVE_UP, GO_ON, STOP, WAIT, Action, GiveUp, GoOn, KeepThinking, Stop
from cgr.rules.adaptive import Adaptive
from cgr.rules.answer_consistency import AnswerConsistency
from cgr.rules.base import Rule, Seen, known_rules, make_rule, next_multiple, rule
from cgr.rules.budget_forcing import BudgetForcing
from cgr.rules.calibrated import Calibrated
from cgr.rules.cgr import Cgr
from cgr.rules.cgr_drought import CgrDrought
from cgr.rules.cgr_forced import CgrForced
from cgr.rules.code_stop import CodeStop
from cgr.rules.conformal import Conformal
from cgr.rules.deepconf import DeepConf
from cgr.rules.deer import Deer
from cgr.rules.dynasor import Dynasor
from cgr.rules.eat import Eat
from cgr.rules.fixed_budget import FixedBudget
from cgr.rules.give_up import GiveUpEarly
from cgr.rules.level_rule import Levelled, LevelRule
from cgr.rules.loop_breaker import LoopBreaker
from cgr.rules.no_thinking import NoThinking
from cgr.rules.nth_end import NthEnd
from cgr.rules.parameters import read_parameters
from cgr.rules.puma_verify import PumaVerify
from cgr.rules.smoothed import Smoothed
from cgr.rules.sure_twice import SureTwice

__all__ = ["GIVE_UP", "GO_ON", "STOP", "WAIT", "Action", "GiveUp", "GoOn", "KeepThinking", "Stop"]
__all__ += ["LevelRule", "Levelled", "Rule", "Seen", "known_rules", "make_rule", "next_multiple", "read_parameters", "rule"]
__all__ += ["BudgetForcing", "Cgr", "CgrForced", "FixedBudget", "NoThinking"]
__all__ += ["AnswerConsistency", "CodeStop", "Conformal", "DeepConf", "Deer", "Dynasor", "Eat", "PumaVerify"]
__all__ += ["Adaptive", "Calibrated", "CgrDrought", "GiveUpEarly", "LoopBreaker", "NthEnd", "Smoothed", "SureTwice"]
