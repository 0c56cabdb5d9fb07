"""Traces, tracers and staging."""

from .axes import AxisScope, AxisTrace, ScopeTrace, axis_scope, find_axis, new_axis
from .boundary import boundary, guarded, hide_frames, pass_out
from .fused import fused, is_fused
from .modes import branches_as_python, ensure_compile_time_eval, has_nan, is_staging, python_form
from .modes import Setting
from .replay import made_once, note_change, note_made, note_written, noting
from .same_function import first_equal, traced_once
from .stage import StageTrace, StageTracer, Staged, array_of_number, captured_by, stage
from .stage import stage_closed, stand_in
from .tracer import EVAL, MISUSE, Trace, Tracer, bind, bind1, bind_eqn, check_live
from .tracer import current_source, current_trace, is_concrete, is_eager, keep_source
from .tracer import leak_checked, locate, running
from .tracer import use_trace, users_lines
