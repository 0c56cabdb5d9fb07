"""Discharge: turns effects into values; no Refs are left in the program."""

from .deferred import CannotDefer, DeferredWrites
from .engine import (
    discharge_all,
    discharge_eqn,
    discharge_jaxpr,
    jaxpr_holds_state,
    with_calls_inlined,
)
from fiveloop.state.discharge.phases import known_relation, positions
from .table import Cell, DischargeContext, Operands, Place, Write, define_discharge
