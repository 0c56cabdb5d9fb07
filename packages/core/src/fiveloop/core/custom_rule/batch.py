"""Batching: the jaxpr is batched, and so is its rule, which runs on all lanes at once."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import ad, ir, prims, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule import primitive
from fiveloop.core.custom_rule.primitive import RuleParams


def custom_rule_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: RuleParams
) -> ad.Batched:
    """One equation for the whole batch. All results are batched: the rule may need it where the function does not.

    Where there is no jaxpr, those that do not differ between lanes are marked. Where no operand is batched, what the
    functions close over may be: it is known when they have run.
    """
    batched = tuple(d is not None for d in dims)
    if p.rule.batches and any(batched):
        return p.rule.batch(size, operands, dims, p)
    axes = transforms.axes_in_front(operands, dims)
    moved = transforms.in_front(size, operands, dims)
    places = [d if b else None for b, d in zip(batched, axes, strict=True)]
    rule = BatchedRule(p, size, places, p.caller)
    jaxpr = None
    if p.jaxpr is not None:
        jaxpr, _ = transforms.batch_jaxpr(p.jaxpr, size, batched, inst=True, axes=axes)
    # The rule runs that of one example, within the named axes that the batch does not bind.
    bound = ir.batch_axis(size)
    free = tuple([axis for axis in p.axes if axis != bound])
    params = RuleParams(
        rule,
        jaxpr,
        name=p.name,
        num_closed=p.num_closed,
        in_avals=tuple([x.aval for x in moved]),
        axes=free,
        scope=trace.AxisScope(free, free),
    )
    outs = trace.bind(primitive.custom_rule_p, *moved, params=params)
    same, differ = rule.same or [False] * len(outs), rule.differ or [True] * len(outs)
    found = zip(same, differ, outs, strict=False)
    return outs, [None if s else 0 if d else transforms.SAME for s, d, _ in found]


class BatchedRule(primitive.RuleAround):
    """The rule of an equation on a batch, in axis 0 of all results and in `dims` of the operands."""

    def __init__(
        self, inner: RuleParams, size: int, dims: ad.BatchAxes, kin: transforms.BatchTrace | None
    ) -> None:
        super().__init__(inner)
        self.size = size
        self.dims = tuple(dims)
        self.kin = kin
        # Which results are the same for all lanes, if they may be.
        self.shared = inner.jaxpr is None and all(d is None for d in dims)
        self.same: list[bool] = []
        # Which results differ between lanes, known when the function has run.
        self.differ: Sequence[bool] = ()

    def call(self, p: RuleParams, values: ad.Values) -> list[Value]:
        """The batch of results."""
        if p.jaxpr is not None:
            return super().call(p, values)
        inner = self.inner
        run = lambda *xs: primitive.by_rule(inner, inner.rule.call, xs)
        outs, dims = self._batch(run, values, self.dims)
        self.same = [self.shared and d is None for d in dims]
        return self._placed(outs, dims, self.same)

    def types(self, p: RuleParams, avals: ir.Avals) -> list[ir.Aval]:
        """The types of one example's results, with the batch: what is asked for types will run later."""
        self.shared = False
        one = [a if d is None else a.unbatched(d) for a, d in zip(avals, self.dims, strict=True)]
        found = primitive.by_rule(self.inner, self.inner.rule.types, one)
        return [a.batched(self.size) for a in found]

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """The rule of one example on the whole batch."""
        flat = primitive.Masked(self._jvp_of_one, len(primals), tangents)
        dims = [d for d, t in zip(self.dims, tangents, strict=True) if not isinstance(t, ad.Zero)]
        moved, dims = self._moved_by_lanes(flat.dots, dims)
        results, found = self._batch(flat, [*primals, *moved], [*self.dims, *dims])
        num = flat.num_outs
        # A result and its tangent have the batch in the same place.
        there = iter(found[num:])
        real = [t is not None and not isinstance(t, ad.Zero) for t in flat.marks]
        pairs = zip(found, [next(there) if r else None for r in real], strict=False)
        self.same = [self.shared and d is None and t is None for d, t in pairs]
        results = self._placed(results, found, [*self.same, *util.select_by(real, self.same)])
        outs, dots = flat.apart(results)
        full = zip(outs, dots, real, strict=True)
        return outs, [t if r and t is not None else transforms.zero_like(x) for x, t, r in full]

    def _moved_by_lanes(
        self, dots: list[Value], dims: list[int | None]
    ) -> tuple[list[Value], list[int | None]]:
        """Tangents of which one has the batch, if a bwd goes back from them: it gets the cotangents of each lane apart.

        It need not be linear, so for their sum it may give something else.
        """
        small = [k for k, t in enumerate(dots) if not t.aval.accumulates]
        if not self.has_bwd or self.shared or not small or any(d is not None for d in dims):
            return dots, dims
        first = min(small, key=lambda k: dots[k].ndim)
        dots[first], dims[first] = transforms.move_batch(dots[first], self.size, None), 0
        return dots, dims

    def _jvp_of_one(self, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        pairs = zip(primals, tangents, strict=True)
        given = [transforms.zero_like(x) if isinstance(t, ad.Zero) else t for x, t in pairs]
        return primitive.by_rule(self.inner, self.inner.rule.jvp, primals, given)

    def transpose(self, p: RuleParams, cts: ad.Tangents, operands: ad.Operands) -> ad.Cotangents:
        """The transpose for one example on the whole batch; what all examples share gets the sum of its cotangents."""
        if not self.transposes:
            return super().transpose(p, cts, operands)
        assert not any(isinstance(x, ad.Accumulator) for x in operands), (
            "unreachable: rules refuse Refs that are linear"
        )
        known = [x for x in operands if isinstance(x, Value)]
        flat = primitive.Masked(self._transpose_of_one(operands), len(known), cts)
        dims = [d for d, x in zip(self.dims, operands, strict=True) if isinstance(x, Value)]
        args = [*known, *flat.dots]
        results, out_dims = self._batch(flat, args, [*dims, *[0] * len(flat.dots)])
        found = iter(zip(results, out_dims, strict=True))
        return [
            ct
            if ct is None
            else ad.Zero(x.aval)
            if isinstance(ct, ad.Zero)
            else self._fit(d is not None, *next(found))
            for ct, d, x in zip(flat.marks, self.dims, operands, strict=True)
        ]

    def _transpose_of_one(self, operands: ad.Operands):  # type: ignore[no-untyped-def]
        unknown = [
            ad.UndefinedPrimal(x.aval if d is None else x.aval.unbatched(d))
            if isinstance(x, ad.UndefinedPrimal)
            else None
            for x, d in zip(operands, self.dims, strict=True)
        ]

        def run(values: ad.Values, cts: ad.Tangents) -> tuple[list[Value], ad.Cotangents]:
            rest = iter(values)
            one = [next(rest) if u is None else u for u in unknown]
            given = [ad.Zero(ct.aval.unbatched(0)) if isinstance(ct, ad.Zero) else ct for ct in cts]
            return [], primitive.by_rule(self.inner, self.inner.rule.transpose, given, one)

        return run

    def _fit(self, batched: bool, ct: Value, dim: int | None) -> Value:
        """A cotangent for an operand that has the batch or not."""
        if batched:
            return transforms.move_batch(ct, self.size, dim)
        return prims.mul(ct, self.size) if dim is None else prims.reduce_sum(ct, (dim,))

    def _batch(  # type: ignore[no-untyped-def]
        self, fun, values: ad.Values, dims: ad.BatchAxes
    ) -> ad.Batched:
        outs, out_dims = transforms.batch_flat(fun, self.size, values, dims, kin=self.kin)
        # Tangents come after the results.
        self.differ = [type(d) is int for d in out_dims]
        return outs, out_dims

    def _placed(self, values: ad.Values, dims: ad.BatchAxes, same: Sequence[bool]) -> list[Value]:
        """Results with the batch in front, those aside that are the same for all lanes."""
        found = zip(values, dims, same, strict=True)
        return [x if s else transforms.move_batch(x, self.size, d) for x, d, s in found]
