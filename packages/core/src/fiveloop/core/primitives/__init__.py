"""The first-order primitives: importing this fills their rows."""

from . import convert, broadcast, elementwise, special, shape, take, reduce, dot, running, sort
from . import monoids, put, ordering, collectives
