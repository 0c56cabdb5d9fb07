"""Inspection: every stage of a program, and the matrix of primitives and transforms."""

from .rule_matrix import Cell as Cell, Matrix as Matrix, Row as Row, matrix as matrix, row as row
from .stage_list import InPlace as InPlace, Stage as Stage, StageRule as StageRule, Stages as Stages
from .stage_list import register_stage as register_stage, stages as stages, in_place as in_place
from .stage_list import kept_in_memory as kept_in_memory, ready_jaxpr as ready_jaxpr
from .stage_list import recomputes_in_branches as recomputes_in_branches
from ..lower.kernels import saves_memory as saves_memory
from ..util import show_public_names as _show_public_names

_show_public_names(globals())
