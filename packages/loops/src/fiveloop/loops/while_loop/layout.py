"""The parts of a while's operands, and reordering them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fiveloop.core import Jaxpr
from fiveloop.core.engine import split_list
from fiveloop.loops.while_loop.primitive import WhileParams

T = TypeVar("T")


def parts(p: WhileParams, xs: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
    """What belongs to the constants, to the carried values and to the Refs."""
    consts, carry, refs = split_list(xs, [p.num_consts, p.num_carry])
    return consts, carry, refs


def with_dots(p: WhileParams, xs: Sequence[T], dots: tuple[list[T], list[T], list[T]]) -> list[T]:
    """Each part followed by its tangents."""
    return [x for part, dot in zip(parts(p, xs), dots, strict=True) for x in (*part, *dot)]


def reorder(jaxpr: Jaxpr, p: WhileParams, num_dots: Sequence[int]) -> Jaxpr:
    """A jaxpr of values and tangents with the tangents behind the part that they belong to.

    jaxpr     : [*consts, *carry, *refs, *const_dots, *carry_dots, *ref_dots] -> [*outs]
    reordered : [*consts, *const_dots, *carry, *carry_dots, *refs, *ref_dots] -> [*outs]
    """
    num = len(p.body.invars)
    const_dots, carry_dots, ref_dots = split_list(jaxpr.invars[num:], num_dots[:2])
    binders = with_dots(p, jaxpr.invars[:num], (const_dots, carry_dots, ref_dots))
    return jaxpr.replace(invars=binders)
