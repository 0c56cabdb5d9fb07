"""Policies: what a checkpoint saves. A policy judges one equation; it is a value, equal to its like.

A policy may also be any function from an equation to a bool (save?) or a Verdict; it is then known by identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fiveloop.core import (
    RECOMPUTE,
    SAVE,
    EverythingSaveable,
    MinimumCut,
    NothingSaveable,
    Policy,
    Verdict,
)
from fiveloop.core.engine import at_source, current_source, dot_general_p, may_weigh
from fiveloop.core.engine import show_public_names as _show_public_names
from fiveloop.core.extend import Eqn, Weigh
from fiveloop.remat.name import name_p

__all__ = [
    "BothSave",
    "DotsSaveable",
    "SaveOnlyTheseNames",
    "both_save",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
    "minimum_cut",
    "nothing_saveable",
    "save_only_these_names",
]
_show_public_names(globals())

everything_saveable = EverythingSaveable()
"""Save whatever the backward pass uses, and compute nothing again; in a loop too, where that is not the default."""

nothing_saveable = NothingSaveable()
"""Save the arguments alone, and compute everything again; the default of `checkpoint`."""

minimum_cut = MinimumCut()
"""Save what makes bytes kept and operations done again cost least: the default of loops without a checkpoint.

`fiveloop.core.MinimumCut(memory_cost=..., compute_cost=..., share=...)` is the same at other prices.
"""


@dataclass(frozen=True)
class DotsSaveable:
    """Save the results of contractions; those with batch dimensions only if `batched`."""

    batched: bool = True
    weighs: ClassVar[bool] = False

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
    weighs: ClassVar[bool] = False

    def __repr__(self) -> str:
        names = ", ".join(map(repr, sorted(self.names)))
        return f"{type(self).__name__}(names=frozenset({{{names}}}))"

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

    @property
    def weighs(self) -> bool:
        """Whether something is left to a cut."""
        return may_weigh(self.inner)

    def __call__(self, eqn: Eqn) -> Verdict:
        verdicts = [policy(eqn) for policy in (self.inner, self.outer)]
        if not all(v.saves if isinstance(v, Verdict) else v for v in verdicts):
            return RECOMPUTE
        inner = verdicts[0]
        return inner if isinstance(inner, Weigh) else SAVE


def both_save(inner: Policy, outer: Policy) -> Policy:
    """What both policies save; one that saves everything, or leaves it all to a cut, has nothing to add outside."""
    if isinstance(inner, NothingSaveable) or isinstance(outer, EverythingSaveable | MinimumCut):
        return inner
    return BothSave(inner, outer)
