"""Transposition: cotangents of the forward states go backward, those of the backward states go forward.

With the known states s, c and the linear ones a, b a step is

    forward   s' = f(s)            a' = A(s) a + E(s) w
    backward  c = C(s) c'          b = B(s) b' + D(s, c') a + H(s, c') w

where w are linear constants. For cotangents u of a and v of b the same steps are

    forward   s' = f(s)            v' = B(s)^T v
    backward  c = C(s) c'          u = A(s)^T u' + D(s, c')^T v      w_bar += E(s)^T u' + H(s, c')^T v

so that the transpose of a replay is a replay. A step of the backward pass makes the step forward, too, so that what it
reads of the forward states need not be copied first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fiveloop.core import Jaxpr, Value, ad, ir, prims, trace, transforms, util
from fiveloop.loops.primitives.replay import ReplayParams, replay_p
from fiveloop.loops.primitives.slots import COUNT
from fiveloop.loops.record import BACKWARD
from fiveloop.loops.replay.split import cut, known_step, unknown_states
from fiveloop.state import AbstractRef, predicate


def replay_transpose(cts: ad.Tangents, operands: ad.Operands, p: ReplayParams) -> ad.Cotangents:
    """Run both passes over the known values and the cotangents."""
    n, *rest = operands[: p.num_operands]
    linear = unknown_states(p, [transforms.is_linear(x) for x in rest])
    cached, cache = _cache(p, linear, operands)
    forward, backward = p.backward.remember(
        ("transposed", p.forward, p.num_consts, linear), lambda: _Steps(p, linear).bodies()
    )
    parts = zip(p.parts(linear), p.parts(rest), strict=True)
    (consts, w), (s, a), (c, b) = [util.partition(mask, xs) for mask, xs in parts]
    given = iter(cts)
    u, v = [
        [ct for lin, ct in zip(mask, given, strict=False) if lin] for mask in p.parts(linear)[1:]
    ]
    states = [*s, *_real(v, b), *c, *_real(u, a), *[transforms.zeros_of(x.aval) for x in w]]
    params = replace(
        p,
        forward=forward,
        backward=backward,
        num_consts=len(consts),
        lane_counts=0,
        cached=cached,
        record=p.record.moved(BACKWARD),
    )
    results = trace.bind(replay_p, n, *consts, *states, *cache, params=params)  # type: ignore[arg-type]  # these are known
    sizes = [len(s), len(v), len(c), len(u)]
    _, b_cts, _, a_cts, w_cts = util.split_list(results, sizes)
    found = iter([*w_cts, *a_cts, *b_cts])
    in_cts = [next(found) if lin else None for lin in linear]
    return [None, *prims.of_linear(rest, in_cts), *[None] * (len(operands) - p.num_operands)]


def _cache(
    p: ReplayParams, linear: util.Mask, operands: ad.Operands
) -> tuple[util.Mask, list[ad.Operand]]:
    """The states saved on the forward pass, if no cotangents flow to them."""
    _, ahead, back = p.parts(linear)
    if any(back) or not any(p.cached) or any(map(min, zip(p.cached, ahead, strict=True))):
        return (), []
    return tuple(util.partition(ahead, p.cached)[0]), list(operands[p.num_operands :])


def _real(cts: ad.Tangents, xs: ad.Operands) -> list[Value]:
    """The cotangents of states, as values."""
    return [
        transforms.zeros_of(x.aval) if isinstance(ct, ad.Zero) else ct
        for ct, x in zip(cts, xs, strict=True)
    ]


class _Steps:
    """The steps of a transposed replay: `linear` says which operands after the number of steps are linear."""

    def __init__(self, p: ReplayParams, linear: util.Mask) -> None:
        self.p = p
        self.linear = linear
        self.masks = p.parts(linear)
        parts = zip(self.masks, p.parts(p.backward.invars[1:]), strict=True)
        (consts, w), (s, a), (c, b) = [util.partition(mask, xs) for mask, xs in parts]
        self.layout = [consts, s, *[list(map(_as_ref, xs)) for xs in (b, c, a, w)]]

    def bodies(self) -> tuple[Jaxpr, Jaxpr]:
        """The bodies forward and backward.

        forward  : [k, *consts, *s, *v]                  -> []
        backward : [k, *consts, *s, *v, *c, *u, *w_bar]  -> []
        """
        return self._staged(self._ahead, 3), self._staged(self._back, 6)

    def _staged(self, run: Callable[..., None], num_parts: int) -> Jaxpr:
        """The jaxpr of a step on the first few parts of the layout."""
        layout = self.layout[:num_parts]

        def flat(k: Value, *args: Value) -> list[Value]:
            run(k, *util.split_list(args, [len(xs) for xs in layout[:-1]]))
            return []

        binders = [v for part in layout for v in part]
        avals = [COUNT, *[v.aval for v in binders]]
        return trace.stage_closed(
            flat, avals, self.p.forward.name, ["", *[v.hint for v in binders]]
        )

    def _back(
        self,
        k: Value,
        consts: list[Value],
        s: list[Value],
        v: list[Value],
        c: list[Value],
        u: list[Value],
        w_bar: list[Value],
    ) -> None:
        """u = A(s)^T u' + D(s, c')^T v and c = C(s) c'; what the constants gather; and the step forward."""
        ahead, back = self._states(1, s, u), self._states(2, c, v)
        _step_back(self.p.backward, [k, *self._constants(consts, w_bar), *ahead, *back])

    def _ahead(self, k: Value, consts: list[Value], s: list[Value], v: list[Value]) -> None:
        """s' = f(s) and v' = B(s)^T v."""
        if not v:
            forward = known_step(self.p.forward, self.linear[: len(self.p.forward.invars) - 1])
            transforms.eval_jaxpr(forward, [k, *consts, *s])
            return
        moved = self._staged(self._moved, 3)
        needs = transforms.needed_body(moved, moved.invars[1 + len(consts) :])
        transforms.eval_jaxpr(needs, [k, *consts, *s, *v])

    def _moved(self, k: Value, consts: list[Value], s: list[Value], v: list[Value]) -> None:
        """A step of the backward pass for a = 0 and w = 0, transposed; B does not depend on c, which is 0, too."""
        zeros = [
            [transforms.zeros_of(x.aval) for x in util.select_by(mask, xs)]
            for mask, xs in zip(self.masks, self.p.parts(self.p.backward.invars[1:]), strict=True)
        ]
        given = util.merge(self.masks[0], consts, zeros[0])
        ahead = util.merge(self.masks[1], s, zeros[1])
        c = [transforms.zeros_of(x.aval) for x in self.layout[3]]
        _step_back(self.p.backward, [k, *given, *ahead, *self._states(2, c, v)])

    def _constants(self, consts: list[Value], w_bar: list[Value]) -> list[ad.Operand]:
        """The constants, with accumulators for the cotangents of the linear constants."""
        binders = self.p.forward.invars[1 : 1 + self.p.num_consts]
        _, linear = util.partition(self.masks[0], binders)
        gathering = [
            ad.Accumulator(x) if v.aval.accumulates else ad.UndefinedPrimal(v.aval, x)
            for v, x in zip(linear, w_bar, strict=True)
        ]
        return util.merge(self.masks[0], consts, gathering)

    def _states(self, part: int, known: list[Value], cts: list[Value]) -> list[ad.Operand]:
        """The states of a way, with the cotangents of the linear ones."""
        return util.merge(self.masks[part], known, list(map(ad.Accumulator, cts)))


def _step_back(body: Jaxpr, operands: ad.Operands) -> None:
    """A step transposed: first the known part, then the linear part backward.

    A lane that has ended computes with the values of a running lane: its own may have infinite slopes.
    """
    linear = tuple(map(transforms.is_linear, operands))
    halves = cut(body, linear[1:])
    known, _ = util.partition(linear, operands)
    residuals = transforms.eval_jaxpr(predicate.filled(halves.known), known)  # type: ignore[arg-type]  # they are values
    transforms.backward_pass(
        halves.staged, [*residuals, *util.select_by(halves.staged_in, operands)], ()
    )


def _as_ref(v: ir.Var) -> ir.Var:
    """A binder for the cotangent of what a binder stands for, or for a state."""
    return v if isinstance(v.aval, AbstractRef) else ir.Var(AbstractRef(v.aval), v.hint)
