"""The first-order primitives: importing this fills their rows."""

from . import (
    convert,
    broadcast,
    elementwise,
    special,
    shape,
    gather,
    index,
    reduce,
    dot,
    running,
    sort,
    monoids,
    scatter,
    ordering,
    collectives,
)
