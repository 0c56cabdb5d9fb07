"""Rule of `custom_vmap`: batching is given by the user."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial

from fiveloop.core import ad, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call import jvp_of
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.custom_rule.primitive import Rule, RuleParams, custom_rule_p
from fiveloop.core.dataclass import dataclass, replace

FlatVmap = Callable[[int, Sequence[bool], ad.Values], tuple[list[Value], list[bool]]]
"""From the size of a batch, and the arguments and which of them have it in front, to results and which of them do."""


@dataclass(eq=False, repr=False)
class VmapRule(Rule):
    """A function that a rule of the user's batches."""

    kind = "vmap"
    batches = True
    closure: Closure
    flat_vmap: FlatVmap

    def batch(self, size: int, values: ad.Values, dims: ad.BatchAxes, p: RuleParams) -> ad.Batched:
        """What the user's rule gives."""
        closed, args = util.split_list(transforms.in_front(size, values, dims), [p.num_closed])
        held, given = util.split_list(dims, [p.num_closed])
        for x, d in zip(closed, held, strict=True):
            if d is not None:
                raise TypeError(
                    f"the custom_vmap of {p.name}: expected a batch of its arguments, but it closes over a value of "
                    f"each lane, of type {x.aval.unbatched(d)}; pass that as an argument, so that the rule is given "
                    f"its batch"
                )
        flags: list[bool] = []

        def run(values: ad.Values, _: ad.Tangents) -> ad.Duals:
            outs, flags[:] = self.flat_vmap(size, [d is not None for d in given], values)
            return outs, []

        outs, _ = self.closure.run(run, closed, args)
        return outs, [0 if flag else None for flag in flags]

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """The function, and its tangent as one more function, which the derivative of the rule batches."""
        assert p.jaxpr is not None, "unreachable: it is always staged"
        if p.jaxpr.effects:
            # An effect happens once: it is not split in two, and the function's own batch is that of the derivative.
            return jvp_of(p.jaxpr, primals, tangents)
        nonzero = transforms.nonzero_mask(tangents)
        jaxpr_jvp, out_nonzero = transforms.jvp_jaxpr(p.jaxpr, nonzero)
        outs = trace.bind(custom_rule_p, *primals, params=p)
        # jaxpr_jvp : [*closed, *args, *dots] -> [*outs, *out_dots] ; jaxpr_dot : the same -> [*out_dots]
        jaxpr_dot, _ = transforms.dce(
            jaxpr_jvp, (*(False,) * len(outs), *(True,) * sum(out_nonzero))
        )
        dots_of = partial(self._dots, nonzero[p.num_closed :], out_nonzero)
        params = replace(p, jaxpr=jaxpr_dot, rule=VmapRule(self.closure, dots_of))
        dots = transforms.nonzero_tangents(tangents)
        found = trace.bind(custom_rule_p, *primals, *dots, params=params)
        return outs, transforms.with_zeros(out_nonzero, found, [x.aval for x in outs])

    def _dots(
        self,
        nonzero: util.Mask,
        out: util.Mask,
        size: int,
        batched: Sequence[bool],
        values: ad.Values,
    ) -> tuple[list[Value], list[bool]]:
        """The tangents of a batch of results; an argument has the batch where its tangent does."""
        args, dots = util.split_list(values, [len(nonzero)])
        of_args, of_dots = util.split_list(batched, [len(nonzero)])
        none = [False] * (len(nonzero) - len(dots))
        both = [*map(operator.or_, of_args, util.merge(nonzero, none, of_dots))]

        def lifted(x: Value, has_batch: bool, wanted: bool) -> Value:
            return transforms.move_batch(x, size, 0 if has_batch else None) if wanted else x

        primals = [*map(lifted, args, of_args, both)]
        found: list[bool] = []

        def run(*xs: Value) -> list[Value]:
            outs, found[:] = self.flat_vmap(size, both, xs)
            return outs

        there = [*map(lifted, dots, of_dots, util.select_by(nonzero, both))]
        tangents = transforms.with_zeros(nonzero, there, [x.aval for x in primals])
        out_dots = util.select_by(out, transforms.jvp_flat(run, primals, tangents)[1])
        return [*map(transforms.instantiate, out_dots)], util.select_by(out, found)
