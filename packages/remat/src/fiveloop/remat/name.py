"""`checkpoint_name`: label a value, so that a policy can speak of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fiveloop.core import Value, tree_map
from fiveloop.core.engine import boundary
from fiveloop.core.extend import (
    Accumulator,
    Cost,
    Primitive,
    Tangent,
    UndefinedPrimal,
    as_value,
    bind,
    bind1,
    define,
    pure,
)

T = TypeVar("T")


@dataclass(frozen=True)
class NameParams:
    """The label."""

    name: str


name_p: Primitive[NameParams] = Primitive("name")


@boundary
def checkpoint_name(x: T, name: str) -> T:
    """`x`, with a label on each of its arrays; policies such as `save_only_these_names` speak of labels.

    >>> import fiveloop.numpy as fnp
    >>> checkpoint_name(fnp.ones(2), "activations")
    Array([1., 1.], dtype=float32)
    """
    if not isinstance(name, str):
        raise TypeError(f"checkpoint_name: name must be a string, got {name!r}")
    labelled: T = tree_map(
        lambda v: bind1(
            name_p, as_value(v, "checkpoint_name: a leaf of x"), params=NameParams(name)
        ),
        x,
    )
    return labelled


def name_jvp(
    primals: Sequence[Value], tangents: Sequence[Tangent], p: NameParams
) -> tuple[list[Value], list[Tangent]]:
    """The value keeps its label; its tangent has none."""
    return bind(name_p, *primals, params=p), list(tangents)


def name_transpose(
    cts: Sequence[Tangent], operands: Sequence[Value | UndefinedPrimal | Accumulator], p: NameParams
) -> list[Tangent | None]:
    """The cotangent as it is."""
    return list(cts)


def name_impl(values: Sequence[Value], p: NameParams) -> list[Value]:
    """The value as it is."""
    return list(values)


def name_batch(
    size: int, operands: Sequence[Value], dims: Sequence[int | None], p: NameParams
) -> tuple[list[Value], list[int | None]]:
    """The batch under the same label."""
    return bind(name_p, *operands, params=p), list(dims)


def _lower(ctx: Any, operands: Sequence[Any], p: NameParams) -> list[Any]:
    return list(operands)


define(
    name_p,
    abstract_eval=pure(lambda avals, p: list(avals)),
    lower=_lower,
    impl=name_impl,
    jvp=name_jvp,
    batch=name_batch,
    transpose=name_transpose,
    cost=lambda avals, p: Cost(0, 0, again=True),
)
