"""Loops over mutable state, differentiable in both modes, batched and nested."""

from fiveloop.core.primitives.running import cumlogsumexp as cumlogsumexp, cummax as cummax
from fiveloop.core.primitives.running import cummin as cummin, cumprod as cumprod, cumsum as cumsum

from .progress import rules as _progress_row
from . import for_loop as _for_loop_row, cond as _cond_row, while_loop as _while_loop_row
from . import replay as _replay_row
from .for_loop.api import for_loop as for_loop
from .primitives.for_loop import ForParams as ForParams, for_p as for_p
from .scan.api import scan as scan
from .scan.variants import fori_loop as fori_loop, map as map
from .cond.api import cond as cond, switch as switch
from .primitives.cond import CondParams as CondParams, cond_p as cond_p
from . import machine as _machine, plan as _plan
from .options import Planning as Planning, planning as planning
from .explain.explain import explain as explain
from .explain.explain import Explanation as Explanation, LoopReport as LoopReport
from .accumulate import accumulate_grads as accumulate_grads
from .progress.api import Progress as Progress
from .progress.rules import ProgressEffect as ProgressEffect
from .associative import associative_scan as associative_scan
from .while_loop.api import while_loop as while_loop
from .primitives.while_loop import WhileParams as WhileParams, while_p as while_p

from fiveloop.core.util import show_public_names as _show_public_names

_show_public_names(globals())
