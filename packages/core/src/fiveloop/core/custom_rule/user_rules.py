"""Rules given by the user: a jvp, or fwd and bwd, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fiveloop.core import ad, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule import linear, primitive
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.dataclass import dataclass

FlatJvp = Callable[[ad.Values, ad.Tangents], tuple[ad.Values, ad.Tangents]]
"""From arguments and tangents to results and tangents."""
FlatBwd = Callable[[ad.Values, ad.Tangents], ad.Tangents]
"""From residuals and cotangents of the results to cotangents of the arguments."""
FlatFwd = Callable[[ad.Values, util.Mask], tuple[list[Value], list[Value], FlatBwd]]
"""From arguments, and which of them are perturbed, to results, residuals, and what goes back."""


@dataclass(eq=False, repr=False)
class UserRule(primitive.Rule):
    """A rule with the user's function behind it.

    `function` runs where there is no jaxpr, under the traces that stood when it was called, of which `home` is the
    innermost.
    """

    function: Callable[..., ad.Values]
    closure: Closure
    home: trace.Trace | None

    def call(self, p: primitive.RuleParams, values: ad.Values) -> list[Value]:
        """The user's function, operation by operation."""
        if p.jaxpr is not None:
            return super().call(p, values)
        with trace.users_lines():
            return list(self.function(*values))


