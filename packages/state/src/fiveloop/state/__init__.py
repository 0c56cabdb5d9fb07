"""Mutable arrays as a typed effect, checks, calls of Python and streams of keys, and their discharge into values."""

from . import passes as _passes
from . import handlers as _handlers
from .predicate import rules as _predicate_rules
from . import core_rules as _core_rules
from .io import rules as _io_rules
from . import extend as _extend
from fiveloop.core import ds
from .api import accumulate, addupdate, empty_ref, freeze, get, new_ref, run_state, set, swap
from .checks.api import (
    ErrorValue,
    all_checks,
    check,
    checked,
    checkify,
    div_checks,
    float_checks,
    index_checks,
    nan_checks,
    user_checks,
)
from .checks.effect import CheckEffect, DeferredChecks, deferred_checks
from .checks.record import CheckError
from .discharge.engine import discharge_state
from .io.api import callback, debug_callback, debug_print, pure_callback
from .io.primitive import IOEffect, OrderedIOEffect, PureCallEffect
from .random_state import KeyStream
from .refs import AbstractRef, AccumEffect, ReadEffect, Ref, WriteEffect
from fiveloop.core.util import show_public_names as _show_public_names

__all__ = [
    "AbstractRef",
    "AccumEffect",
    "CheckEffect",
    "CheckError",
    "DeferredChecks",
    "ErrorValue",
    "IOEffect",
    "KeyStream",
    "OrderedIOEffect",
    "PureCallEffect",
    "ReadEffect",
    "Ref",
    "WriteEffect",
    "accumulate",
    "addupdate",
    "all_checks",
    "callback",
    "check",
    "checked",
    "checkify",
    "debug_callback",
    "debug_print",
    "deferred_checks",
    "discharge_state",
    "div_checks",
    "ds",
    "empty_ref",
    "float_checks",
    "freeze",
    "get",
    "index_checks",
    "nan_checks",
    "new_ref",
    "pure_callback",
    "run_state",
    "set",
    "swap",
    "user_checks",
]
_show_public_names(globals())
