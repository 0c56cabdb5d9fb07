"""Symbolic zeros: making them real, adding them, masking them."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import arrays, ir, rules, util


def zeros_of(aval: ir.Aval) -> arrays.Value:
    """A value of the given type that is zero everywhere.

    >>> print(zeros_of(ShapedArray((3,), np.float32)))
    [0. 0. 0.]
    """
    return rules.type_rules(aval).zeros(aval.strong())


def instantiate(tangent: rules.Tangent) -> arrays.Value:
    """A symbolic zero as an array; anything else as it is.

    >>> print(instantiate(Zero(ShapedArray((3,), np.float32))), instantiate(as_value(2.0)))
    [0. 0. 0.] 2.0
    """
    return zeros_of(tangent.aval) if isinstance(tangent, rules.Zero) else tangent


def nonzero_mask(tangents: Sequence[rules.Tangent]) -> util.Mask:
    """Which tangents are not symbolic zeros.

    >>> x = as_value(2.0)
    >>> nonzero_mask([x, zero_like(x)])
    (True, False)
    """
    return tuple(not isinstance(t, rules.Zero) for t in tangents)


def zero_like(x: arrays.Value) -> rules.Zero:
    """The symbolic zero tangent of a value.

    >>> zero_like(as_value(np.ones(3)))
    Zero(aval=f64[3])
    """
    return rules.Zero(x.aval.tangent())


def with_zeros(
    nonzero: Sequence[bool], given: Sequence[arrays.Value], avals: Sequence[ir.Aval]
) -> list[rules.Tangent]:
    """The tangents of values of the types `avals`, from those that may not be zero."""
    there = iter(given)
    return [
        next(there) if nz else rules.Zero(a.tangent()) for nz, a in zip(nonzero, avals, strict=True)
    ]


def add_tangents(x: rules.Tangent, y: rules.Tangent) -> rules.Tangent:
    """The sum of two tangents or cotangents."""
    if isinstance(x, rules.Zero):
        return y
    if isinstance(y, rules.Zero):
        return x
    return rules.type_rules(x.aval).add(x, y)
