"""Running a jaxpr on condition: the column, the engine, and the rules of what core and state have."""

from .engine import Guard, PREDICATE, call_predicate, define_predicate, eval_predicated, predicated
from .follow import follow
from .gate import gate
