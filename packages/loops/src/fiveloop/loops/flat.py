"""A loop whose steps run a `while` on Refs, as one `while`: a step of it is a step of the inner loop.

The way back of a loop begins with what its Refs held before it. For an inner loop all of that would be kept of each
step of the outer one, however few elements are written. The way back of a single loop keeps a few values of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fiveloop.core import Jaxpr, Value, arrays, ir, prims, rules, trace, transforms, util
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops.for_loop.slots import numbered_body
from fiveloop.loops.primitives import slots
from fiveloop.loops.primitives.cond import CondParams, cond_p
from fiveloop.loops.primitives.for_loop import ForParams, for_p, stateful
from fiveloop.loops.primitives.replay import replay_p
from fiveloop.loops.primitives.while_loop import PREDICATE, WhileParams, parts, while_p
from fiveloop.state import AbstractRef, api

LOOPS = (for_p, while_p, replay_p)


def flat_call(eqn: ir.Eqn, unknown: Sequence[bool]) -> ir.Eqn | None:
    """A call of one loop in the place of two, if these would keep what a large Ref holds for each outer step."""
    p: ForParams | WhileParams = eqn.params
    nest = nest_of(p.body)
    if nest is None or not nest.pays(util.partition(unknown, p.body.invars[-len(unknown) :])[0]):
        return None
    avals = [a.aval for a in eqn.invars]
    made = lambda: _flat(p, avals)
    key = ("flat", replace(p, body=_NO_BODY), *avals)
    return rules.new_eqn(
        closed_call_p,
        eqn.invars,
        ClosedCallParams(p.body.remember(key, made)),
        eqn.outvars,
        eqn.source,
    )


_NO_BODY = Jaxpr((), (), ())


def _flat(p: ForParams | WhileParams, avals: Sequence[ir.Aval]) -> Jaxpr:
    """One loop for a loop over a loop: `[*operands] -> [*results]`."""
    if isinstance(p, WhileParams):
        return trace.stage_closed(lambda *args: _bound(p, args), avals, p.body.name)
    loop = stateful(p)
    body = numbered_body(loop, (True,) * (len(avals) - loop.num_consts))

    def step(*args: Value) -> list[Value]:
        consts, (k, *refs) = util.split_list(args, [p.num_consts])
        transforms.eval_jaxpr(body, [k, *consts, *refs])
        return [k + 1]

    def more(*args: Value) -> list[Value]:
        return [args[p.num_consts] < (args[0] if p.counted else p.nsteps)]

    k, *binders = body.invars
    inner = [v.aval for v in [*binders[: p.num_consts], k, *binders[p.num_consts :]]]
    params = WhileParams(
        trace.stage_closed(more, inner, p.body.name),
        trace.stage_closed(step, inner, p.body.name),
        p.num_consts,
        slots=p.slots,
        record=p.record,
    )

    def run(*args: Value) -> list[Value]:
        consts, states = util.split_list(args, [p.num_consts])
        refs = [x if isinstance(x.aval, AbstractRef) else api.new_ref(x) for x in states]
        _bound(params, [*consts, _ZERO, *refs])
        ends = zip(refs, states, strict=True)
        return [api.freeze(ref) for ref, x in ends if not isinstance(x.aval, AbstractRef)]

    return trace.stage_closed(run, avals, p.body.name)


_ZERO = arrays.as_value(np.int64(0))


def _bound(p: WhileParams, operands: Sequence[Value]) -> list[Value]:
    """The results of a loop over a loop, by one loop."""
    nest = nest_of(p.body)
    assert nest is not None, "unreachable: the body holds a loop"
    consts, carry, refs = parts(p, operands)
    # What an inner loop begins with is not there yet.
    empty = [transforms.zeros_of(v.aval.strong()) for v in nest.held]
    fresh = arrays.as_value(np.True_)
    return trace.bind(while_p, *consts, fresh, *empty, *carry, *refs, params=nest.loop(p))[
        1 + len(empty) :
    ]


@dataclass(frozen=True, slots=True)
class Nest:
    """A body around an inner loop: the equations before it and after it, and the values `live` that these pass on.

    before : [*ins]                        -> [*live, *the inner loop's first carry]
    after  : [*ins, *live, *inner results] -> [*outs]
    """

    body: Jaxpr
    inner: ir.Eqn
    live: list[ir.Var]
    before: Jaxpr
    after: Jaxpr

    @property
    def held(self) -> list[ir.Var]:
        """What is carried besides, from the beginning of an inner loop on."""
        return [*self.live, *parts(self.inner.params, self.inner.params.body.invars)[1]]

    def pays(self, known: Sequence[ir.Var]) -> bool:
        """Whether the known Refs that the inner loop sees changed are far larger than all that a step computes."""
        changed = (ir.touched_refs(self.inner) & ir.mutated(self.body)).intersection(known)
        room = prims.bytes_of(v.aval for v in changed)
        eqns = [*self.before.eqns, *self.after.eqns, *self.inner.params.body.eqns]
        made = prims.bytes_of(v.aval for e in eqns for v in e.outvars)
        return ir.is_more(room, slots.SMALL) and ir.is_more(room, slots.LEAST_SHARE * made)

    def loop(self, p: WhileParams) -> WhileParams:
        """The one loop; `fresh` says that a step of the outer one begins.

        cond, body : [*consts, fresh, *held, *carry, *refs] -> [pred], [fresh, *held, *carry]
        """
        first, last = p.num_consts, p.num_consts + 1 + len(self.held)
        avals = p.body.in_avals
        held = [PREDICATE, *[v.aval.strong() for v in self.held]]
        ins = [*avals[:first], *held, *avals[first:]]

        def more(*args: Value) -> list[Value]:
            (holds,) = transforms.eval_jaxpr(p.cond, [*args[:first], *args[last:]])
            return [~args[first] | holds]

        def step(*args: Value) -> list[Value]:
            return self._step(p, args[first], args[first + 1 : last], [*args[:first], *args[last:]])

        return replace(
            p,
            cond=trace.stage_closed(more, ins, p.cond.name),
            body=trace.stage_closed(step, ins, p.body.name),
            slots=self.inner.params.slots if p.slots is None else p.slots,
            counted=False,
        )

    def _step(
        self, p: WhileParams, fresh: Value, held: Sequence[Value], given: Sequence[Value]
    ) -> list[Value]:
        """Begin an inner loop if it is time; then make a step of it, or end it if it is over."""
        num = len(self.live)

        def begin(*args: Value) -> list[Value]:
            return transforms.eval_jaxpr(self.before, args[len(held) :])

        def wait(*args: Value) -> list[Value]:
            return list(args[: len(held)])

        def inner(args: Sequence[Value]) -> list[Value]:
            """The operands of the inner loop."""
            names = zip(
                [*self.live, *self.body.invars], [*args[:num], *args[len(held) :]], strict=True
            )
            env = ir.Environment[Value](names)
            first, _, last = parts(self.inner.params, self.inner.invars)
            return [*map(env.read, first), *args[num : len(held)], *map(env.read, last)]

        def go_on(*args: Value) -> list[Value]:
            after = transforms.eval_jaxpr(self.inner.params.body, inner(args))
            return [*after, *parts(p, args[len(held) :])[1]]

        def end(*args: Value) -> list[Value]:
            live, carry = args[:num], args[num : len(held)]
            outs = transforms.eval_jaxpr(self.after, [*args[len(held) :], *live, *carry])
            return [*carry, *outs]

        held = _either(fresh, begin, wait, [*held, *given])
        (goes_on,) = transforms.eval_jaxpr(self.inner.params.cond, inner([*held, *given]))
        return [~goes_on, *held[:num], *_either(goes_on, go_on, end, [*held, *given])]


def _either(
    pred: Value,
    yes: Callable[..., list[Value]],
    no: Callable[..., list[Value]],
    operands: Sequence[Value],
) -> list[Value]:
    avals = [x.aval for x in operands]
    branches = tuple(trace.stage_closed(f, avals, f.__name__) for f in (no, yes))
    index = prims.convert(pred, np.int32)
    return trace.bind(cond_p, index, *operands, params=CondParams(branches))


def nest_of(body: Jaxpr) -> Nest | None:
    """The `while` of a body on Refs that the body changes, if it is the only loop there on such Refs."""
    return body.remember("nest", lambda: _nest(body))


def _nest(body: Jaxpr) -> Nest | None:
    changing = ir.mutated(body).intersection(body.invars)
    found = [
        k for k, e in enumerate(body.eqns) if e.primitive in LOOPS and ir.touched_refs(e) & changing
    ]
    if len(found) != 1 or any(map(ir.acts, body.eqns)):
        return None
    (k,) = found
    inner = body.eqns[k]
    if inner.primitive is not while_p or inner.params.kept:
        return None
    before, after = body.eqns[:k], body.eqns[k + 1 :]
    made = [v for e in before for v in e.outvars]
    used = ir.used_vars([*body.outvars, *[a for e in (inner, *after) for a in e.invars]])
    live = [v for v in made if v in used]
    if any(v.aval.accumulates for v in live):
        return None
    carry = parts(inner.params, inner.invars)[1]
    return Nest(
        body,
        inner,
        live,
        Jaxpr(body.invars, before, [*live, *carry], body.name),
        Jaxpr([*body.invars, *live, *inner.outvars], after, body.outvars, body.name),
    )
