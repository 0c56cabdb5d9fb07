"""What the other packages of fiveloop are built on, beside `extend`; it changes with them, in any release."""

from .api.flatten import (
    FlatFunction,
    argument_name,
    argument_naming,
    as_result,
    flatten_located,
    flatten_values,
    function_name,
)
from .api.mutable import is_given
from .api.operands import (
    call_as_python,
    check_mutable,
    flatten_arguments,
    refuse_closed_over,
)
from .api.staging import aval_of, is_spec, stage_call, stage_user
from .api.static import with_static
from .array import InplaceNote, copied
from .backend.lazy import optional_module
from .closed_call.primitive import check_operands
from .closed_call.split import forward_residuals, gives_again, kept_outs, set_apart
from .custom_rule.masked import Masked
from .custom_rule.primitive import (
    CustomRuleParams,
    Rule,
    custom_rule_p,
    primal_jaxpr,
    rule_jvp,
    rule_transpose,
)
from .dims import is_constant, is_more
from .errors import STATIC, DonatedError, at_source
from .fixed import Fixed, setter
from .index_bounds import can_be_masked, old_outside, zero_outside
from .index_compose import compose, composes_alike
from .index_eager import put_now, swap_now, take_now
from .index_layout import Layout, before_layouts, reshaped, transposed
from .index_masks import MaskedPlace, has_mask, masked_place, one_outside
from .index_parse import Normal
from .indexer import At, Entry, Indexer, Lane, Pick, Span, around_block, is_dynamic, whole_indexer
from .indexing import (
    batch_indexer,
    cast_for_write,
    normalize,
    put,
    put_add,
    put_kind,
    resolve,
    take,
)
from .ir.effects import effects_text
from .ir.jaxpr import is_scalar, used_vars, vars_in_order
from .ir.prune import acts, must_stay, prune
from .ir.source import function_source
from .ir.taint import taint
from .primitives.broadcast import (
    BroadcastParams,
    ReshapeParams,
    TransposeParams,
    broadcast_in_dim_p,
    full,
    reshape_p,
    transpose_p,
)
from .primitives.check import array_aval, canonical_dtype, canonical_shape, check_count
from .primitives.convert import convert_p
from .primitives.costs import bytes_of
from .primitives.dot import dot_general_p
from .primitives.duplicates import is_first, product_of_others
from .primitives.elementwise import (
    add,
    bitwise_not,
    bitwise_or,
    ceil,
    clamp,
    equal,
    greater,
    integer_pow,
    less,
    mul,
    not_equal,
    real,
)
from .primitives.elementwise_arithmetic import neg_p
from .primitives.elementwise_logic import bitwise_and_p, select_p
from .primitives.family import ELEMENTWISE, add_p
from .primitives.gather import WindowDims, gather_p, scatter_p
from .primitives.index import (
    dynamic_slice_p,
    dynamic_update_slice_p,
    resolve_index_p,
    slice_p,
    static_slice,
)
from .primitives.joining import ConcatenateParams, concatenate_p
from .primitives.ordering import barrier, order, order_p
from .primitives.reduce import reduce_and, reduce_max, reduce_or
from .primitives.shape import iota_p
from .primitives.sort import argsort
from .promotion import Typed, join
from .rules import bodies_rules
from .sharing import Turn, note_sharer
from .structure import Difference, LeafText, differences
from .trace.axes import AxisScope
from .trace.boundary import boundary, guarded
from .trace.modes import branches_as_python, has_nan, python_form, runs_as_python
from .trace.replay import made_once, note_change
from .trace.same_function import traced_once
from .trace.settings import Setting
from .trace.stage import Staged
from .trace.tracer import current_source, is_eager, keep_source
from .transforms.batch import axes_in_front, batch_flat, batched_vars, in_front
from .transforms.cost import equation_cost
from .transforms.replay import happens_once, replayed
from .transforms.residuals import body_work
from .transforms.saving import may_weigh
from .transforms.transpose import Operand, into_aval, passed
from .util import (
    Mask,
    fixpoint,
    merge,
    partition,
    select_by,
    show_public_names,
    split_list,
)
from .views import View, base_of

