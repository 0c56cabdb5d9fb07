"""What the other packages of fiveloop are built on, beside `extend`; it changes with them, in any release."""

from .api.arguments import with_static
from .api.flat_function import FlatFunction, call_as_python
from .api.flatten import (
    argument_name,
    argument_naming,
    as_result,
    flatten_located,
    flatten_values,
    function_name,
)
from .api.mutable import is_given
from .api.operands import check_mutable, flatten_arguments, refuse_closed_over
from .api.staging import aval_of, is_spec, stage_call, stage_user
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
    put_kind,
    resolve,
    take,
)
from .ir.dims import is_constant, is_more
from .ir.effects import effects_text
from .ir.graph import acts, makers, must_stay, mutated, prune, reachable, users
from .ir.interpret import Environment
from .ir.jaxpr import is_scalar, used_vars, vars_in_order
from .ir.rewrite import copied_eqns, inlined, rename, renamed, replaced
from .ir.source import function_source
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
from .primitives.elementwise import (
    add,
    bitwise_and_p,
    bitwise_not,
    bitwise_or,
    ceil,
    clamp,
    equal,
    mul,
    neg_p,
    real,
    select_p,
)
from .primitives.family import add_p
from .primitives.gather import WindowDims, gather_p, scatter_p
from .primitives.index import (
    dynamic_slice_p,
    dynamic_update_slice_p,
    resolve_index_p,
    slice_p,
    static_slice,
)
from .primitives.monoids import MONOIDS, Monoid, changed_by, factor_of_share, winning_shares
from .primitives.ordering import order, order_p
from .primitives.reduce import reduce_and, reduce_max, reduce_or
from .primitives.shape import ConcatenateParams, concatenate_p, iota_p
from .primitives.sort import argsort
from .promotion import Typed, join
from .rules import Operand, bodies_rules, by_element_rules
from .sharing import Turn, note_sharer
from .structure import Difference, LeafText, differences
from .trace.axes import AxisScope
from .trace.boundary import boundary, guarded
from .trace.modes import branches_as_python, has_nan, python_form
from .trace.replay import made_once, note_change
from .trace.same_function import traced_once
from .trace.settings import Setting
from .trace.stage import Staged
from .trace.tracer import current_source, is_eager, keep_source
from .transforms.batch import axes_in_front, batch_flat, batched_vars, in_front
from .transforms.cost import equation_cost
from .transforms.eval import bind_eqn, interpret
from .transforms.replay import happens_once, replayed
from .transforms.residuals import body_work
from .transforms.saving import may_weigh
from .transforms.transpose import parted, passed
from .util import (
    Mask,
    fixpoint,
    partition,
    select_by,
    show_public_names,
    split_list,
)
from .views import View, base_of
