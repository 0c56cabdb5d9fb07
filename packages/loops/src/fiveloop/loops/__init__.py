"""Loops over mutable state, differentiable in both modes, batched and nested."""

from . import for_loop as _for_loop_row
from .for_loop.api import for_loop as for_loop
from .for_loop.primitive import ForParams as ForParams
from .for_loop.primitive import for_p as for_p
from .scan.api import scan as scan
