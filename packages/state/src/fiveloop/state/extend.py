"""The public interface for rules of primitives on Refs: discharge, handlers of effects, predicates."""

from fiveloop.state.discharge.engine import (
    discharge_eqn,
    discharge_jaxpr,
    holds_state,
    jaxpr_holds_state,
)
from fiveloop.state.predicate.gate import follow

from .core_rules import call_discharge
from .discharge.table import Cell, DischargeContext, define_discharge, discharge_rules
from .handlers import HandledEffect, Handling, call_handler, define_handler, thread_effect
from .predicate.engine import (
    PREDICATE,
    Guard,
    call_predicate,
    define_predicate,
    eval_predicated,
    predicated,
)
from .predicate.gate import gate

__all__ = [
    "Cell",
    "DischargeContext",
    "Guard",
    "HandledEffect",
    "Handling",
    "PREDICATE",
    "call_discharge",
    "call_handler",
    "call_predicate",
    "define_discharge",
    "define_handler",
    "define_predicate",
    "discharge_eqn",
    "discharge_jaxpr",
    "discharge_rules",
    "eval_predicated",
    "follow",
    "gate",
    "holds_state",
    "jaxpr_holds_state",
    "predicated",
    "thread_effect",
]
