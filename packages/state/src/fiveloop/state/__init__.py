"""Mutable arrays as a typed effect, checks, calls of Python and streams of keys, and their discharge into values."""

from . import passes as _passes, handlers as _handlers
from .predicate import rules as _predicate_rules
from . import core_rules as _core_rules
from .io import rules as _io_rules
from . import extend as _extend
from fiveloop.core import ds as ds
from .api import accumulate as accumulate, addupdate as addupdate, empty_ref as empty_ref
from .api import freeze as freeze, get as get, new_ref as new_ref, run_state as run_state
from .api import set as set, swap as swap
from .checks.api import ErrorValue as ErrorValue, all_checks as all_checks, check as check
from .checks.api import checked as checked, checkify as checkify, div_checks as div_checks
from .checks.api import float_checks as float_checks, index_checks as index_checks
from .checks.api import nan_checks as nan_checks, user_checks as user_checks
from .checks.effect import CheckEffect as CheckEffect, DeferredChecks as DeferredChecks
from .checks.effect import deferred_checks as deferred_checks
from .checks.record import CheckError as CheckError
from .discharge.engine import discharge_state as discharge_state
from .io.api import callback as callback, debug_callback as debug_callback
from .io.api import debug_print as debug_print, pure_callback as pure_callback
from .io.primitive import IOEffect as IOEffect, OrderedIOEffect as OrderedIOEffect
from .io.primitive import PureCallEffect as PureCallEffect
from .random_state import KeyStream as KeyStream
from .refs import AbstractRef as AbstractRef, AccumEffect as AccumEffect, ReadEffect as ReadEffect
from .refs import Ref as Ref, WriteEffect as WriteEffect
from fiveloop.core.util import show_public_names as _show_public_names

_show_public_names(globals())
