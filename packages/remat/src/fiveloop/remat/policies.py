"""Policies of checkpoints: each decides for one equation whether its results are saved; policies can be compared.

A policy may also be any function of an equation; one that is made anew at each call is the same policy if its code and
all that it can reach are equal and cannot change.
The equation has `primitive`, `params`, `in_avals`, `out_avals`, `names` (labels of its results), `path` (the
primitives around it), `bytes`, `flops` and `source`. The answer is a verdict (`SAVE`, `RECOMPUTE`, `Offload()`,
`PREFER_SAVE`, `PREFER_RECOMPUTE`), a bool (save?), or None: no opinion, which recomputes. A function of the form
`(primitive, *avals, **params)` is taken, too.

Policies compose: `p | q` saves what either saves, `p & q` what both save, `~p` what `p` does not, and `first_of(p, q)`
follows the first that has an opinion. A policy that selects certain values has no opinion of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

from fiveloop.core import ir, prims, rules, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.core.rules import RECOMPUTE, SAVE, Offload
from fiveloop.core.transforms import Candidate

__all__ = [
    "Candidate",
    "Offload",
    "PREFER_RECOMPUTE",
    "PREFER_SAVE",
    "RECOMPUTE",
    "SAVE",
    "checkpoint_dots",
    "checkpoint_dots_with_no_batch_dims",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
    "first_of",
    "minimum_cut",
    "nothing_saveable",
    "offload_dot_with_no_batch_dims",
    "save_and_offload_only_these_names",
    "save_any_names_but_these",
    "save_anything_except_these_names",
    "save_from_both_policies",
    "save_only_these_names",
]
util.show_public_names(globals())

PREFER_SAVE = rules.Weigh(memory_cost=1.0, share=0.5)
"""A verdict: save, unless one or two operations can recompute the value."""

PREFER_RECOMPUTE = rules.Weigh(memory_cost=1e4, share=1e4)
"""A verdict: recompute, unless that takes a contraction, reduction, sort or loop; then save."""

everything_saveable = transforms.EverythingSaveable()
"""Save all values that the backward pass uses, and recompute nothing; in a loop too, where that is not the default."""

nothing_saveable = transforms.NothingSaveable()
"""Save the arguments alone, and recompute everything; the default of `checkpoint`."""

undecided = transforms.FirstOf(())
"""No opinion of any equation: a budget decides alone."""

minimum_cut = transforms.MinimumCut()
"""Save the values for which saved bytes and recomputed operations cost least: the default outside checkpoints.

