"""Running a jaxpr on a condition: the column, the engine, and the rules of core and state."""

from .engine import Guard, PREDICATE, call_predicate, define_predicate, eval_predicated, predicated
from .gate import follow, gate
from .live import filled, shares
