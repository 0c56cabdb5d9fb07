"""Policies: what a checkpoint saves. A policy judges one equation; it is a value, equal to its like.

A policy may also be any function from an equation to a bool (save?) or a Verdict; it is then known by identity.
"""

from __future__ import annotations

from dataclasses import dataclass

from fiveloop.core import (
    RECOMPUTE,
    SAVE,
    Eqn,
    EverythingSaveable,
    NothingSaveable,
    Policy,
    Verdict,
    at_source,
    current_source,
    dot_general_p,
)
from fiveloop.remat.name import name_p

everything_saveable = EverythingSaveable()
"""Save whatever the backward pass uses: as if there were no checkpoint."""

nothing_saveable = NothingSaveable()
"""Save the arguments alone, and compute everything again; the default of `checkpoint`."""


@dataclass(frozen=True)
class DotsSaveable:
    """Save the results of contractions; those with batch dimensions only if `batched`."""

    batched: bool = True

    def __call__(self, eqn: Eqn) -> Verdict:
        is_dot = eqn.primitive is dot_general_p and (self.batched or not eqn.params.batch[0])
        return SAVE if is_dot else RECOMPUTE


dots_saveable = DotsSaveable()
"""Save the results of matrix products, and compute the rest again."""

dots_with_no_batch_dims_saveable = DotsSaveable(batched=False)
"""Save the results of matrix products without batch dimensions: those with weights, not those of attention."""


@dataclass(frozen=True)
class SaveOnlyTheseNames:
    """Save the values labelled by `checkpoint_name` with one of the names."""

    names: frozenset[str]

    def __call__(self, eqn: Eqn) -> Verdict:
        return SAVE if eqn.primitive is name_p and eqn.params.name in self.names else RECOMPUTE


def save_only_these_names(*names: str) -> SaveOnlyTheseNames:
    """A policy that saves the values labelled with these names, and nothing else.

    >>> save_only_these_names("attention")
    SaveOnlyTheseNames(names=frozenset({'attention'}))
    """
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"save_only_these_names: expected names as strings, got {name!r}{at_source(current_source())}"
            )
    return SaveOnlyTheseNames(frozenset(names))


@dataclass(frozen=True)
class BothSave:
    """What is saved inside a checkpoint within another: what both policies save."""

    inner: Policy
    outer: Policy

    def __call__(self, eqn: Eqn) -> Verdict:
        for policy in (self.inner, self.outer):
            verdict = policy(eqn)
            if not (verdict.saves if isinstance(verdict, Verdict) else verdict):
                return RECOMPUTE
        return SAVE
