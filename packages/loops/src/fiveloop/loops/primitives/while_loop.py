"""The primitive `while`: its params, types and effects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fiveloop.core import Jaxpr, ir, util
from fiveloop.core.closed_call import check_operands
from fiveloop.core.dataclass import dataclass, field
from fiveloop.core.util import T
from fiveloop.loops.common import check_params, is_count
from fiveloop.loops.primitives.slots import cache_avals
from fiveloop.loops.record import EMPTY, Record, names_of, shown_aval
from fiveloop.loops.schedules.binomial import Slots

PREDICATE = ir.ShapedArray((), np.bool_)


@dataclass(frozen=True)
class WhileParams:
    """A loop of `body` for as long as `cond` holds.

    cond     : [*consts, *carry, *refs] -> [pred]
    body     : [*consts, *carry, *refs] -> [*carry]
    operands : [*consts, *carry, *refs]
    results  : [*carry, *cache]

    The condition and the body take the same Refs: the condition reads what the body has written, and writes nothing.
    With `promote` arrays that are only indexed become Refs. `slots` states are saved for the backward pass; if None, as
    many as a default amount of memory holds. A loop is `counted` if the number of its steps is known when it begins.
    `kept` marks the carried values and Refs that the forward pass saves, if it saves any: the cache is the state of the
    schedule (`Online` if `slots` is a number), and the slots of each of them. `record` describes the loop, if
    `Planning.tell` is on.
    """

    cond: Jaxpr
    body: Jaxpr
    num_consts: int
    promote: bool = True
    slots: Slots | None = None
    counted: bool = False
    kept: util.Mask = ()
    record: Record = field(default=EMPTY, compare=False)

    @property
    def num_carry(self) -> int:
        return len(self.body.outvars)

    @property
    def first_ref(self) -> int:
        """The position of the first Ref among the operands."""
        return self.num_consts + self.num_carry

    @property
    def names(self) -> list[str]:
        """The names of the operands."""
        return names_of(self.body.invars)


def parts(p: WhileParams, xs: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
    """What belongs to the constants, to the carried values and to the Refs."""
    consts, carry, refs = util.split_list(xs, [p.num_consts, p.num_carry])
    return consts, carry, refs


def kept_avals(p: WhileParams) -> list[ir.Aval]:
    """The types of the values that are saved on the way, once each."""
    binders = p.body.invars[p.num_consts :]
    return [shown_aval(v.aval) for v, k in zip(binders, p.kept, strict=False) if k]


while_p: ir.Primitive[WhileParams] = ir.Primitive("while")


def while_abstract_eval(avals: ir.Avals, p: WhileParams) -> ir.Typing:
    """The types of the carried values; the effects of the condition and the body."""
    most = len(avals) - p.num_carry
    is_right = is_count(p.num_consts) and p.num_consts <= most
    check_params("while", ("num_consts", p.num_consts, is_right, f"an integer from 0 to {most}"))
    check_operands("while: condition", avals, p.cond)
    check_operands("while: body", avals, p.body)
    if [a.strong() for a in p.cond.out_avals] != [PREDICATE]:
        raise TypeError(f"while: the condition must give {PREDICATE}, got {p.cond.out_avals}")
    if ir.mutated_positions(p.cond.effects):
        raise TypeError(
            f"while: the condition must only read Refs, but it has {ir.effects_text(p.cond.effects)}"
        )
    given = avals[p.num_consts : p.first_ref]
    outs = []
    for x, out in zip(given, p.body.out_avals, strict=True):
        if x.strong() is not out.strong():
            raise TypeError(f"while: a carried value of type {x} becomes {out} in the body")
        outs.append(x if x.weak_type and out.weak_type else x.strong())
    return [*outs, *cache_avals(kept_avals(p), p.slots)], p.cond.effects | p.body.effects