`fiveloop.core.MinimumCut(memory_cost=..., compute_cost=..., share=...)` is the same at other prices.
"""


@dataclass(frozen=True)
class CutInBranches(transforms.Composable):
    """Save whatever the backward pass uses; in branches what a minimum cut chooses, as without a checkpoint."""

    weighs: ClassVar[bool] = True

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        return minimum_cut(eqn) if "cond" in eqn.path else SAVE


as_it_is = CutInBranches()
"""What a budget makes of a part that it leaves as it is."""

FEWER = 2
"""A budget saves a few states only of loops that have at least so many times as many steps."""


def steps_of(eqn: ir.Eqn) -> float:
    """How many steps a loop has at most: infinitely many if that is not known; 0 of what is no loop."""
    loops = (b for b in rules.bodies_of(eqn) if b.role == "loop")
    return max((math.inf if b.open else b.trips for b in loops), default=0)


@dataclass(frozen=True)
class Scheduled(transforms.Composable):
    """Reverse loops from a few saved states; save everything else.

    So the values of single steps are not saved. A loop of known length in which the user's policy saves some is left
    as it is. With `taped`, a loop of known length that holds no other saves its states in the forward pass, and no step
    is run more than once again. With `within`, loops within loops save a few states, too.
    """

    slots: int
    given: transforms.Policy | None = None
    taped: bool = False
    within: bool = False

    def __call__(self, eqn: Candidate) -> rules.Verdict:
        steps = steps_of(eqn.eqn)
        if steps < self.slots * FEWER or (steps < math.inf and self._is_told_to_save(eqn)):
            return rules.SAVE
        return rules.Slots(slots=self.slots, tape=self.tape_of(eqn.eqn), within=self.within)

    def tape_of(self, eqn: ir.Eqn) -> int:
        """The residuals of how many steps a loop holds at a time."""
        steps = steps_of(eqn)
        inner = any(rules.holds_loop(b.jaxpr) for b in rules.bodies_of(eqn))
        return -int(-steps // self.slots) if self.taped and not inner and steps < math.inf else 1

    def _is_told_to_save(self, eqn: Candidate) -> bool:
        if self.given is None:
            return False
        return transforms.SavingPlan(self.given, path=eqn.path).saves_within(eqn.eqn)


@dataclass(frozen=True)
class DotsSaveable(transforms.Composable):
    """A verdict, by default to save, for contractions; for those with batch dimensions only if `batched`."""

    batched: bool = True
    verdict: rules.Verdict = SAVE

    def __call__(self, eqn: Candidate) -> rules.Verdict | None:
        is_dot = eqn.primitive is prims.dot_general_p and (self.batched or not eqn.params.batch[0])
        return self.verdict if is_dot else None


dots_saveable = checkpoint_dots = DotsSaveable()
"""Save the results of matrix products, and recompute the rest."""

dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = DotsSaveable(batched=False)
"""Save the results of matrix products without batch dimensions: those with weights, not those of attention."""


@transforms.policy_maker
def offload_dot_with_no_batch_dims(
    offload_src: str = "device", offload_dst: str = "pinned_host"
) -> DotsSaveable:
    """A policy that keeps the results of matrix products without batch dimensions in another memory.

    The states that a loop with `checkpoints=` saves stay in the memory of the device.

    >>> offload_dot_with_no_batch_dims() | save_only_these_names("attention") == dots_saveable
    False
    """
    return DotsSaveable(batched=False, verdict=Offload(offload_src, offload_dst))


@dataclass(frozen=True)
class TheseNames(transforms.Composable):
    """Treat the values labelled by `checkpoint_name` with one of the names by a verdict."""

    names: frozenset[str]
    verdict: rules.Verdict = SAVE

    def __repr__(self) -> str:
        verdict = "" if self.verdict == SAVE else f", verdict={self.verdict!r}"
        return f"{type(self).__name__}(names={_shown(self.names)}{verdict})"

    def __call__(self, eqn: Candidate) -> rules.Verdict | None:
        return None if self.names.isdisjoint(eqn.names) else self.verdict


@dataclass(frozen=True)
class OtherNames(transforms.Composable):
    """Save the values that `checkpoint_name` labels, but for those with one of the names."""

    names: frozenset[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(names={_shown(self.names)})"

    def __call__(self, eqn: Candidate) -> rules.Verdict | None:
        if not self.names.isdisjoint(eqn.names):
            return RECOMPUTE
        return SAVE if eqn.names else None


def _shown(names: frozenset[str]) -> str:
    return f"frozenset({{{_listed(names)}}})"


@transforms.policy_maker
def save_only_these_names(*names: str) -> TheseNames:
    """A policy that saves the values labelled with these names, and nothing else.

    >>> save_only_these_names("attention")
    TheseNames(names=frozenset({'attention'}))
    """
    return TheseNames(_names("save_only_these_names", "names", names))


@transforms.policy_maker
def save_any_names_but_these(*names: str) -> OtherNames:
    """A policy that saves the values that have a label, but for those with one of these names; nothing else.

    >>> save_any_names_but_these("attention")
    OtherNames(names=frozenset({'attention'}))
    """
    return OtherNames(_names("save_any_names_but_these", "names", names))


@transforms.policy_maker
def save_anything_except_these_names(*names: str) -> transforms.Composable:
    """A policy that saves all that the backward pass uses, but for the values labelled with these names.

    >>> from fiveloop.core import grad
    >>> from fiveloop.remat import checkpoint, checkpoint_name, saved_residuals
    >>> import fiveloop.numpy as fnp
    >>> def f(x):
    ...     return fnp.exp(checkpoint_name(fnp.exp(x), "inner"))
    >>> [
    ...     r.origin
    ...     for r in saved_residuals(
    ...         checkpoint(f, policy=save_anything_except_these_names("inner")), 1.0
    ...     )
    ... ]
    ['argument `x`', 'result of exp']
    """
    named = TheseNames(_names("save_anything_except_these_names", "names", names), RECOMPUTE)
    return transforms.FirstOf((named, everything_saveable))


@transforms.policy_maker
def save_and_offload_only_these_names(
    *,
    names_which_can_be_saved: Iterable[str],
    names_which_can_be_offloaded: Iterable[str],
    offload_src: str = "device",
    offload_dst: str = "pinned_host",
) -> transforms.Composable:
    """A policy that saves the values labelled with some names, and keeps those labelled with others in another memory.

    The states that a loop with `checkpoints=` saves stay in the memory of the device.

    >>> policy = save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["carry"], names_which_can_be_offloaded=["hidden"]
    ... )
    """
    where = "save_and_offload_only_these_names"
    saved = _names(where, "names_which_can_be_saved", names_which_can_be_saved)
    moved = _names(where, "names_which_can_be_offloaded", names_which_can_be_offloaded)
    if saved & moved:
        both = ", ".join(map(repr, sorted(saved & moved)))
        raise ValueError(
            f"{where}: a name can be saved or offloaded, and these are given as both: {both}"
        )
    return TheseNames(saved) | TheseNames(moved, Offload(offload_src, offload_dst))


@transforms.policy_maker
def save_from_both_policies(
    policy_1: transforms.Policy, policy_2: transforms.Policy
) -> transforms.Composable:
    """`policy_1 | policy_2`: save what one of them saves.

    >>> save_from_both_policies(dots_saveable, save_only_these_names("a")) == (
    ...     dots_saveable | save_only_these_names("a")
    ... )
    True
    """
    where = "save_from_both_policies"
    return transforms.AnyOf(
        (
            transforms.as_policy(f"{where}: policy_1", policy_1),
            transforms.as_policy(f"{where}: policy_2", policy_2),
        )
    )


@transforms.policy_maker
def first_of(*policies: transforms.Policy) -> transforms.Composable:
    """A policy that follows, for each equation, the first of the policies that has an opinion of it.

    >>> policy = first_of(save_only_these_names("attention"), nothing_saveable)
    """
    return transforms.FirstOf(
        tuple(transforms.as_policy("first_of: a policy", p) for p in policies)
    )


def _names(where: str, argument: str, names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError(
            f"{where}: {argument} must be a sequence of names, got the string {names!r}"
        )
    if not isinstance(names, Iterable):
        raise TypeError(f"{where}: {argument} must be a sequence of names, got {names!r}")
    given = [*names]
    for name in given:
        if not isinstance(name, str):
            raise TypeError(
                f"{where}: expected names as strings, got {name!r}; a list of names is unpacked, as in `(*names)`"
            )
    return frozenset(given)


def names_in(policy: Any) -> frozenset[str]:
    """The names that a policy speaks of."""
    inner = [*getattr(policy, "policies", ()), *filter(None, [getattr(policy, "policy", None)])]
    own = policy.names if isinstance(policy, TheseNames | OtherNames) else frozenset[str]()
    return own.union(*map(names_in, inner))


def as_written(policy: Any) -> str:
    """A policy as a program writes it, for tables; a function by its name.

    >>> as_written(save_only_these_names("a", "b") | ~dots_saveable)
    "save_only_these_names('a', 'b') | ~dots_saveable"
    >>> as_written(first_of(lambda eqn: None, save_anything_except_these_names("a")))
    "first_of(<lambda>, save_anything_except_these_names('a'))"
    """
    known = [name for name in __all__ if globals()[name] == policy]
    if known:
        return known[-1]
    called = _call(policy)
    if called:
        return called
    if isinstance(policy, transforms.Complement):
        return f"~{_operand(policy.policy)}"
    if isinstance(policy, transforms.FirstOf):
        return f"first_of({', '.join(map(as_written, policy.policies))})"
    if isinstance(policy, transforms.AnyOf | transforms.AllOf):
        sign = " | " if isinstance(policy, transforms.AnyOf) else " & "
        return sign.join(map(_operand, policy.policies))
    fun = getattr(policy, "fun", policy)
    return getattr(fun, "__name__", None) or repr(fun)


def _operand(policy: Any) -> str:
    joined = isinstance(policy, transforms.AnyOf | transforms.AllOf) and not _call(policy)
    return f"({as_written(policy)})" if joined else as_written(policy)


def _call(policy: Any) -> str:
    """The call of one of the functions above that makes a policy, or nothing."""
    if isinstance(policy, DotsSaveable):
        return "offload_dot_with_no_batch_dims()"
    if isinstance(policy, OtherNames):
        return f"save_any_names_but_these({_listed(policy.names)})"
    if isinstance(policy, TheseNames):
        return f"save_only_these_names({_listed(policy.names)})"
    names = names_in(policy)
    if names and policy == save_anything_except_these_names(*names):
        return f"save_anything_except_these_names({_listed(names)})"
    if isinstance(policy, transforms.AnyOf):
        saved, moved = policy.policies
        if isinstance(moved, TheseNames) and isinstance(moved.verdict, Offload):
            return (
                f"save_and_offload_only_these_names(names_which_can_be_saved=[{_listed(names_in(saved))}], "
                f"names_which_can_be_offloaded=[{_listed(moved.names)}])"
            )
    return ""


def _listed(names: frozenset[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def both_save(inner: transforms.Policy, outer: transforms.Policy) -> transforms.Policy:
    """What both policies save; one that saves everything, or leaves it all to a cut, has nothing to add outside."""
    nothing = isinstance(inner, transforms.NothingSaveable) and not isinstance(outer, Scheduled)
    if nothing or isinstance(
        outer, transforms.EverythingSaveable | transforms.MinimumCut | CutInBranches
    ):
        return inner
    return transforms.AllOf((inner, outer))
