"""Symbolic zeros: making them real, adding them, masking them."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import ad, ir, rules, util
from fiveloop.core.arrays import Value


def zeros_of(aval: ir.Aval) -> Value:
    """A value of the given type that is zero everywhere.

    >>> print(zeros_of(ShapedArray((3,), np.float32)))
    [0. 0. 0.]
    """
    return rules.type_rules(aval).zeros(aval.strong())


def instantiate(tangent: ad.Tangent) -> Value:
    """A symbolic zero as an array; anything else as it is.

    >>> print(instantiate(Zero(ShapedArray((3,), np.float32))), instantiate(as_value(2.0)))
    [0. 0. 0.] 2.0
    """
    return zeros_of(tangent.aval) if isinstance(tangent, ad.Zero) else tangent


def nonzero_mask(tangents: ad.Tangents) -> util.Mask:
    """Which tangents are not symbolic zeros.

    >>> x = as_value(2.0)
    >>> nonzero_mask([x, zero_like(x)])
    (True, False)
    """
    return tuple(not isinstance(t, ad.Zero) for t in tangents)


def zero_like(x: Value) -> ad.Zero:
    """The symbolic zero tangent of a value.

    >>> zero_like(as_value(np.ones(3)))
    Zero(aval=f64[3])
    """
    return ad.Zero(x.aval.tangent())


def with_zeros(nonzero: Sequence[bool], given: ad.Values, avals: ir.Avals) -> list[ad.Tangent]:
    """The tangents of values of the types `avals`, from those that may not be zero."""
    there = iter(given)
    return [
        next(there) if nz else ad.Zero(a.tangent()) for nz, a in zip(nonzero, avals, strict=True)
    ]


def add_tangents(x: ad.Tangent, y: ad.Tangent) -> ad.Tangent:
    """The sum of two tangents or cotangents."""
    if isinstance(x, ad.Zero):
        return y
    if isinstance(y, ad.Zero):
        return x
    return rules.type_rules(x.aval).add(x, y)
