"""The primitives on Refs: a file each, with its whole row."""

from . import accumulate as accumulate
from . import addupdate as addupdate
from . import get as get
from . import lifetime as lifetime
from . import swap as swap

from .common import (
    AccumulateParams,
    IndexParams,
    SwapParams,
    accumulate_p,
    addupdate_p,
    get_p,
    monoid_of,
    swap_p,
)
from .lifetime import NewRefParams, freeze_p, new_ref_p
