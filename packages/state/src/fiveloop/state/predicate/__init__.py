"""Running a jaxpr on condition: the column, the engine, and the rules of what core and state have."""

from .engine import Guard, PREDICATE, define_predicate, eval_predicated, predicated
from .follow import follow
from .gate import gate
from .rules import call_predicate