@dataclass(eq=False, repr=False)
class JvpRule(UserRule):
    """A function with a jvp."""

    kind = "jvp"
    flat_jvp: FlatJvp
    symbolic_zeros: bool

    def jvp(self, p: primitive.RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """What the user's rule gives."""
        closed, args = util.split_list(primals, [p.num_closed])
        dots = tangents[p.num_closed :]
        fixed = [
            isinstance(t, ad.Zero) and x.aval.accumulates and x.aval.differentiable
            for x, t in zip(args, dots, strict=True)
        ]
        if not any(fixed) or self.symbolic_zeros:
            return self.closure.run(self.flat_jvp, closed, args, dots)
        pairs = zip(dots, fixed, strict=True)
        given = [transforms.instantiate(t) if is_fixed else t for t, is_fixed in pairs]
        return self.closure.run(
            self.flat_jvp, closed, args, given, partial(_check_unwritten, p, fixed)
        )


@dataclass(eq=False, repr=False)
class VjpRule(UserRule):
    """A function with fwd and bwd, and perhaps a jvp, which then is its forward mode."""

    kind = "vjp"
    has_bwd = True
    fwd: FlatFwd
    bwd_name: str
    flat_jvp: FlatJvp | None
    symbolic_zeros: bool

    def __post_init__(self) -> None:
        if self.flat_jvp is not None:
            self.kind = "jvp+vjp"

    def jvp(self, p: primitive.RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """Run fwd; the tangents come out of one linear equation whose transpose is bwd."""
        closed, args = util.split_list(primals, [p.num_closed])
        dots = list(tangents[p.num_closed :])
        # The tangents of what Refs hold at the call; `bwd` speaks of these.
        held = [t[...] if t.aval.accumulates and not isinstance(t, ad.Zero) else t for t in dots]
        if self.flat_jvp is not None:
            _refuse_linear_refs(p, args, dots)
        outs, res, back = self._forward(closed, args, dots)
        floats = [x.aval.differentiable for x in outs]
        if not any(floats):
            return outs, [transforms.zero_like(x) for x in outs]
        if any(t is not h for t, h in zip(dots, held, strict=True)):
            spoken = _spoken_of(back, res, outs, len(dots))
            refs = zip(dots, held, spoken, strict=True)
            held = [h if t is h or s else ad.Zero(h.aval) for t, h, s in refs]
        dots, perturbed = held, transforms.nonzero_mask(held)
        rule = self._linear(outs, floats, res, args, perturbed, len(closed), back)
        both = self.flat_jvp is not None
        known = [*closed, *res, *(args if both else ())]
        if not self.symbolic_zeros:
            # Forward mode uses all but the residuals.
            forward = [both and not 0 <= k - len(closed) < len(res) for k in range(len(known))]
            rule, used = rule.narrowed([x.aval for x in known], forward)
            known = util.select_by(used, known)
        given = transforms.nonzero_tangents(dots)
        types = tuple([x.aval for x in (*known, *given)])
        params = primitive.RuleParams(rule, name=p.name, in_avals=types, axes=p.axes, scope=p.scope)
        outs_dot = trace.bind(primitive.custom_rule_p, *known, *given, params=params)
        return outs, transforms.with_zeros(floats, outs_dot, [x.aval for x in outs])

    def _forward(
        self, closed: ad.Values, args: ad.Values, dots: ad.Tangents
    ) -> tuple[list[Value], list[Value], FlatBwd]:
        """What fwd gives. What it writes to Refs has a derivative by the contents of Refs alone."""
        backward: list[FlatBwd] = []
        num_outs: list[int] = []

        def run(*values: Value) -> list[Value]:
            outs, res, back = self.fwd(values, transforms.nonzero_mask(dots))
            backward[:], num_outs[:] = [back], [len(outs)]
            return [*outs, *res]

        def fwd(values: ad.Values, dots: ad.Tangents) -> ad.Duals:
            moves = any(transforms.nonzero_mask(dots))
            return transforms.jvp_flat(run, values, dots)[0] if moves else run(*values), []

        of_refs = [t if t.aval.accumulates else ad.Zero(t.aval) for t in dots]
        results, _ = self.closure.run(fwd, closed, args, of_refs)
        outs, res = util.split_list(results, num_outs)
        return outs, res, backward[0]

    def _linear(
        self,
        outs: ad.Values,
        floats: Sequence[bool],
        res: ad.Values,
        args: ad.Values,
        perturbed: util.Mask,
        num_closed: int,
        back: FlatBwd,
    ) -> linear.LinearRule:
        """The linear half: its known operands are `[*closed, *res, *args if there is a jvp]`."""
        flat_jvp, closure = self.flat_jvp, self.closure
        fixed = [transforms.zero_like(x) for x, f in zip(outs, floats, strict=True) if not f]
        zeros = [transforms.zero_like(x) for x, u in zip(args, perturbed, strict=True) if not u]
        # The rule outlives this call: it must hold types and numbers, and no values.
        num_res = len(res)

        def backward(known: ad.Values, cts: ad.Tangents) -> list[ad.Tangent]:
            closed, given = util.split_list(known, [num_closed])
            full = util.merge(floats, fixed, list(cts))
            _, in_cts = closure.run(
                lambda values, cts: ([], back(values, cts)), closed, given[:num_res], full
            )
            return util.select_by(perturbed, in_cts)

        def forward(known: ad.Values, dots: ad.Values) -> list[ad.Tangent]:
            assert flat_jvp is not None, "unreachable: only used with a jvp"
            closed, _, args = util.split_list(known, [num_closed, num_res])
            full = util.merge(perturbed, zeros, list(dots))
            _, outs_dot = closure.run(flat_jvp, closed, args, full)
            return util.partition(floats, outs_dot)[1]

        given = None if flat_jvp is None else forward
        num_known = num_closed + num_res + (len(args) if given else 0)
        out_avals = [x.aval.tangent() for x, f in zip(outs, floats, strict=True) if f]
        home = None if self.home is None else trace.current_trace()
        named = (self.bwd_name, home, self.holds_traced)
        return linear.LinearRule(backward, given, num_known, out_avals, *named)


def _check_unwritten(
    p: primitive.RuleParams, fixed: Sequence[bool], written: Sequence[bool]
) -> None:
    """Refuse to write to the tangents of Refs that are not differentiated: nobody would see it."""
    for k, (is_fixed, is_written) in enumerate(zip(fixed, written, strict=True)):
        if is_fixed and is_written:
            raise TypeError(
                f"the custom rule of {p.name}: expected its jvp to leave the tangent of leaf {k} of its "
                f"arguments as it is, a Ref that is not differentiated, but it writes to it; make the Ref inside "
                f"of the function that is differentiated"
            )


def _spoken_of(back: FlatBwd, res: ad.Values, outs: ad.Values, count: int) -> Sequence[bool]:
    """For which arguments bwd gives cotangents that are not zero, by a trial; all, if that fails."""
    found = [True] * count

    def trial(*values: Value) -> list[Value]:
        kept, given = util.split_list(values, [len(res)])
        cts = iter(given)
        full = [next(cts) if x.aval.differentiable else transforms.zero_like(x) for x in outs]
        found[:] = transforms.nonzero_mask(back(kept, full))
        return []

    floats = [x.aval.tangent() for x in outs if x.aval.differentiable]
    trace.captured_by(trial, [*[x.aval for x in res], *floats])
    return found


def _refuse_linear_refs(p: primitive.RuleParams, args: ad.Values, dots: ad.Tangents) -> None:
    for k, (x, t) in enumerate(zip(args, dots, strict=True)):
        if x.aval.accumulates and not isinstance(t, ad.Zero):
            raise TypeError(
                f"the custom rule of {p.name}: expected Refs whose contents are not differentiated, since it has both "
                f"a jvp and a bwd, which may write different things, got one of type {x.aval} as leaf {k} of its "
                f"arguments that is; pass its contents, or give only one of the rules"
            )
