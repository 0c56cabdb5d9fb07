"""The base of fiveloop: transforms of array programs, arrays, and programs as data.

What one needs to add primitives, types and effects is in `fiveloop.core.extend`.
"""

from . import closed_call as _closed_call
from .index import ops as _index_ops
from .operators import operators as _operators
from .operators import methods as _methods
from .operators import ufuncs as _ufuncs
from . import custom_rule as _custom_rule
from . import extend as _extend
from . import tree
from .api.autodiff import NotNeeded, jvp, linear_transpose, linearize, vjp
from .api.batching import vmap
from .api.staging import disable_compilation_cache, enable_compilation_cache
from .api.custom_function import SymbolicZero
from .api.custom_rules import (
    CustomVJPPrimal,
    closure_convert,
    custom_derivative,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    custom_vmap,
)
from .api.gradient import grad, hessian, jacfwd, jacrev, value_and_grad
from .api.implicit import custom_linear_solve, custom_root
from .api.jit import JitFunction, jit
from .api.stages import explain_cache_misses
from .api.staging import named_call, optimization_barrier, platform_dependent, stop_gradient
from .api.flatten import ShapeDtype
from .api.staging import closed_call, eval_shape, make_jaxpr
from .arrays.array import ArrayLike, Scalar, Value
from .arrays.array import Value as Array
from .errors import (
    ConcretizationError,
    CoreError,
    EscapedTracerError,
    FrozenRefError,
    LeakError,
    NanError,
    PolicyError,
    RuleError,
    TracerError,
    TypecheckError,
    UnboundAxisError,
)
from .index.parse import ds
from .ir.jaxpr import Jaxpr
from .primitives.collectives import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
)
from fiveloop.core.pytree import (
    Pytree,
    keystr,
    leaf_paths,
    register_dataclass,
    register_node,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_structure,
    tree_unflatten,
)
from fiveloop.core.backend.compilation_cache import CompilationCounts, compilation_counts
from fiveloop.core.backend.tree import TreeDef
from .primitives.dot import default_matmul_precision
from .rules import RECOMPUTE, SAVE, Verdict
from .trace.boundary import full_tracebacks
from .trace.modes import (
    checking_leaks,
    debug_nans,
    disable_jit,
    ensure_compile_time_eval,
    make_user_context,
)
from .trace.same_function import forget_traces
from .trace.tracer import Tracer, is_concrete
from .transforms.cost import jaxpr_cost
from .transforms.policies import EverythingSaveable, MinimumCut, NothingSaveable, Policy
from .version import __version__
from .util import show_public_names as _show_public_names

__all__ = [
    "Array",
    "ArrayLike",
    "CompilationCounts",
    "ConcretizationError",
    "CoreError",
    "CustomVJPPrimal",
    "EscapedTracerError",
    "EverythingSaveable",
    "FrozenRefError",
    "Jaxpr",
    "JitFunction",
    "LeakError",
    "MinimumCut",
    "NanError",
    "NotNeeded",
    "NothingSaveable",
    "Policy",
    "PolicyError",
    "Pytree",
    "RECOMPUTE",
    "RuleError",
    "SAVE",
    "Scalar",
    "ShapeDtype",
    "SymbolicZero",
    "Tracer",
    "TracerError",
    "TreeDef",
    "TypecheckError",
    "UnboundAxisError",
    "Value",
    "Verdict",
    "__version__",
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "checking_leaks",
    "closed_call",
    "closure_convert",
    "compilation_counts",
    "custom_derivative",
    "custom_gradient",
    "custom_jvp",
    "custom_linear_solve",
    "custom_root",
    "custom_vjp",
    "custom_vmap",
    "debug_nans",
    "disable_compilation_cache",
    "default_matmul_precision",
    "disable_jit",
    "explain_cache_misses",
    "ds",
    "enable_compilation_cache",
    "ensure_compile_time_eval",
    "eval_shape",
    "forget_traces",
    "full_tracebacks",
    "grad",
    "hessian",
    "is_concrete",
    "jacfwd",
    "jacrev",
    "jaxpr_cost",
    "jit",
    "jvp",
    "keystr",
    "leaf_paths",
    "linear_transpose",
    "linearize",
    "make_jaxpr",
    "make_user_context",
    "named_call",
    "optimization_barrier",
    "platform_dependent",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
    "pswapaxes",
    "register_dataclass",
    "register_node",
    "stop_gradient",
    "tree",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_structure",
    "tree_unflatten",
    "value_and_grad",
    "vjp",
    "vmap",
]
_show_public_names(globals())