__all__ = [
    "At",
    "AxisScope",
    "BroadcastParams",
    "CustomRuleParams",
    "Difference",
    "DonatedError",
    "ELEMENTWISE",
    "Entry",
    "Fixed",
    "FlatFunction",
    "Indexer",
    "InplaceNote",
    "Lane",
    "Layout",
    "LeafText",
    "Mask",
    "Masked",
    "MaskedPlace",
    "Normal",
    "Operand",
    "Pick",
    "Rule",
    "STATIC",
    "Setting",
    "Span",
    "Staged",
    "Turn",
    "Typed",
    "View",
    "WindowDims",
    "acts",
    "add",
    "add_p",
    "argsort",
    "argument_name",
    "argument_naming",
    "around_block",
    "array_aval",
    "as_result",
    "at_source",
    "aval_of",
    "axes_in_front",
    "barrier",
    "base_of",
    "bitwise_and_p",
    "broadcast_in_dim_p",
    "before_layouts",
    "batch_flat",
    "batch_indexer",
    "batched_vars",
    "bitwise_not",
    "bitwise_or",
    "bodies_rules",
    "body_work",
    "boundary",
    "branches_as_python",
    "bytes_of",
    "call_as_python",
    "can_be_masked",
    "canonical_dtype",
    "canonical_shape",
    "cast_for_write",
    "check_count",
    "check_mutable",
    "check_operands",
    "ceil",
    "clamp",
    "compose",
    "composes_alike",
    "ConcatenateParams",
    "concatenate_p",
    "convert_p",
    "copied",
    "current_source",
    "custom_rule_p",
    "differences",
    "dot_general_p",
    "dynamic_slice_p",
    "dynamic_update_slice_p",
    "equal",
    "effects_text",
    "equation_cost",
    "fixpoint",
    "flatten_arguments",
    "flatten_located",
    "flatten_values",
    "forward_residuals",
    "full",
    "function_name",
    "function_source",
    "gather_p",
    "gives_again",
    "greater",
    "guarded",
    "happens_once",
    "has_mask",
    "has_nan",
    "in_front",
    "integer_pow",
    "into_aval",
    "is_constant",
    "is_dynamic",
    "is_eager",
    "is_first",
    "iota_p",
    "is_given",
    "is_more",
    "is_scalar",
    "is_spec",
    "join",
    "keep_source",
    "kept_outs",
    "less",
    "made_once",
    "masked_place",
    "may_weigh",
    "merge",
    "mul",
    "must_stay",
    "neg_p",
    "normalize",
    "not_equal",
    "note_change",
    "note_sharer",
    "one_outside",
    "optional_module",
    "old_outside",
    "order",
    "order_p",
    "partition",
    "passed",
    "primal_jaxpr",
    "product_of_others",
    "prune",
    "put",
    "put_add",
    "put_kind",
    "put_now",
    "python_form",
    "real",
    "reduce_and",
    "reduce_max",
    "reduce_or",
    "refuse_closed_over",
    "replayed",
    "ReshapeParams",
    "TransposeParams",
    "reshape_p",
    "reshaped",
    "resolve",
    "resolve_index_p",
    "rule_jvp",
    "rule_transpose",
    "runs_as_python",
    "scatter_p",
    "select_by",
    "select_p",
    "set_apart",
    "setter",
    "show_public_names",
    "slice_p",
    "split_list",
    "stage_call",
    "stage_user",
    "static_slice",
    "swap_now",
    "taint",
    "take",
    "take_now",
    "traced_once",
    "transpose_p",
    "transposed",
    "used_vars",
    "vars_in_order",
    "whole_indexer",
    "with_static",
    "zero_outside",
]
