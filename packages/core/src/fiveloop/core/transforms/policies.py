"""Policies: what a derivative saves. A policy judges one equation at a time, and may be any callable.

Policies defined here have value equality, so that a plan made under a policy is found again under an equal policy.
They compose: `p | q` saves what either saves, `p & q` what both save, and `~p` what `p` does not. A saving plan decides
about each known value that the staged half needs, under a policy.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fiveloop.core import errors, ir, prims, rules, trace, util
from fiveloop.core.dataclass import dataclass, fields, is_dataclass, replace
from fiveloop.core.transforms.cost import equation_cost
from fiveloop.core.transforms.eval import happens_once
from fiveloop.core.util import P, R

MEMORY_COST = 12.0
"""What a byte kept costs, in operations: it is written to memory that is touched for the first time, and read once.

Measured on a CPU: an element of four bytes takes about a nanosecond on its way there and back, the time of ten
additions. Five times that is paid, because the memory itself is what a long loop runs out of.
"""

COMPUTE_COST = 1.0
"""The cost of recomputing one operation: the unit of costs."""

SHARE = 0.5
"""The share of a body's cost that one chain of recomputed equations may have at most."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An equation whose results could be saved, as a policy sees it.

    `names` are the labels of its results (`checkpoint_name`), `path` the primitives of the loops, branches and calls
    around it, the outermost first.
    """

    eqn: ir.Eqn
    names: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    @property
    def primitive(self) -> ir.Primitive[Any]:
        """What is computed; `primitive.name` is its name in a printed jaxpr."""
        return self.eqn.primitive

    @property
    def params(self) -> Any:
        """The equation's parameters."""
        return self.eqn.params

    @property
    def in_avals(self) -> tuple[ir.Aval, ...]:
        """The types of the operands."""
        return tuple(a.aval for a in self.eqn.invars)

    @property
    def out_avals(self) -> tuple[ir.Aval, ...]:
        """The types of the results."""
        return tuple(v.aval for v in self.eqn.outvars)

    @property
    def bytes(self) -> int:
        """The size of the results, each time the equation runs."""
        return int(prims.bytes_of([a for a in self.out_avals if not a.accumulates]))

    @property
    def flops(self) -> int:
        """An estimate of the operations, each time the equation runs."""
        return equation_cost(self.eqn).flops

    @property
    def source(self) -> ir.Source | None:
        """The line of the program that made the equation, if known."""
        return self.eqn.source


Answer: TypeAlias = rules.Verdict | bool | None
Policy: TypeAlias = Callable[[Candidate], Answer]


def answer_of(policy: Policy, candidate: Candidate) -> rules.Verdict | None:
    """The verdict of a policy on an equation; None if it has no opinion."""
    try:
        answer = policy(candidate)
    except Exception as error:
        if isinstance(policy, _Several | Complement | Plainly) and errors.is_located(error):
            raise  # It is about one of the policies within.
        raise errors.PolicyError(
            f"the checkpoint policy {_called(policy)} raised {type(error).__name__}: {errors.unlocated(error)}; it was "
            f"asked about an equation of `{candidate.primitive}`{errors.at_source(candidate.source)}"
        ) from error
    if answer is None or isinstance(answer, rules.Verdict):
        return answer
    if isinstance(answer, bool | np.bool_):
        return rules.SAVE if answer else rules.RECOMPUTE
    raise TypeError(
        f"a checkpoint policy must return a Verdict (SAVE, RECOMPUTE, Offload(), PREFER_SAVE, PREFER_RECOMPUTE), "
        f"a bool or None; {_called(policy)} returned {answer!r} for an equation of "
        f"`{candidate.primitive}`{errors.at_source(candidate.source)}"
    )


_OTHER = "a policy beside `|` or `&`"


def policy_maker(fun: Callable[P, R]) -> Callable[P, R]:
    """A public function that makes policies; in the place of one it is refused, with the advice to call it."""
    made = trace.boundary(fun)
    made.makes_policies = True  # type: ignore[attr-defined]  # a function may have attributes
    return made


