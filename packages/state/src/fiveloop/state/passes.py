"""What state registers with core: the discharge pass, and the rules of Refs as a type."""

from __future__ import annotations

from operator import attrgetter

from fiveloop.core import passes, rules
from fiveloop.state import api, discharge, primitives, refs, views

rules.define_type(
    refs.AbstractRef,
    rules.TypeRules(
        zeros=primitives.tangent_of,
        add=primitives.add_contents,
        getitem=api.get_item,
        setitem=api.set_item,
        buffer=lambda ref: ref.contents().buffer,
        own_buffer=lambda ref: ref.own_array().buffer,
        write_back=lambda ref, contents: ref.write_back(contents),
        turn=attrgetter("turn"),
        new_accumulator=primitives.tangent_of,
        accumulated=primitives.end,
        holding=api.new_ref,
        accumulate=api.add_to_spans,
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
