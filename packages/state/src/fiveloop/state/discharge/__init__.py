"""Discharge: turns effects into values; no Refs are left in the program."""

from .engine import with_calls_inlined
from .deferred import CannotDefer, DeferredWrites
from .engine import discharge_eqn, discharge_jaxpr, jaxpr_holds_state
from .overlap import known_relation
from .table import Cell, DischargeContext, Operands, Place, Write, define_discharge
