"""The base of fiveloop: transforms of array programs, arrays, and programs as data.

`fiveloop.core.extend` has the names for adding primitives, types and effects.
"""

from . import closed_call as _closed_call
from .index import ops as _index_ops
from .operators import operators as _operators, methods as _methods, ufuncs as _ufuncs
from . import custom_rule as _custom_rule, extend as _extend, tree as tree
from .api.autodiff import NotNeeded as NotNeeded, jvp as jvp, linear_transpose as linear_transpose
from .api.autodiff import linearize as linearize, vjp as vjp
from .api.batching import vmap as vmap
from .api.custom_function import SymbolicZero as SymbolicZero
from .api.custom_rules import CustomVJPPrimal as CustomVJPPrimal, closure_convert as closure_convert
from .api.custom_rules import custom_derivative as custom_derivative
from .api.custom_rules import custom_gradient as custom_gradient, custom_jvp as custom_jvp
from .api.custom_rules import custom_vjp as custom_vjp, custom_vmap as custom_vmap
from .api.gradient import grad as grad, hessian as hessian, jacfwd as jacfwd, jacrev as jacrev
from .api.gradient import value_and_grad as value_and_grad
from .api.implicit import custom_linear_solve as custom_linear_solve, custom_root as custom_root
from .api.jit import JitFunction as JitFunction, jit as jit
from .api.stages import explain_cache_misses as explain_cache_misses
from .api.flatten import ShapeDtype as ShapeDtype
from .api.staging import closed_call as closed_call, eval_shape as eval_shape
from .api.staging import make_jaxpr as make_jaxpr, named_call as named_call
from .api.staging import block_until_ready as block_until_ready
from .api.staging import optimization_barrier as optimization_barrier
from .api.staging import platform_dependent as platform_dependent, stop_gradient as stop_gradient
from .api.staging import disable_compilation_cache as disable_compilation_cache
from .api.staging import enable_compilation_cache as enable_compilation_cache
from .arrays.array import ArrayLike as ArrayLike, Scalar as Scalar, Value as Value
from .errors import ConcretizationError as ConcretizationError, CoreError as CoreError
from .errors import EscapedTracerError as EscapedTracerError, FrozenRefError as FrozenRefError
from .errors import LeakError as LeakError, NanError as NanError, PolicyError as PolicyError
from .errors import RuleError as RuleError, TracerError as TracerError
from .errors import TypecheckError as TypecheckError, UnboundAxisError as UnboundAxisError
from .index.parse import ds as ds
from .ir.jaxpr import Jaxpr as Jaxpr
from .primitives.collectives import all_gather as all_gather, all_to_all as all_to_all
from .primitives.collectives import axis_index as axis_index, axis_size as axis_size, pmax as pmax
from .primitives.collectives import pmean as pmean, pmin as pmin, ppermute as ppermute
from .primitives.collectives import pshuffle as pshuffle, psum as psum, psum_scatter as psum_scatter
from .primitives.collectives import pswapaxes as pswapaxes
from .pytree import Pytree as Pytree, keystr as keystr, leaf_paths as leaf_paths
from .pytree import register_dataclass as register_dataclass, register_node as register_node
from .tree import tree_all as tree_all, tree_map_with_path as tree_map_with_path
from .tree import tree_reduce as tree_reduce, tree_transpose as tree_transpose
from .tree import tree_flatten as tree_flatten, tree_flatten_with_path as tree_flatten_with_path
from .tree import tree_leaves as tree_leaves, tree_map as tree_map, tree_structure as tree_structure
from .tree import tree_unflatten as tree_unflatten
from .backend.compilation_cache import CompilationCounts as CompilationCounts
from .backend.compilation_cache import compilation_counts as compilation_counts
from .backend.tree import TreeDef as TreeDef
from .primitives.dot import default_matmul_precision as default_matmul_precision
from .rules import RECOMPUTE as RECOMPUTE, SAVE as SAVE, Verdict as Verdict
from .trace.boundary import full_tracebacks as full_tracebacks
from .trace.modes import checking_leaks as checking_leaks, debug_nans as debug_nans
from .trace.modes import disable_jit as disable_jit
from .trace.modes import ensure_compile_time_eval as ensure_compile_time_eval
from .trace.modes import make_user_context as make_user_context
from .trace.same_function import forget_traces as forget_traces
from .trace.tracer import Tracer as Tracer, is_concrete as is_concrete
from .transforms.cost import jaxpr_cost as jaxpr_cost
from .transforms.policies import EverythingSaveable as EverythingSaveable, MinimumCut as MinimumCut
from .transforms.policies import NothingSaveable as NothingSaveable, Policy as Policy
from .version import __version__ as __version__
from .util import show_public_names as _show_public_names

Array = Value
_show_public_names(globals(), "__version__", "tree")
