"""What state adds to core's engines: the discharge pass, and how Refs behave as a type."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from fiveloop.core import Jaxpr, Value, ds
from fiveloop.core.engine import whole_indexer
from fiveloop.core.extend import (
    Aval,
    Pass,
    TypeRules,
    bind1,
    define_type,
    mutated_positions,
    register_pass,
    zeros_of,
)
from fiveloop.state.api import addupdate, get_item, new_ref, set_item
from fiveloop.state.avals import AbstractRef
from fiveloop.state.discharge.engine import discharge_jaxpr, jaxpr_holds_state
from fiveloop.state.primitives.common import IndexParams, addupdate_p, get_p
from fiveloop.state.primitives.lifetime import NewRefParams, freeze_p, new_ref_p
from fiveloop.state.refs import ACCESS, EagerRef, Ref
from fiveloop.state.views import At, reshape, transpose


def _discharge_all(jaxpr: Jaxpr) -> Jaxpr:
    """All Refs as values; the final contents of those that change are appended to the results."""
    which = [isinstance(a, AbstractRef) for a in jaxpr.in_avals]
    changed = mutated_positions(jaxpr.effects)
    results = [w and k in changed for k, w in enumerate(which)]
    return discharge_jaxpr(jaxpr, which, results, once=True)


def _zeros(aval: Aval) -> Value:
    assert isinstance(aval, AbstractRef), "unreachable: these are the rules of Refs"
    return bind1(new_ref_p, zeros_of(aval.inner), params=NewRefParams(holds_tangent=True))


def _add(x: Value, y: Value) -> Value:
    contents = bind1(get_p, y, params=IndexParams(whole_indexer(y.shape)))
    bind1(addupdate_p, x, contents, params=IndexParams(whole_indexer(x.shape)))
    return x


def _accumulate(ref: Value, x: Value, spans: Sequence[tuple[Any, int, int]] | None = None) -> None:
    addupdate(ref, ... if spans is None else tuple(ds(*span) for span in spans), x)


def _accumulated(ref: Value) -> Value:
    return bind1(freeze_p, ref)


def _buffer(ref: Any) -> Any:
    return ref.contents().buffer


def _own_buffer(ref: EagerRef) -> Any:
    return ref.own_array().buffer


def _write_back(ref: EagerRef, contents: Value) -> None:
    ref.write_back(contents)


define_type(
    AbstractRef,
    TypeRules(
        zeros=_zeros,
        add=_add,
        getitem=get_item,
        setitem=set_item,
        buffer=_buffer,
        own_buffer=_own_buffer,
        write_back=_write_back,
        turn=attrgetter("turn"),
        new_accumulator=_zeros,
        accumulated=_accumulated,
        holding=new_ref,
        accumulate=_accumulate,
        methods={
            "at": At,
            "reshape": reshape,
            "transpose": transpose,
            **{name: getattr(Ref, name) for name in ACCESS},
        },
    ),
)
register_pass(
    Pass(
        "discharge", after=("dce", "plan", "handle"), applies=jaxpr_holds_state, run=_discharge_all
    )
)
