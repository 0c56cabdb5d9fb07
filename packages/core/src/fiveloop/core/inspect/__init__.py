"""Looking inside: every stage of a program, and the matrix of primitives and transforms."""

from .matrix import Cell as Cell
from .matrix import Matrix as Matrix
from .matrix import Row as Row
from .matrix import matrix as matrix
from .matrix import row as row
from .stages import Stage as Stage
from .stages import StageRule as StageRule
from .stages import Stages as Stages
from .stages import register_stage as register_stage
from .stages import stages as stages
