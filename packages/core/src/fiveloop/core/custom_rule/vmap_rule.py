"""The rule of a function that says itself what it is on a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fiveloop.core.array import Value
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.custom_rule.primitive import CustomRuleParams, Rule, custom_rule_p
from fiveloop.core.errors import at_source
from fiveloop.core.trace.tracer import bind, current_source
from fiveloop.core.transforms.batch import in_front, move_batch
from fiveloop.core.transforms.dce import dce
from fiveloop.core.transforms.jvp import jvp_flat, jvp_jaxpr
from fiveloop.core.transforms.zeros import Tangent, instantiate, nonzero_mask, zero_like
from fiveloop.core.util import Mask, merge, select_by, split_list

FlatVmap = Callable[[int, Sequence[bool], Sequence[Value]], tuple[list[Value], list[bool]]]
"""From the size of a batch, and the arguments and which of them have it in front, to results and which of them do."""


class VmapRule(Rule):
    """A function that a rule of the user's batches."""

    kind = "vmap"
    batches = True

    def __init__(self, closure: Closure, flat_vmap: FlatVmap) -> None:
        self.closure = closure
        self.flat_vmap = flat_vmap

    def batch(
        self, size: int, operands: Sequence[Value], dims: Sequence[int | None], p: CustomRuleParams
    ) -> tuple[list[Value], list[int | None]]:
        """What the user's rule gives."""
        closed, args = split_list(in_front(size, operands, dims), [p.num_closed])
        held, given = split_list(dims, [p.num_closed])
        for x, d in zip(closed, held, strict=True):
            if d is not None:
                raise TypeError(
                    f"the custom_vmap of {p.name}: expected a batch of its arguments, but it closes over a value of "
                    f"each lane, of type {x.aval.unbatched(d)}; pass that as an argument, so that the rule is given "
                    f"its batch{at_source(current_source())}"
                )
        flags: list[bool] = []

        def run(values: Sequence[Value], _: Sequence[Tangent]) -> tuple[list[Value], list[Tangent]]:
            outs, flags[:] = self.flat_vmap(size, [d is not None for d in given], values)
            return outs, []

        outs, _ = self.closure.run(run, closed, args)
        return outs, [0 if flag else None for flag in flags]

    def jvp(
        self, p: CustomRuleParams, primals: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[list[Value], list[Tangent]]:
        """The function, and its tangent as one more function, which the derivative of the rule batches."""
        assert p.jaxpr is not None, "unreachable: it is always staged"
        nonzero = nonzero_mask(tangents)
        outs = bind(custom_rule_p, *primals, params=p)
        jaxpr_jvp, out_nonzero = jvp_jaxpr(p.jaxpr, nonzero)
        # jaxpr_jvp : [*closed, *args, *dots] -> [*outs, *out_dots] ; jaxpr_dot : the same -> [*out_dots]
        jaxpr_dot, _ = dce(jaxpr_jvp, (*(False,) * len(outs), *(True,) * sum(out_nonzero)))
        of_args = nonzero[p.num_closed :]

        def flat_dots(
            size: int, batched: Sequence[bool], values: Sequence[Value]
        ) -> tuple[list[Value], list[bool]]:
            return self._dots(size, batched, values, of_args, out_nonzero)

        params = replace(p, jaxpr=jaxpr_dot, rule=VmapRule(self.closure, flat_dots))
        dots = select_by(nonzero, tangents)
        found = bind(custom_rule_p, *primals, *map(instantiate, dots), params=params)
        zeros = [zero_like(x) for x, nz in zip(outs, out_nonzero, strict=True) if not nz]
        return outs, merge(out_nonzero, zeros, list(found))

    def _dots(
        self, size: int, batched: Sequence[bool], values: Sequence[Value], nonzero: Mask, out: Mask
    ) -> tuple[list[Value], list[bool]]:
        """The tangents of a batch of results; an argument has the batch where its tangent does."""
        args, given = split_list(values, [len(nonzero)])
        of_args, of_dots = split_list(batched, [len(nonzero)])
        dots, flags = iter(given), iter(of_dots)
        primals: list[Value] = []
        tangents: list[Tangent] = []
        both: list[bool] = []
        for x, b, nz in zip(args, of_args, nonzero, strict=True):
            with_dot = nz and next(flags)
            both.append(b or with_dot)
            primals.append(move_batch(x, size, 0 if b else None) if both[-1] else x)
            t = next(dots) if nz else zero_like(primals[-1])
            if nz and b and not with_dot:
                t = move_batch(instantiate(t), size, None)
            tangents.append(t)
        found: list[bool] = []

        def run(*xs: Value) -> list[Value]:
            outs, found[:] = self.flat_vmap(size, both, xs)
            return outs

        _, out_dots = jvp_flat(run, primals, tangents)
        return [instantiate(t) for t in select_by(out, out_dots)], select_by(out, found)
