"""Discharge: turns effects into values; no Refs are left in the program."""

from .deferred import CannotDefer, DeferredWrites
from .engine import discharge_all, discharge_eqn, discharge_jaxpr, jaxpr_holds_state
from .engine import with_calls_inlined
from .phases import DischargeContext, known_relation, lowest_bit, positions
from .table import Cell, Operands, Place, Write, define_discharge
