"""The public interface for authors of rules: primitives, types, effects, passes, and transforms of jaxprs.

The guide "Adding a primitive" lists these names by purpose, and shows most of them at work.
"""

from fiveloop.core.api.flatten import call_user, check_callable
from fiveloop.core.closed_call import (
    ClosedCallParams,
    bind_call,
    call_abstract_eval,
    call_batch,
    call_dce,
    call_jaxpr,
    call_jvp,
    call_split,
    call_transpose,
    closed_call_p,
)
from fiveloop.core.ir.avals import Aval, Dim, ShapedArray, broadcast_shapes, size_of
from fiveloop.core.ir.jaxpr import (
    NO_EFFECTS,
    NO_PARAMS,
    Atom,
    Effect,
    Effects,
    Eqn,
    Label,
    Literal,
    NoParams,
    PositionalEffect,
    Primitive,
    Var,
    effects_at,
    jaxprs_in,
    map_positions,
    mutated_positions,
    with_jaxprs,
)
from fiveloop.core.transforms.jvp import instantiate, jvp_jaxpr, nonzero_mask, zero_like, zeros_of
from fiveloop.core.transforms.policies import (
    DEFAULT_PLAN,
    SAVE_EVERYTHING,
    SAVE_NOTHING,
    SavingPlan,
)

from .ad import Accumulator, Tangent, UndefinedPrimal, Zero
from .arrays.array import OPS, Concrete, as_value, to_array
from .backend import hlo
from .backend.hlo import IRValue
from .index.parse import normalize
from .ir.axes import NamedAxis, NamedAxisEffect, axes_in, axes_of, batch_axis, rename_axes
from .ir.indexer import Indexer
from .ir.pretty import Names, define_printer, format_jaxpr
from .ir.source import Source
from .passes import Pass, register_pass
from .primitives.broadcast import broadcast_in_dim, move_axis, reduce_sum, reshape
from .primitives.convert import convert
from .primitives.elementwise import bitwise_and, select
from .primitives.family import add_p
from .primitives.shape import concatenate, iota
from .rules import (
    Body,
    Cost,
    EqnSplit,
    Refusal,
    RuleTable,
    TypeRules,
    Weigh,
    define,
    define_type,
    new_eqn,
    pure,
    type_rules,
)
from .trace.fused import fused
from .trace.stage import stage, stage_closed
from .trace.tracer import bind, bind1
from .transforms.batch import batch_jaxpr, move_batch
from .transforms.dce import dce
from .transforms.eval import eval_jaxpr
from .transforms.linearize import linearize_jaxpr
from .transforms.partial_eval import Split, split
from .transforms.transpose import backward_pass, is_linear, transpose_jaxpr
from .transforms.typecheck import typecheck

__all__ = [
    "Accumulator",
    "Atom",
    "Aval",
    "Body",
    "ClosedCallParams",
    "Concrete",
    "Cost",
    "DEFAULT_PLAN",
    "Dim",
    "Effect",
    "Effects",
    "Eqn",
    "EqnSplit",
    "IRValue",
    "Indexer",
    "Label",
    "Literal",
    "NO_EFFECTS",
    "NO_PARAMS",
    "NamedAxis",
    "NamedAxisEffect",
    "Names",
    "NoParams",
    "OPS",
    "Pass",
    "PositionalEffect",
    "Primitive",
    "Refusal",
    "RuleTable",
    "SAVE_EVERYTHING",
    "SAVE_NOTHING",
    "SavingPlan",
    "ShapedArray",
    "Source",
    "Split",
    "Tangent",
    "TypeRules",
    "UndefinedPrimal",
    "Var",
    "Weigh",
    "Zero",
    "add_p",
    "as_value",
    "axes_in",
    "axes_of",
    "backward_pass",
    "batch_axis",
    "batch_jaxpr",
    "bind",
    "bind1",
    "bind_call",
    "bitwise_and",
    "broadcast_in_dim",
    "broadcast_shapes",
    "call_abstract_eval",
    "call_batch",
    "call_dce",
    "call_jaxpr",
    "call_jvp",
    "call_split",
    "call_transpose",
    "call_user",
    "check_callable",
    "closed_call_p",
    "concatenate",
    "convert",
    "dce",
    "define",
    "define_printer",
    "define_type",
    "effects_at",
    "eval_jaxpr",
    "format_jaxpr",
    "fused",
    "hlo",
    "instantiate",
    "iota",
    "is_linear",
    "jaxprs_in",
    "jvp_jaxpr",
    "linearize_jaxpr",
    "map_positions",
    "move_axis",
    "move_batch",
    "mutated_positions",
    "new_eqn",
    "normalize",
    "nonzero_mask",
    "pure",
    "reduce_sum",
    "register_pass",
    "rename_axes",
    "reshape",
    "select",
    "size_of",
    "split",
    "stage",
    "stage_closed",
    "to_array",
    "transpose_jaxpr",
    "type_rules",
    "typecheck",
    "with_jaxprs",
    "zero_like",
    "zeros_of",
]
