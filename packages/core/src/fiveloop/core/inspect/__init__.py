"""Inspection: every stage of a program, and the matrix of primitives and transforms."""

from .rule_matrix import Cell as Cell
from .rule_matrix import Matrix as Matrix
from .rule_matrix import Row as Row
from .rule_matrix import matrix as matrix
from .rule_matrix import row as row
from .stage_list import InPlace as InPlace
from .stage_list import Stage as Stage
from .stage_list import StageRule as StageRule
from .stage_list import Stages as Stages
from .stage_list import register_stage as register_stage
from .stage_list import stages as stages
from .stage_list import in_place as in_place
from .stage_list import ready_jaxpr as ready_jaxpr
from .stage_list import recomputes_in_branches as recomputes_in_branches
from ..util import show_public_names as _show_public_names

_show_public_names(globals())