def _is(policy: object, kind: type) -> bool:
    """Whether something is a value of a type, or the type itself or one below it."""
    return isinstance(policy, kind) or (isinstance(policy, type) and issubclass(policy, kind))


def as_policy(where: str, policy: Policy) -> Policy:
    """A policy that judges candidates; TypeError if it takes neither these nor `(primitive, *avals, **params)`."""
    is_verdict = _is(policy, rules.Verdict)
    hint = "; a verdict is what a policy returns, as in `lambda eqn: SAVE`" if is_verdict else ""
    if is_verdict or not callable(policy):
        raise TypeError(
            f"{where} must be callable on an equation, as those in `fiveloop.remat.policies` are, got {policy!r}"
            f"{hint}"
        )
    try:
        hash(policy)
    except TypeError as error:
        raise TypeError(
            f"{where} must be hashable, as plans are found again by their policies, got {policy!r}: "
            f"{errors.unlocated(error)}; give {type(policy).__name__} a `__hash__` beside its `__eq__`"
        ) from error
    if isinstance(policy, Composable):
        return policy
    if _is(policy, Composable) or getattr(policy, "makes_policies", False):
        name = getattr(policy, "__name__", repr(policy))
        raise TypeError(
            f"{where}: `{name}` makes a policy and must be called: `{name}{_plain_signature(policy)}`"
        )
    try:
        signature = inspect.signature(policy)
    except (TypeError, ValueError):
        return policy
    kinds = {p.kind for p in signature.parameters.values()}
    several = inspect.Parameter.VAR_POSITIONAL in kinds
    if not (inspect.Parameter.VAR_KEYWORD in kinds if several else _takes_one(signature)):
        raise TypeError(
            f"{where} must take one equation, or be of the form (primitive, *avals, **params); {_called(policy)} takes "
            f"{signature}; if it makes a policy, call it"
        )
    if several and _selects_by_primitives_of_jax(policy):
        raise TypeError(
            f"{where} is one of jax's, which looks for primitives of jax and would select nothing here, got "
            f"{policy!r}; use the policy of the same name in `fiveloop.remat.policies`"
        )
    policy = trace.first_equal(policy)
    return OfPrimitive(policy) if several else policy


def _selects_by_primitives_of_jax(policy: Policy) -> bool:
    """Whether a policy is one of jax's own that depends on the primitive: all but two."""
    name = getattr(policy, "__qualname__", "")
    is_jax = (getattr(policy, "__module__", None) or "").startswith("jax.")
    return is_jax and name not in ("everything_saveable", "nothing_saveable")


