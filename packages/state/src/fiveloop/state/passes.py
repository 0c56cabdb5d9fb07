"""What state registers with core: the discharge pass, and the rules of Refs as a type."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from fiveloop.core import Value, ir, passes, rules, trace, transforms
from fiveloop.core.index import parse
from fiveloop.state import api, discharge, primitives, refs, views


def _zeros(aval: ir.Aval) -> Value:
    assert isinstance(aval, refs.AbstractRef), "unreachable: these are the rules of Refs"
    return primitives.ref_of(transforms.zeros_of(aval.inner), holds_tangent=True)


def _add(x: Value, y: Value) -> Value:
    primitives.combine(x, primitives.read(y))
    return x


def _accumulate(ref: Value, x: Value, spans: Sequence[tuple[Any, int, int]] | None = None) -> None:
    api.addupdate(ref, ... if spans is None else tuple(parse.ds(*span) for span in spans), x)


rules.define_type(
    refs.AbstractRef,
    rules.TypeRules(
        zeros=_zeros,
        add=_add,
        getitem=api.get_item,
        setitem=api.set_item,
        buffer=lambda ref: ref.contents().buffer,
        own_buffer=lambda ref: ref.own_array().buffer,
        write_back=lambda ref, contents: ref.write_back(contents),
        turn=attrgetter("turn"),
        new_accumulator=_zeros,
        accumulated=lambda ref: trace.bind1(primitives.freeze_p, ref),
        holding=api.new_ref,
        accumulate=_accumulate,
        methods={
            "at": views.At,
            "reshape": views.reshape,
            "transpose": views.transpose,
            **{name: getattr(refs.Ref, name) for name in refs.ACCESS},
        },
    ),
)
passes.register_pass(
    passes.Pass(
        "discharge",
        after=("dce", "plan", "handle"),
        applies=discharge.jaxpr_holds_state,
        run=discharge.discharge_all,
    )
)
