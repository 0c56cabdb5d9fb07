"""What the other packages of fiveloop are built on, beside `extend`; it changes with them, in any release."""

from .checks.insert import insert_for_lanes
from .discharge.calls import with_calls_inlined
from .discharge.deferred import CannotDefer, DeferredWrites
from .discharge.overlap import known_relation
from .discharge.phases import names_each_once
from .discharge.table import Place, Write
from .io.primitive import CallbackParams, callback_p
from .monoids import MONOIDS, Monoid
from .primitives.common import (
    AccumulateParams,
    IndexParams,
    SwapParams,
    accumulate_p,
    addupdate_p,
    get_p,
    swap_p,
)
from .primitives.lifetime import NewRefParams, freeze_p, new_ref_p
from .random_state.primitive import next_key_p

__all__ = [
    "AccumulateParams",
    "CallbackParams",
    "CannotDefer",
    "DeferredWrites",
    "IndexParams",
    "MONOIDS",
    "Monoid",
    "NewRefParams",
    "Place",
    "SwapParams",
    "Write",
    "accumulate_p",
    "addupdate_p",
    "callback_p",
    "freeze_p",
    "get_p",
    "insert_for_lanes",
    "known_relation",
    "names_each_once",
    "new_ref_p",
    "next_key_p",
    "swap_p",
    "with_calls_inlined",
]
