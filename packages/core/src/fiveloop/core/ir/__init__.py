"""The IR: types, effects, jaxprs, and how they print; the printer is loaded with the rest."""

from fiveloop.core.ir import pretty

from .avals import Aval, Avals, ShapedArray, is_inexact, short_dtype
from .axes import (
    NamedAxis,
    NamedAxisEffect,
    axes_in,
    axes_of,
    batch_axis,
    params_with_axes,
    unbound,
)
from .avals import (
    Dim,
    Shape,
    broadcast_shapes,
    bytes_of,
    is_constant,
    is_dim,
    is_empty,
    is_more,
    is_one,
    same_dim,
    same_shape,
    size_of,
    strided_size,
)
from .jaxpr import (
    Effect,
    Effects,
    NO_EFFECTS,
    PositionalEffect,
    Typing,
    effects_text,
    map_positions,
    mutated_positions,
    returning,
)
from .graph import (
    acts,
    changed_refs,
    holding,
    invariant,
    makers,
    must_stay,
    mutated,
    needed,
    primitives_in,
    prune,
    reachable,
    touched_refs,
    users,
)
from .graph import Environment, Step
from .jaxpr import (
    Atom,
    Constant,
    Eqn,
    Jaxpr,
    Label,
    Literal,
    NO_PARAMS,
    NoParams,
    Primitive,
    Var,
    all_atoms,
    effects_of,
    has_effect,
    is_scalar,
    jaxprs_in,
    used_vars,
    vars_in_order,
    with_jaxprs,
)
from .pretty import Names, define_printer, format_params
from .graph import copied_eqns, inlined, rename, renamed, replaced
from .source import Source, function_source, is_internal, user_source
