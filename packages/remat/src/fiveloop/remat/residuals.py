"""Residuals: what a derivative saves, with sizes, places and reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core import Jaxpr, ir, prims, pytree, rules, trace, transforms, util
from fiveloop.core.api import flatten, staging
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.remat import policies
from fiveloop.remat.budget.amount import Choice
from fiveloop.remat.makers import Maker, maker_in, maker_of
from fiveloop.remat.name import name_p, with_labels
from fiveloop.remat.policies import both_save
from fiveloop.remat.primitive import CheckpointParams, checkpoint_p


def number_of(number: int, noun: str) -> str:
    """So many of something, as tables show it.

    >>> number_of(1, "value"), number_of(2, "value")
    ('1 value', '2 values')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass(frozen=True, slots=True)
class Need:
    """An equation of the backward pass that uses a residual: its primitive and the line of the user's program.

    `again` says that it is a part of what is computed again, and not of the backward pass from that.
    """

    primitive: str
    source: ir.Source | None = None
    again: bool = False

    def __str__(self) -> str:
        return f"{self.primitive}{' again' if self.again else ''}{_line(self.source, ' at ')}"


@dataclass(frozen=True)
class Residual:
    """One array that is saved for the backward pass.

    `origin` describes the value, `source` is the line that computes it, and `path` lists the loops, branches and
    calls around it, outermost first. `label` is its name in the program. If `trips` is above 1, it is stacked over
    the steps of the loops. `needed_by` lists the equations of the backward pass that use it. `verdict` is the
    decision of the `policy`, `reason` says why it is saved, and `flops` is the cost of computing it from the other
    residuals of its body.
    """

    aval: ir.Aval
    origin: str
    source: ir.Source | None
    path: tuple[str, ...] = ()
    label: str = ""
    trips: int = 1
    needed_by: tuple[Need, ...] = ()
    policy: str = ""
    verdict: str = ""
    reason: str = ""
    flops: int = 0

    @property
    def bytes(self) -> int:
        """Its bytes; those of all steps of a loop together."""
        return ir.size_of(self.aval.shape) * self.aval.dtype.itemsize

    @property
    def bytes_each(self) -> int:
        """The bytes that one step saves."""
        return self.bytes // self.trips

    def __str__(self) -> str:
        return f"{self.aval!s:<18} {self.bytes:>12,} bytes  {self.origin}{_line(self.source)}"


def place_in_program(source: ir.Source | None) -> str:
    """A line of the user's program: the file's name and the number; empty if there is none."""
    return "" if source is None else f"{source.file.rpartition('/')[2]}:{source.line}"


def _line(source: ir.Source | None, before: str = ", ") -> str:
    return "" if source is None else f"{before}{place_in_program(source)}"


@dataclass(frozen=True)
class SavedResiduals:
    """All residuals of a function; prints as a table."""

    residuals: tuple[Residual, ...]

    def __iter__(self) -> Iterator[Residual]:
        return iter(self.residuals)

    def __len__(self) -> int:
        return len(self.residuals)

    def __getitem__(self, place: int) -> Residual:
        return self.residuals[place]

    @property
    def bytes(self) -> int:
        """The bytes of all residuals."""
        return sum(r.bytes for r in self.residuals)

    def __str__(self) -> str:
        total = f"{number_of(len(self), 'residual')}, {self.bytes:,} bytes"
        return "\n".join([*map(str, self.residuals), total])

    __repr__ = __str__


@trace.boundary
def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> SavedResiduals:
    """The residuals of the derivative of `f` with respect to all its floating arguments: what it saves between its
    two passes.

    All arguments are traced: close over static ones, as in `lambda x: f(x, "mean")`. Saved arguments of `f` are listed
    too; a residual of each step of a loop is one stacked array. The list describes the jaxpr;
    `jit(f).lower(...).compile().memory_analysis()` reports the memory that XLA allocates.

    >>> import fiveloop.numpy as fnp
    >>> kept = saved_residuals(lambda x: fnp.sin(x) * x, 1.0)
    >>> [(r.origin, *[need.primitive for need in r.needed_by]) for r in kept]
    [('result of cos', 'mul'), ('argument `x`', 'mul'), ('result of sin', 'mul')]
    """
    return halves_of("saved_residuals", f, *args, **kwargs).residuals()


