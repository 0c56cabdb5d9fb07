"""`closed_call`: core's call, and the model for all higher-order primitives."""

from . import rules as rules
from .primitive import ClosedCallParams as ClosedCallParams
from .primitive import closed_call_p as closed_call_p
