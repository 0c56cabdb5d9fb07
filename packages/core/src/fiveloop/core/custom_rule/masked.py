"""Functions of values and tangents as flat functions of the values and the nonzero tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fiveloop.core import ad, util
from fiveloop.core.arrays import Value

OfTangents = Callable[[ad.Values, ad.Tangents], tuple[ad.Values, Sequence[ad.Tangent | None]]]
"""From values and tangents to results and tangents."""


_GIVEN = object()
"""Stands for a tangent that is there."""


class Masked:
    """`fun` of values and tangents as a flat function of the values and the nonzero tangents.

    It gives the results and then the nonzero tangents of `fun`, and knows afterwards which these are.
    """

    def __init__(self, fun: OfTangents, num_values: int, tangents: ad.Tangents) -> None:
        self.fun = fun
        self.num_values = num_values
        self.tangents = tangents
        self.num_outs = 0
        self.marks: list[ad.Zero | object | None] = []

    @property
    def dots(self) -> list[Value]:
        """The tangents that are not zero."""
        return [t for t in self.tangents if not isinstance(t, ad.Zero)]

    def __call__(self, *args: Value) -> list[Value]:
        values, given = args[: self.num_values], iter(args[self.num_values :])
        tangents = [t if isinstance(t, ad.Zero) else next(given) for t in self.tangents]
        outs, out_tangents = self.fun(values, tangents)
        there = [t for t in out_tangents if t is not None and not isinstance(t, ad.Zero)]
        self.num_outs = len(outs)
        # Not the tangents themselves, which belong to the trace that this runs under.
        self.marks = [t if t is None or isinstance(t, ad.Zero) else _GIVEN for t in out_tangents]
        return [*outs, *there]

    def apart(self, results: ad.Values) -> tuple[list[Value], ad.Cotangents]:
        """What `fun` gave, from what this function gave under another trace."""
        outs, rest = util.split_list(results, [self.num_outs])
        dots = iter(rest)
        return outs, [t if t is None or isinstance(t, ad.Zero) else next(dots) for t in self.marks]
