"""The public interface for rules of primitives on Refs: discharge, handlers of effects, predicates."""

from fiveloop.core.util import show_public_names as _show_public_names
from fiveloop.state.discharge.engine import discharge_eqn as discharge_eqn
from fiveloop.state.discharge.engine import discharge_jaxpr as discharge_jaxpr
from fiveloop.state.discharge.engine import holds_state as holds_state
from fiveloop.state.discharge.engine import jaxpr_holds_state as jaxpr_holds_state
from fiveloop.state.predicate.gate import follow as follow

from .core_rules import call_discharge as call_discharge
from .discharge.phases import DischargeContext as DischargeContext
from .discharge.table import Cell as Cell, define_discharge as define_discharge
from .discharge.table import discharge_rules as discharge_rules
from .handlers import HandledEffect as HandledEffect, Handling as Handling
from .handlers import call_handler as call_handler, define_handler as define_handler
from .handlers import thread_effect as thread_effect
from .predicate.engine import PREDICATE as PREDICATE, Guard as Guard
from .predicate.engine import call_predicate as call_predicate, define_predicate as define_predicate
from .predicate.engine import eval_predicated as eval_predicated, predicated as predicated
from .predicate.gate import gate as gate

_show_public_names(globals())