@dataclass(frozen=True)
class Halves:
    """A function's derivative in two: `known` gives the results and residuals, `linear` goes on from these.

    known  : [*ins]                  -> [*outs, *residuals]
    linear : [*residuals, *in_dots]  -> [*out_dots]

    `flops_again` are the operations that both do, `time` the estimated nanoseconds of both passes, but for
    those to write and read what is kept.
    """

    known: Jaxpr
    linear: Jaxpr
    num_res: int
    names: Sequence[str]
    flops_again: int
    time: float

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments in which the derivative is taken, a tree of several arrays as one."""
        pairs = zip(self.known.in_avals, self.names, strict=True)
        paths = [name for a, name in pairs if a.differentiable and name != CLOSED_OVER]
        return tuple(dict.fromkeys(_ARGUMENT.findall(" ".join(paths))))

    @property
    def kept(self) -> tuple[ir.Atom, ...]:
        """The residuals, as the known half makes them."""
        return self.known.outvars[len(self.known.outvars) - self.num_res :]

    @cached_property
    def back(self) -> Jaxpr:
        """The backward pass: [*residuals, *cts] -> [*in_cts]."""
        mask = (False,) * self.num_res + (True,) * (len(self.linear.invars) - self.num_res)
        return transforms.transpose_jaxpr(self.linear, mask, (True,) * len(self.linear.outvars))[0]

    @cached_property
    def used(self) -> util.Mask:
        """Which residuals the backward pass uses: all, but for those that a custom rule takes for forward mode."""
        everything = (True,) * self.num_res
        if not any(prim.holds_functions for prim in ir.primitives_in(self.linear)):
            return everything
        try:
            back = self.back
        except Exception:  # a rule that needs the elements of its residuals cannot be traced
            return everything
        return transforms.dce(back, (True,) * len(back.outvars), keep_ins=False)[1][: self.num_res]

    @property
    def made(self) -> int:
        """The bytes of the residuals that are no arguments."""
        made = {v for eqn in self.known.eqns for v in eqn.outvars}
        kept = util.select_by(self.used, self.kept)
        return prims.bytes_of([a.aval for a in kept if a in made])

    def both_passes(self) -> Jaxpr:
        """The forward and then the backward pass as one jaxpr: [*ins, *cts] -> [*outs, *in_cts]."""
        cts = [ir.Var(a) for a in self.back.in_avals[self.num_res :]]
        eqns, grads = ir.inlined(self.back, [*self.kept, *cts])
        outs = self.known.outvars[: len(self.known.outvars) - self.num_res]
        return Jaxpr([*self.known.invars, *cts], [*self.known.eqns, *eqns], [*outs, *grads])

    def residuals(self) -> SavedResiduals:
        """The residuals with all that is known of them."""
        kept = util.select_by(self.used, self.kept)
        binders = util.select_by(self.used, self.linear.invars[: self.num_res])
        makers = [_maker(self.known, atom) for atom in kept]
        again = _Again({v for m in makers if m for v in m.eqn.outvars})
        linear = [k >= self.num_res for k in range(len(self.linear.invars))]
        uses = _Uses(self.linear, linear)
        found = [
            self._residual(atom, made, [*uses.needs(binder)], again)
            for atom, made, binder in zip(kept, makers, binders, strict=True)
        ]
        return SavedResiduals(tuple(found))

    def _residual(
        self, atom: ir.Atom, made: Maker | None, uses: Sequence[_Use], again: _Again
    ) -> Residual:
        needs = tuple(dict.fromkeys(need for need, _ in uses))
        if made is None:
            literal = isinstance(atom, ir.Literal)
            origin = "a constant" if literal else self.names[self.known.invars.index(atom)]
            return Residual(atom.aval, origin, None, needed_by=needs, reason="in memory anyway")
        trips = _trips(atom, made)
        origin, made, (policy, verdict, reason) = _explained(made, uses)
        return Residual(
            atom.aval,
            origin,
            made.eqn.source,
            made.path,
            next(iter(made.labels), ""),
            trips,
            needs,
            policy,
            verdict,
            reason,
            trips * again.flops(made),
        )


def halves_of(where: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Halves:
    """The two halves of the derivative of `f` in all its floating arguments."""
    jaxpr, names = staged(where, f, *args, **kwargs)
    return split_in_halves(jaxpr, names)


def staged(where: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Jaxpr, list[str]]:
    """A function as a jaxpr, and what its inputs are called."""
    flatten.check_callable(where, f)
    found, _, _ = with_labels(lambda: staging.stage_user(f, args, kwargs))
    ref = next((a for a in found.jaxpr.out_avals if a.accumulates), None)
    if ref is not None:
        raise TypeError(
            f"{where} of {flatten.function_name(f)}: its results must be arrays or scalars, got {ref}; return what is "
            "read of the Ref: `ref[...]`"
        )
    paths = [_argument(f, path) for path, _ in pytree.tree_flatten_with_path((args, kwargs))[0]]
    return found.jaxpr, [*[CLOSED_OVER] * len(found.captured), *paths]


def split_in_halves(jaxpr: Jaxpr, names: Sequence[str]) -> Halves:
    """The two halves of the derivative of a jaxpr in those of its inputs that are floating arguments."""
    nonzero = tuple(
        a.differentiable and name != CLOSED_OVER
        for a, name in zip(jaxpr.in_avals, names, strict=True)
    )
    known, linear, _, num_res = transforms.linearize_jaxpr(jaxpr, nonzero)
    whole, _ = transforms.jvp_jaxpr(jaxpr, nonzero)
    whole, _ = transforms.dce(whole, (True,) * len(whole.outvars))
    halves = Halves(known, linear, num_res, names, 0, 0.0)
    counted = _count_again(halves, whole, 1, 1)
    again = _count_again(halves, whole, transforms.LIGHT, transforms.OPEN)
    return replace(halves, flops_again=counted, time=transforms.gradient_time(whole, again, 0))


def _count_again(halves: Halves, whole: Jaxpr, light: float, steps: int) -> int:
    """The operations that both halves do; `whole` does all of them once. `light` and `steps` are as for operations."""

    def count(jaxpr: Jaxpr) -> int:
        return int(transforms.operations_of(jaxpr, light, steps))

    ahead = _count_ahead(halves.linear, light, steps)
    # Going ahead to a later state, the backward pass computes no tangents.
    tangents = ahead - _count_ahead(halves.back, light, steps) if ahead else 0
    return max(count(halves.known) + count(halves.linear) - tangents - count(whole), 0)


def _count_ahead(jaxpr: Jaxpr, light: float, steps: int) -> int:
    """The operations of the steps that loops with a few saved states make ahead to the other states."""
    total = 0
    for eqn in jaxpr.eqns:
        bodies = rules.bodies_of(eqn)
        goes_ahead = any(b.slots for b in bodies)
        for body in bodies:
            trips = body.trips * (steps if body.open else 1)
            if goes_ahead and not body.slots:
                total += trips * int(transforms.operations_of(body.jaxpr, light, steps))
            else:
                total += trips * _count_ahead(body.jaxpr, light, steps)
    return total


CLOSED_OVER = "closed-over value"
_ARGUMENT = re.compile(r"argument (`[^`]*`|[0-9]+)")


def _argument(f: Callable[..., Any], path: Any) -> str:
    """An argument as its user knows it; `path` leads from the pair of positional and named arguments."""
    kind, first, *inner = path
    called = flatten.argument_name(f, first.idx) if kind.idx == 0 else f"`{first.key}`"
    return f"argument {called}{pytree.keystr(tuple(inner))}"


def _maker(known: Jaxpr, atom: ir.Atom) -> Maker | None:
    """What makes a residual; None if it is an input or a constant."""
    eqn = ir.maker(atom, ir.makers(known))
    if eqn is not None and eqn.primitive is prims.to_memory_p:
        return _maker(known, eqn.invars[0])
    return None if eqn is None else maker_of(eqn, eqn.outvars.index(atom), known)


def _origin(made: Maker) -> tuple[str, Maker]:
    """What a value is, and what makes it.

    What a loop's body reads of its carry is what the step before has made; elsewhere a Ref holds what was written last.
    """
    eqn, jaxpr = made.eqn, made.jaxpr
    read = [a for a in eqn.invars if a.aval.accumulates]
    if eqn.effects and read and jaxpr is not None and read[0] in ir.mutated(jaxpr):
        in_loop = any(body.role == "loop" for _, body in made.around)
        before = jaxpr if in_loop else jaxpr.replace(eqns=jaxpr.eqns[: jaxpr.eqns.index(eqn)])
        writer = maker_in(before, read[0])
        if writer is not None and _size(writer.eqn) == _size(eqn):
            outer = replace(writer, around=(*made.around, *writer.around))
            return f"{'carry, ' if in_loop else ''}{_origin_of(writer)}", outer
    return _origin_of(made), made


def _origin_of(made: Maker) -> str:
    """What makes a value: an equation, or one of several where branches differ."""
    eqns = (made.eqn, *made.others)
    told = [
        f"named {e.params.name!r}" if e.primitive is name_p else f"result of {e.primitive}"
        for e in eqns
    ]
    return " or ".join(dict.fromkeys(told)).replace(" or result of ", " or ")


def _explained(read: Maker, uses: Sequence[_Use]) -> tuple[str, Maker, tuple[str, str, str]]:
    """What a value is, what makes it, and what `_judged` says of that."""
    origin, made = _origin(read)
    carried = "carry" in origin
    judged = _judged(made, uses, is_result=not carried)
    if judged[1] == "offload":  # a carry is moved if that is said where it is read
        judged = _judged(read, uses)
    labelled = _labelled(made) if judged[1] == "recompute" else None
    if labelled is not None and _judged(labelled, uses)[1] != "recompute":
        return _origin_of(labelled), labelled, _judged(labelled, uses)
    starts_again = carried or any(need.again for need, _ in uses)
    if judged[2] == _STARTS and read.eqn.effects and not starts_again:
        judged = *judged[:2], "its Ref may have changed by then"
    return origin, made, judged


def _labelled(made: Maker) -> Maker | None:
    """What makes the value that a label is on, if this is a label: the two are one array."""
    if made.eqn.primitive is not name_p or made.jaxpr is None:
        return None
    inner = maker_in(made.jaxpr, made.eqn.invars[0])
    return inner and replace(inner, around=(*made.around, *inner.around))


def _size(eqn: ir.Eqn) -> ir.Dim:
    """The elements of the largest result of an equation."""
    return max([ir.size_of(v.aval.shape) for v in eqn.outvars], default=0)


def _trips(atom: ir.Atom, made: Maker) -> int:
    """How many steps a residual is stacked over: 1 if it has the size of what one step makes."""
    stacked = ir.size_of(atom.aval.shape) == made.trips * _size(made.eqn)
    return made.trips if stacked else 1


_STARTS = "recomputation starts from it"


def _judged(made: Maker, uses: Sequence[_Use], *, is_result: bool = True) -> tuple[str, str, str]:
    """The policy around an equation, its verdict, and why the result is kept.

    A result of a checkpoint that is needed only outside is kept there, whatever that checkpoint says. If the value
    `is_result` of the loops, branches and calls around the equation, the policy may save it as theirs.
    """
    at = frozenset[object]().union(*[origins for _, origins in uses])
    places = [
        k
        for k, (eqn, body) in enumerate(made.around)
        if eqn.primitive is checkpoint_p and body.origin in at
    ]
    here = [made.around[k][0] for k in places]
    around = [eqn.params.policy for eqn in here]
    in_loop = any(body.role == "loop" for _, body in made.around[max(places, default=0) :])
    in_body = any(body.role in ("loop", "branch") for _, body in made.around)
    policy = reduce(lambda outer, inner: both_save(inner, outer), around) if around else _DEFAULT
    budgets = [by_budget for eqn in here if (by_budget := _by_budget(eqn, made))]
    name = budgets[0] if budgets else policies.as_written(policy)
    plan = transforms.SavingPlan(policy)
    makers = [made, *(made.callers(max(places)) if around and is_result else ())]
    verdicts = [maker.verdict(plan) for maker in makers]
    verdict = next((v for v in verdicts if v.saves), verdicts[0])
    kind = "save" if isinstance(verdict, rules.Weigh) else verdict.kind
    again = any(need.again for need, _ in uses)
    if around and not verdict.saves and not again and in_loop:
        return name, kind, "its loop does not run again"
    if not verdict.saves if around else again:
        return name if around else "", kind, _STARTS
    if not around and not in_body:
        made_within = any(e.primitive is checkpoint_p for e, _ in made.around)
        outside = "needed outside the checkpoint" if made_within else "no checkpoint is around"
        return "", "save", outside
    return name, kind, verdict.reason or "the policy says so"


def _by_budget(eqn: ir.Eqn, made: Maker) -> str:
    """What decides in a checkpoint with a budget: the policy beside it if that saves, else the budget; or empty."""
    choice = choice_of(eqn)
    if choice is None:
        return ""
    policy = eqn.params.policy
    given = policy.policies[0] if isinstance(policy, transforms.FirstOf) else None
    if given is not None and made.verdict(transforms.SavingPlan(given)).saves:
        return policies.as_written(given)
    return f"budget {choice.budget}"


def choice_of(eqn: ir.Eqn) -> Choice | None:
    """What the budget of a checkpoint came to; None if it had none, or it is no checkpoint."""
    params = eqn.params
    return params.choice if isinstance(params, CheckpointParams) else None


def choices_in(jaxpr: Jaxpr) -> tuple[Choice, ...]:
    """What the budgets in a jaxpr came to."""
    found: dict[Choice, None] = {}
    for eqn in jaxpr.eqns:
        choice = choice_of(eqn)
        found |= dict.fromkeys([choice] if choice else [])
        for body in rules.bodies_of(eqn):
            found |= dict.fromkeys(choices_in(body.jaxpr))
    return tuple(found)


_DEFAULT = transforms.MinimumCut()


class _Again:
    """The operations from what is at hand, and what is given to a body, to each value that the body makes."""

    def __init__(self, at_hand: set[ir.Var]) -> None:
        self.at_hand = at_hand
        self._behind: dict[Jaxpr, tuple[dict[ir.Eqn, int], np.ndarray]] = {}

    def flops(self, made: Maker) -> int:
        """The operations to make a value."""
        if made.jaxpr is None:
            return transforms.equation_cost(made.eqn).flops
        if made.jaxpr not in self._behind:
            self._behind[made.jaxpr] = self._all_behind(made.jaxpr)
        behind, flops = self._behind[made.jaxpr]
        size = -(-len(flops) // 8)
        octets = np.frombuffer(behind[made.eqn].to_bytes(size, "little"), np.uint8)
        bits = np.unpackbits(octets, count=len(flops), bitorder="little")
        return int(flops[bits.astype(bool)].sum())

    def _all_behind(self, jaxpr: Jaxpr) -> tuple[dict[ir.Eqn, int], np.ndarray]:
        """For each equation those that are computed again for it, as bits, and the operations of each."""
        makers, behind = ir.makers(jaxpr), dict[ir.Eqn, int]()
        for k, eqn in enumerate(jaxpr.eqns):
            found = 1 << k
            for made in map(makers.get, ir.used_vars(eqn.invars)):
                if made is not None and self.at_hand.isdisjoint(made.outvars):
                    found |= behind[made]
            behind[eqn] = found
        return behind, np.array([transforms.equation_cost(e).flops for e in jaxpr.eqns])


_Use: TypeAlias = tuple[Need, frozenset[object]]
"""An equation that uses a residual, and the checkpoints that hold it."""


class _Uses:
    """Who needs the values of a jaxpr, at any depth and through what only hands them on.

    `linear` inputs lead to what is not computed again.
    """

    def __init__(self, jaxpr: Jaxpr, linear: Sequence[bool]) -> None:
        self.users, self.outvars = ir.users(jaxpr), jaxpr.outvars
        self.late = ir.reachable(jaxpr, util.select_by(linear, jaxpr.invars))
        self._given: dict[ir.Eqn, dict[ir.Atom, list[tuple[_Uses, ir.Var, rules.Body]]]] = {}

    def needs(
        self, v: ir.Var, within: bool = False, around: frozenset[object] = frozenset()
    ) -> Iterator[_Use]:
        """The equations that use a value; `within` says that it is one of a call that computes again."""
        for eqn in self.users.get(v, ()):
            bodies = [body for body in rules.bodies_of(eqn) if body.plain]
            given = max((len(body.jaxpr.invars) for body in bodies), default=0)
            for uses, binder, body in self.given(eqn, bodies).get(v, ()):
                again = eqn.primitive is checkpoint_p and eqn.params.recomputes
                yield from uses.needs(binder, within or again, around | {body.origin})
                for k in uses.returns(binder) if body.role not in ("loop", "condition") else ():
                    yield from self.needs(eqn.outvars[k], within, around)
            # The operands that no body gets, such as the index of a branch.
            own = eqn.invars[: max(len(eqn.invars) - given, 0)]
            if not bodies and _hands_on(eqn):
                for out in eqn.outvars:
                    yield from self.needs(out, within, around)
            elif v in own:
                again = within and self.late.isdisjoint([*eqn.outvars, *ir.changed_refs(eqn)])
                yield Need(eqn.primitive.name, eqn.source, again), around

    def returns(self, v: ir.Var) -> Iterator[int]:
        """The positions of the results that are a value, or what hands it on."""
        yield from (k for k, out in enumerate(self.outvars) if out is v)
        for eqn in self.users.get(v, ()):
            if not rules.bodies_of(eqn) and _hands_on(eqn):
                for out in eqn.outvars:
                    yield from self.returns(out)

    def given(
        self, eqn: ir.Eqn, bodies: Sequence[rules.Body]
    ) -> dict[ir.Atom, list[tuple[_Uses, ir.Var, rules.Body]]]:
        """For each operand the binders that it gets in bodies."""
        if eqn not in self._given:
            found = self._given[eqn] = {}
            for body in bodies:
                pairs = [*zip(reversed(body.jaxpr.invars), reversed(eqn.invars), strict=False)]
                after = {binder for binder, operand in pairs if operand in self.late}
                uses = _Uses(body.jaxpr, [binder in after for binder in body.jaxpr.invars])
                for binder, operand in pairs:
                    found.setdefault(operand, []).append((uses, binder, body))
        return self._given[eqn]


def _hands_on(eqn: ir.Eqn) -> bool:
    """Whether an equation only picks or rearranges elements, or reads them from a Ref."""
    picks = (
        eqn.primitive in (name_p, prims.take_p, prims.to_memory_p) or eqn.primitive.creates_state
    )
    return picks or rules.is_view(eqn) or bool(eqn.effects and not ir.changed_refs(eqn))