def _plain_signature(fun: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function without types."""
    none = inspect.Parameter.empty
    given = inspect.signature(fun).parameters.values()
    return inspect.Signature([p.replace(annotation=none) for p in given])


def _takes_one(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _called(policy: Policy) -> str:
    """A policy as messages name it: a function by its name and where it was defined."""
    fun = policy.fun if isinstance(policy, OfPrimitive) else policy
    return repr(fun) if isinstance(fun, Composable) else f"`{ir.function_source(fun)}`"


class Composable:
    """A policy with the operators `|`, `&` and `~`."""

    weighs: ClassVar[bool] = False

    def __call__(self, eqn: Candidate) -> Answer:
        """The verdict on an equation; None if the policy has no opinion of it."""
        raise TypeError(f"{type(self).__name__} must define __call__")

    @trace.boundary
    def __or__(self, other: Policy) -> Composable:
        return AnyOf((self, as_policy(_OTHER, other)))

    @trace.boundary
    def __ror__(self, other: Policy) -> Composable:
        return AnyOf((as_policy(_OTHER, other), self))

    @trace.boundary
    def __and__(self, other: Policy) -> Composable:
        return AllOf((self, as_policy(_OTHER, other)))

    @trace.boundary
    def __rand__(self, other: Policy) -> Composable:
        return AllOf((as_policy(_OTHER, other), self))

    def __invert__(self) -> Composable:
        return Complement(self)


@dataclass(frozen=True)
class EverythingSaveable(Composable):
    """Save all values that the backward pass uses."""

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        return rules.SAVE


@dataclass(frozen=True)
class NothingSaveable(Composable):
    """Save nothing but the arguments; recompute the rest."""

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        return rules.RECOMPUTE


@dataclass(frozen=True)
class MinimumCut(Composable):
    """The policy that minimises the cost of saved bytes plus the cost of recomputed operations.

    It may save an operand in place of several results, and recompute light equations: those whose `cost` says that they
    are cheap to recompute; contractions, reductions, sorts, gathers and loops are not. A chain of them may cost at most
    `share` of the whole body. It never saves more bytes than saving everything would.

    >>> MinimumCut() == MinimumCut(memory_cost=12.0)
    True
    """

    memory_cost: float = MEMORY_COST
    compute_cost: float = COMPUTE_COST
    share: float = SHARE
    weighs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("memory_cost", "compute_cost", "share"):
            price = getattr(self, name)
            is_real = isinstance(price, Real) and not isinstance(price, bool)
            if not is_real or not 0 <= price <= sys.float_info.max:
                raise (ValueError if is_real else TypeError)(
                    f"MinimumCut: {name} must be a finite number that is not negative, got {price!r}"
                    f"{errors.at_source(ir.user_source())}"
                )

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        return self._verdict

    @cached_property
    def _verdict(self) -> rules.Verdict:
        return rules.Weigh(
            memory_cost=self.memory_cost, compute_cost=self.compute_cost, share=self.share
        )


def may_weigh(policy: Policy) -> bool:
    """Whether a policy may leave values to a cut; a policy that never does may declare `weighs = False`."""
    return bool(getattr(policy, "weighs", True))


def _strength(verdict: rules.Verdict | None) -> tuple[float, ...]:
    """How much a verdict is for saving: on the device most, in another memory less, as a preference still less.

    Of preferences, one by which a byte kept costs less is more for it. Least is to save a few states of a loop.
    """
    if isinstance(verdict, rules.Slots):
        return (-1,)
    if verdict is None or not verdict.saves:
        return (0,)
    if isinstance(verdict, rules.Weigh):
        return 1, -verdict.memory_cost, verdict.compute_cost, -verdict.share
    return (2,) if isinstance(verdict, rules.Offload) else (3,)


@dataclass(frozen=True)
class _Several(Composable):
    """A policy made of others."""

    policies: tuple[Policy, ...]

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        """Whether one of them may leave something to a cut."""
        return any(map(may_weigh, self.policies))

    def answers(self, eqn: Candidate) -> list[rules.Verdict | None]:
        """What each of them says."""
        return [answer_of(p, eqn) for p in self.policies]


@dataclass(frozen=True)
class AnyOf(_Several):
    """`p | q`: save what either policy saves; where one offloads and the other saves, save on the device.

    Where none saves, a verdict stands before no opinion; so it does in `AllOf`.
    """

    def __call__(self, eqn: Candidate) -> Answer:
        return max(self.answers(eqn), key=lambda a: (_strength(a), a is not None))


@dataclass(frozen=True)
class AllOf(_Several):
    """`p & q`: save what all of the policies save; where one offloads and another saves, offload."""

    def __call__(self, eqn: Candidate) -> Answer:
        return min(self.answers(eqn), key=lambda a: (_strength(a), a is None))


@dataclass(frozen=True)
class FirstOf(_Several):
    """The verdict of the first policy that has an opinion of an equation."""

    def __call__(self, eqn: Candidate) -> Answer:
        return next((a for a in self.answers(eqn) if a is not None), None)


@dataclass(frozen=True)
class Complement(Composable):
    """`~p`: save what the policy recomputes, recompute what it saves or offloads; a preference stays one."""

    policy: Policy

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        """Whether the policy may leave something to a cut."""
        return may_weigh(self.policy)

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        answer = answer_of(self.policy, eqn)
        if isinstance(answer, rules.Weigh):
            return answer
        return rules.SAVE if answer is None or not answer.saves else rules.RECOMPUTE


@dataclass(frozen=True)
class Plainly(Composable):
    """Another policy, but for what it leaves to a cut: that is saved."""

    policy: Policy

    def __call__(self, eqn: Candidate) -> rules.Verdict | None:
        answer = answer_of(self.policy, eqn)
        return rules.SAVE if isinstance(answer, rules.Weigh) else answer


_OF_THE_PEER: dict[str, Any] = {"SaveableType": rules.SAVE, "RecomputeType": rules.RECOMPUTE}
"""Answers of the peer's own types, by the name of the type."""


@dataclass(frozen=True)
class OfPrimitive(Composable):
    """A policy written as a function `(primitive, *avals, **params)`, with the types of the operands."""

    fun: Callable[..., Any]

    def __call__(self, eqn: Candidate) -> Any:
        answer = self.fun(eqn.primitive, *eqn.in_avals, **_params(eqn))
        if type(answer).__name__ == "Offloadable":
            return rules.Offload(answer.src, answer.dst)
        return _OF_THE_PEER.get(type(answer).__name__, answer)


def _params(eqn: Candidate) -> dict[str, Any]:
    """The params of an equation by name; a contraction tells its dimensions as the peer does, too."""
    p = eqn.params
    found = {f.name: getattr(p, f.name) for f in fields(p)} if is_dataclass(p) else {}
    if eqn.primitive is prims.dot_general_p:
        found["dimension_numbers"] = (p.contract, p.batch)
    return found


Labels: TypeAlias = Mapping[ir.Atom, tuple[str, ...]]
NO_LABELS: Labels = MappingProxyType({})


@ir.once_per_jaxpr
def labels_of(jaxpr: ir.Jaxpr) -> Labels:
    """The labels that a jaxpr gives to its values, directly or through other labels."""
    labels: dict[ir.Atom, tuple[str, ...]] = {}
    for eqn in reversed(jaxpr.eqns):
        label = rules.label_rules.find(eqn.primitive)
        if label is not None:
            (v,), (x,) = eqn.outvars, eqn.invars
            labels[v] = (label(eqn.params), *labels.get(v, ()))
            labels[x] = (*labels[v], *labels.get(x, ()))
    return labels | _labels_of_carries(jaxpr, labels) or NO_LABELS


def _labels_of_carries(jaxpr: ir.Jaxpr, labels: Labels) -> dict[ir.Atom, tuple[str, ...]]:
    """The labels of what is read whole of Refs from outside, as a step of a loop reads what the step before wrote."""
    carried: dict[ir.Var, tuple[str, ...]] = {}
    makers = ir.makers(jaxpr)
    refs = ir.mutated(jaxpr).intersection(jaxpr.invars)
    for eqn in jaxpr.eqns if refs else ():
        for ref in ir.changed_refs(eqn) & refs:
            for x in eqn.invars:
                made = ir.maker(x, makers)
                if made is not None and x.aval.shape == ref.aval.shape:
                    carried[ref] = labels.get(x, ()) or labels_within(made)[x]
    return {
        v: carried[ref]
        for eqn in jaxpr.eqns
        if carried and eqn.effects and not ir.changed_refs(eqn)
        for ref in ir.touched_refs(eqn)
        for v in eqn.outvars
        if carried.get(ref) and v not in labels and v.aval.shape == ref.aval.shape
    }


def labels_within(eqn: ir.Eqn) -> Labels:
    """The labels that the results of an equation have in the calls and branches that make them."""
    found: dict[ir.Atom, tuple[str, ...]] = dict.fromkeys(eqn.outvars, ())
    for body in rules.plain_bodies(eqn.primitive, eqn.params):
        if body.role != "loop":
            for v, names in zip(eqn.outvars, _labels_of_results(body.jaxpr), strict=False):
                found[v] = (*found[v], *names)
    return found


@ir.once_per_jaxpr
def _labels_of_results(jaxpr: ir.Jaxpr) -> list[tuple[str, ...]]:
    labels, makers = labels_of(jaxpr), ir.makers(jaxpr)
    found = []
    for a in jaxpr.outvars:
        eqn = ir.maker(a, makers)
        found.append(labels.get(a, ()) or (labels_within(eqn)[a] if eqn else ()))
    return found


@dataclass(frozen=True)
class SavingPlan:
    """The verdicts of a policy. The plan keeps them legal: an effect that may not run again is never recomputed.

    `cuts`: a minimum cut decides where the policy does not; in straight-line code such values are saved, since XLA
    merges a recomputation there with the original. `body_work` is the work of the whole body in which the cut is made,
    of which only a share may be computed again; None means the work of the split jaxpr. `kept_out` says which results
    of the split equation are kept in any case; empty if none is. `path` leads to the jaxpr: the primitives of the
    equations that hold it. With `parts`, the staged half need only have a transpose: a loop that changes nothing known
    stays whole, and computes known values in each step; so do branches without known results.

    >>> plan = SavingPlan(lambda eqn: eqn.primitive.name == "mul")
    >>> [plan.verdict(eqn).kind for eqn in make_jaxpr(lambda x: x * x + x)(2.0).eqns]
    ['save', 'recompute']
    """

    policy: Policy
    cuts: bool = False
    body_work: int | None = None
    kept_out: util.Mask = ()
    path: tuple[str, ...] = ()
    parts: bool = False

    def verdict(self, eqn: ir.Eqn, labels: Labels = NO_LABELS) -> rules.Verdict:
        """Whether an equation's results may be saved, or are to be computed again; `labels` are those of the jaxpr."""
        if happens_once(eqn):
            return rules.Verdict("save", "its effects must not happen twice")
        names = tuple([name for v in eqn.outvars for name in labels.get(v, ())]) if labels else ()
        answer = answer_of(self.policy, Candidate(eqn, names, self.path))
        return rules.RECOMPUTE if answer is None else answer

    def saves_within(self, eqn: ir.Eqn, labels: Labels = NO_LABELS) -> bool:
        """Whether an equation's results, or any value in the jaxprs that it holds, may be saved."""
        if self.verdict(eqn, labels).saves:
            return True
        bodies = ir.jaxprs_in(eqn.params)
        return bool(bodies) and any(map(self.within(eqn)._saves_in, bodies))

    @ir.once_per(lambda self, jaxpr: (jaxpr, self.policy, self.path))
    def _saves_in(self, jaxpr: ir.Jaxpr) -> bool:
        own = labels_of(jaxpr)
        return any(self.saves_within(e, own) for e in jaxpr.eqns)

    def saves_results(self, eqn: ir.Eqn) -> bool:
        """Whether all results of a call or of branches may be saved, by the labels that they have within."""
        labels = labels_within(eqn)
        return all(self.verdict(eqn, {v: names}).saves for v, names in labels.items())

    def within(self, eqn: ir.Eqn) -> SavingPlan:
        """The plan for the bodies of an equation."""
        return replace(self, path=(*self.path, eqn.primitive.name))

    def outside(self) -> SavingPlan:
        """The plan for the equation around the jaxpr of this plan: the inverse of `within`."""
        return replace(self, path=self.path[:-1])

    def at_boundary(self, work: int | None = None) -> SavingPlan:
        """The plan for a body whose residuals leave it (a loop's, a branch's) and for what it calls."""
        if not may_weigh(self.policy):
            return self
        work = self.body_work if work is None else work
        return replace(self, cuts=True, body_work=work, kept_out=())

    def plainly(self) -> SavingPlan:
        """The plan that makes no cut, neither here nor in inner bodies."""
        if not may_weigh(self.policy):
            return self
        if isinstance(self.policy, MinimumCut):
            return SavingPlan(EverythingSaveable())
        return SavingPlan(Plainly(self.policy), path=self.path)


SAVE_EVERYTHING = SavingPlan(EverythingSaveable())
SAVE_NOTHING = SavingPlan(NothingSaveable())
DEFAULT_PLAN = SavingPlan(MinimumCut())
"""What linearisation saves unless told otherwise: everything in straight-line code, in loops and branches a cut."""
