"""The public interface for authors of rules: primitives, types, effects, passes, and transforms of jaxprs.

The guide "Adding a primitive" lists these names by purpose, and shows most of them at work.
"""

from .ad import Accumulator as Accumulator, Tangent as Tangent, UndefinedPrimal as UndefinedPrimal
from .ad import Total as Total, Zero as Zero
from .api.flatten import call_user as call_user, check_callable as check_callable
from .arrays.array import OPS as OPS, Concrete as Concrete, as_value as as_value
from .arrays.array import to_array as to_array
from .backend import hlo as hlo
from .backend.hlo import IRValue as IRValue
from .closed_call import ClosedCallParams as ClosedCallParams, bind_call as bind_call
from .closed_call import call_abstract_eval as call_abstract_eval, call_batch as call_batch
from .closed_call import call_dce as call_dce, call_jaxpr as call_jaxpr, call_jvp as call_jvp
from .closed_call import call_split as call_split, call_transpose as call_transpose
from .closed_call import closed_call_p as closed_call_p
from .index.parse import normalize as normalize
from .ir.avals import Aval as Aval, Dim as Dim, ShapedArray as ShapedArray
from .ir.avals import broadcast_shapes as broadcast_shapes, size_of as size_of
from .ir.axes import NamedAxis as NamedAxis, NamedAxisEffect as NamedAxisEffect, axes_in as axes_in
from .ir.axes import axes_of as axes_of, batch_axis as batch_axis, rename_axes as rename_axes
from .ir.indexer import Indexer as Indexer
from .ir.jaxpr import NO_EFFECTS as NO_EFFECTS, NO_PARAMS as NO_PARAMS, Atom as Atom
from .ir.jaxpr import Effect as Effect, Effects as Effects, Eqn as Eqn, Label as Label
from .ir.jaxpr import Literal as Literal, NoParams as NoParams, PositionalEffect as PositionalEffect
from .ir.jaxpr import Primitive as Primitive, Var as Var, effects_at as effects_at
from .ir.jaxpr import jaxprs_in as jaxprs_in, map_positions as map_positions
from .ir.jaxpr import mutated_positions as mutated_positions, with_jaxprs as with_jaxprs
from .ir.pretty import Names as Names, define_printer as define_printer
from .ir.pretty import format_jaxpr as format_jaxpr
from .ir.source import Source as Source
from .passes import Pass as Pass, register_pass as register_pass
from .primitives.broadcast import broadcast_in_dim as broadcast_in_dim, move_axis as move_axis
from .primitives.broadcast import reduce_sum as reduce_sum, reshape as reshape
from .primitives.convert import convert as convert
from .primitives.elementwise import bitwise_and as bitwise_and, select as select
from .primitives.family import add_p as add_p
from .primitives.shape import concatenate as concatenate, iota as iota
from .rules import Body as Body, Cost as Cost, EqnSplit as EqnSplit, Refusal as Refusal
from .rules import RuleTable as RuleTable, TypeRules as TypeRules, Weigh as Weigh, define as define
from .rules import define_type as define_type, new_eqn as new_eqn, pure as pure
from .rules import type_rules as type_rules
from .trace.fused import fused as fused
from .trace.stage import stage as stage, stage_closed as stage_closed
from .trace.tracer import bind as bind, bind1 as bind1
from .transforms.batch import batch_jaxpr as batch_jaxpr, move_batch as move_batch
from .transforms.dce import dce as dce
from .transforms.eval import eval_jaxpr as eval_jaxpr
from .transforms.jvp import instantiate as instantiate, jvp_jaxpr as jvp_jaxpr
from .transforms.jvp import nonzero_mask as nonzero_mask, zero_like as zero_like
from .transforms.jvp import zeros_of as zeros_of
from .transforms.linearize import linearize_jaxpr as linearize_jaxpr
from .transforms.partial_eval import Split as Split, split as split
from .transforms.policies import DEFAULT_PLAN as DEFAULT_PLAN, SAVE_EVERYTHING as SAVE_EVERYTHING
from .transforms.policies import SAVE_NOTHING as SAVE_NOTHING, SavingPlan as SavingPlan
from .transforms.transpose import backward_pass as backward_pass, is_linear as is_linear
from .transforms.transpose import transpose_jaxpr as transpose_jaxpr
from .transforms.typecheck import typecheck as typecheck
from .util import show_public_names as _show_public_names

_show_public_names(globals(), "hlo")
