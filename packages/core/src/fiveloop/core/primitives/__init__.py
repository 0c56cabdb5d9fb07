"""The first-order primitives: importing this fills their rows."""

from . import (
    convert,
    broadcast,
    family,
    elementwise,
    shape,
    types,
    gather,
    index,
    reduce,
    dot,
    cumulative,
    sort,
    scatter,
    ordering,
    random_bits,
    collectives,
)
