"""Checkpointing: policies and budgets that choose what a derivative saves and what it recomputes."""

from . import policies as policies
from .budget.amount import UnattainableError as UnattainableError
from .checkpoint import checkpoint as checkpoint
from .explain.explanation import ResidualDifference as ResidualDifference
from .explain.explanation import ResidualExplanation as ResidualExplanation
from .explain.explanation import explain_residuals as explain_residuals
from .explain.pareto import Pareto as Pareto, ParetoPoint as ParetoPoint, pareto as pareto
from .name import NameParams as NameParams, checkpoint_name as checkpoint_name, name_p as name_p
from .policies import dots_saveable as dots_saveable
from .policies import dots_with_no_batch_dims_saveable as dots_with_no_batch_dims_saveable
from .policies import everything_saveable as everything_saveable
from .policies import nothing_saveable as nothing_saveable
from .policies import save_only_these_names as save_only_these_names
from .primitive import CheckpointParams as CheckpointParams, checkpoint_p as checkpoint_p
from .residuals import Residual as Residual, SavedResiduals as SavedResiduals
from .residuals import saved_residuals as saved_residuals

from fiveloop.core.util import show_public_names as _show_public_names

_show_public_names(globals(), "policies")
