"""The staged half of a loop without saved residuals: a `replay` of its steps from the initial states."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core import Jaxpr, ir, prims, rules, transforms, util
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.primitives import convert
from fiveloop.loops.analysis.accesses import read_whole, write_whole
from fiveloop.loops.primitives.for_loop import for_p
from fiveloop.loops.primitives.replay import ReplayParams, replay_p
from fiveloop.loops.primitives.slots import cache_avals, settled
from fiveloop.loops.primitives.while_loop import while_p
from fiveloop.loops.record import shown_aval
from fiveloop.loops.replay.dce import replay_dce
from fiveloop.loops.schedules.binomial import Slots
from fiveloop.loops.schedules.periodic import Periodic
from fiveloop.state import AbstractRef


def may_save(plan: transforms.SavingPlan, loop: ir.Eqn) -> bool:
    """Whether a loop may save states in the forward pass.

    It does not in another loop, nor where a policy decides, nor if it has a bar or does something else that must happen
    once: it is compiled as several.
    """
    return not plan.cuts and transforms.may_weigh(plan.policy) and not acts(loop)


def acts(loop: ir.Eqn) -> bool:
    """Whether a loop has a bar, or does something else that must happen once."""
    return any(map(transforms.happens_once, ir.jaxprs_in(loop.params)))


def scheduled(eqn: ir.Eqn, verdict: rules.Slots) -> ir.Eqn:
    """A loop that saves as many states as a verdict says, if nobody has chosen; so do loops in it that it speaks of."""
    if eqn.params.slots is not None:
        return eqn
    inner = replace(verdict, tape=1)
    params = ir.with_jaxprs(eqn.params, lambda jaxpr: _scheduled_within(jaxpr, inner))
    slots = verdict.slots if verdict.tape == 1 else Periodic(verdict.slots, verdict.tape)
    return eqn.replace(params=replace(params, slots=slots))


@ir.once_per(lambda jaxpr, verdict: (jaxpr, verdict))
def _scheduled_within(jaxpr: Jaxpr, verdict: rules.Slots) -> Jaxpr:
    def each(eqn: ir.Eqn) -> ir.Eqn:
        is_long = eqn.primitive is for_p and eqn.params.nsteps > verdict.slots
        if eqn.primitive is while_p or (verdict.within and is_long):
            return scheduled(eqn, verdict)
        params = ir.with_jaxprs(eqn.params, lambda inner: _scheduled_within(inner, verdict))
        return eqn if params == eqn.params else eqn.replace(params=params)

    return jaxpr.replace(eqns=list(map(each, jaxpr.eqns))) if rules.holds_loop(jaxpr) else jaxpr


@dataclass(slots=True)
class Staged:
    """Equations of the steps of a loop, run again for its unknown results.

    `loop` has the wanted results; `late` are its unknown operands. The Refs of the loop are states of the replay:
    `before` holds the equations that read known Refs before the loop, `eqns` is the staged half, which writes the
    late Refs. `kept` are the slots of known states that are saved while the loop runs, by result or Ref, `stored`
    describes their contents, and `slots` is their number, or the schedule.
    """

    loop: ir.Eqn
    late: set[ir.Atom]
    before: list[ir.Eqn] = field(default_factory=list)
    eqns: list[ir.Eqn] = field(default_factory=list)
    kept: dict[ir.Atom, ir.Var] = field(default_factory=dict)
    stored: list[ir.Var] = field(default_factory=list)
    slots: Slots | None = None

    def make(
        self,
        count: ir.Atom,
        params: ReplayParams,
        changed: Sequence[bool],
        at_hand: set[ir.Atom],
        wanted: Sequence[bool],
        saves: bool = False,
    ) -> None:
        """Write the equations down; `changed` says which operands after the constants a step changes.

        params.forward : [k, *consts, *operands not changed, *operands changed] -> []

        With `saves` the steps begin with states that the loop saves.
        """
        consts, states = util.split_list(self.loop.invars, [len(self.loop.invars) - len(changed)])
        results = iter(zip(self.loop.outvars, wanted, strict=True))
        held: list[ir.Atom] = []
        finals: list[tuple[ir.Var, bool]] = []
        for x, changes in zip(states, changed, strict=True):
            is_ref = isinstance(x.aval, AbstractRef)
            held.append(self._contents(x, changes, at_hand) if is_ref else x)
            finals.append((ir.Var(held[-1].aval), x in self.late) if is_ref else next(results))
        read, written = util.partition(changed, held)
        outs = [v for v, _ in util.select_by(changed, finals)]
        wants = [want for _, want in util.select_by(changed, finals)]
        operands = [count, *consts, *read, *written]
        if saves and not all(wants):
            pairs = zip(states, finals, strict=True)
            names = [x if isinstance(x.aval, AbstractRef) else v for x, (v, _) in pairs]
            params, cache = self._cached(params, util.select_by(changed, names), wants)
            operands += cache
        whole = rules.new_eqn(replay_p, operands, params, outs, self.loop.source)
        smaller = replay_dce(wants, whole)[1]
        self.eqns += [] if smaller is None else [smaller]
        self.kept = {x: v for x, v in self.kept.items() if smaller and v in smaller.invars}
        for x, value, (final, want), changes in zip(states, held, finals, changed, strict=True):
            if want and isinstance(x.aval, AbstractRef) and changes:
                self.eqns.append(write_whole(x, final, self.loop.source))
            elif want and not isinstance(x.aval, AbstractRef) and not changes:
                same = convert.ConvertParams(final.aval.dtype)
                self.eqns.append(rules.new_eqn(prims.convert_p, [value], same, [final]))

    def _cached(
        self, params: ReplayParams, states: ir.Atoms, late: Sequence[bool]
    ) -> tuple[ReplayParams, list[ir.Var]]:
        """The steps from the known states saved on the forward pass; and the cache."""
        saved = util.partition(late, states)[0]
        avals = [shown_aval(x.aval) for x in saved]
        self.slots = settled(params.slots, avals)
        cache = [ir.Var(a) for a in cache_avals(avals, self.slots)]
        self.stored, slots = cache[:2], cache[2:]
        self.kept = dict(zip(saved, slots, strict=True))
        return replace(params, slots=self.slots, cached=tuple(not u for u in late)), cache

    def saving(self, loop: ir.Eqn, states: ir.Atoms) -> ir.Eqn:
        """A `while` of what is known, which saves those of its carried values and Refs that the steps begin with.

        `states` are these, as the loop that is cut in two calls them, after the first carried value: a counter.
        """
        kept = tuple(x in self.kept for x in states)
        if not any(kept):
            return loop
        params = replace(loop.params, kept=(False, *kept), slots=self.slots)
        cache = [*self.stored, *[self.kept[x] for x in states if x in self.kept]]
        return rules.new_eqn(
            loop.primitive, loop.invars, params, [*loop.outvars, *cache], loop.source
        )

    def _contents(self, ref: ir.Atom, changed: bool, at_hand: set[ir.Atom]) -> ir.Var:
        """What a Ref holds before the loop; if it is known and not at hand later, it is kept."""
        read = read_whole(ref, source=self.loop.source)
        later = ref in self.late or (ref in at_hand and not changed)
        (self.eqns if later else self.before).append(read)
        return read.outvars[0]
