"""The IR: types, effects, jaxprs, and how they print; the printer is loaded with the rest."""

from fiveloop.core.ir import pretty
from .avals import Aval, Avals, ShapedArray, is_inexact, short_dtype, Dim, Shape, broadcast_shapes
from .avals import bytes_of, is_constant, is_dim, is_empty, is_more, is_one, same_dim, same_shape
from .avals import size_of, strided_size
from .axes import NamedAxis, NamedAxisEffect, axes_in, axes_of, batch_axis, params_with_axes
from .axes import unbound
from .jaxpr import Effect, Effects, NO_EFFECTS, PositionalEffect, Typing, effects_text
from .jaxpr import map_positions, mutated_positions, returning, Atom, Atoms, Constant, Eqn, Eqns
from .jaxpr import Jaxpr, Label, Literal, NO_PARAMS, NoParams, Primitive, Var, Vars, all_atoms
from .jaxpr import effects_of, has_effect, is_scalar, jaxprs_in, key_of, once_per, once_per_jaxpr
from .jaxpr import used_vars, vars_in_order
from .jaxpr import with_jaxprs
from .graph import Environment, Equal, Step, acts, changed_refs, copied_eqns, holding, inlined
from .graph import invariant, maker, makers, making, must_stay, mutated, needed, primitives_in
from .graph import prune, reachable, rename, renamed, replaced, touched_refs, use_counts, used_by
from .graph import users, without_calls
from .pretty import Names, define_printer, format_params
from .source import Source, function_source, is_internal, user_source
