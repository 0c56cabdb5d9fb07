"""The primitives on Refs, with their whole rows."""

from . import lifetime as lifetime
from . import access as access
from .common import AccumulateParams, IndexParams, SwapParams, accumulate_p, add_contents
from .common import addupdate_p, combine, get_p, monoid_of, name_of_monoid, read, swap_p, write
from .lifetime import NewRefParams, end, freeze_p, new_ref_p, ref_of, tangent_of
