"""What a derivative saves: every residual with its size, where it comes from, and why it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fiveloop.core import Jaxpr, keystr, tree_flatten_with_path
from fiveloop.core.engine import argument_name, stage_user
from fiveloop.core.extend import (
    Aval,
    Eqn,
    Literal,
    Source,
    Var,
    check_callable,
    linearize_jaxpr,
    size_of,
)
from fiveloop.remat.makers import made_by
from fiveloop.remat.name import name_p


@dataclass(frozen=True)
class Residual:
    """One array that is kept for the backward pass."""

    aval: Aval
    origin: str
    source: Source | None

    @property
    def bytes(self) -> int:
        """Its size."""
        return size_of(self.aval.shape) * self.aval.dtype.itemsize

    def __str__(self) -> str:
        place = (
            f", {self.source.file.rpartition('/')[2]}:{self.source.line}"
            if self.source is not None
            else ""
        )
        return f"{self.aval!s:<18} {self.bytes:>12,} bytes  {self.origin}{place}"


@dataclass(frozen=True)
class SavedResiduals:
    """All residuals of a function; prints as a table."""

    residuals: tuple[Residual, ...]

    def __iter__(self) -> Any:
        return iter(self.residuals)

    def __len__(self) -> int:
        return len(self.residuals)

    @property
    def bytes(self) -> int:
        """The size of all of them."""
        return sum(r.bytes for r in self.residuals)

    def __str__(self) -> str:
        return "\n".join(
            [*map(str, self.residuals), f"{len(self)} residuals, {self.bytes:,} bytes"]
        )

    __repr__ = __str__


def saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> SavedResiduals:
    """What the derivative of `f` in all its floating arguments keeps between its two passes.

    An argument of `f` that is kept counts too; what a loop keeps of each step counts as one stacked array. The
    claim is the program's; what XLA allocates is told by `jit(f).lower(...).compile().memory_analysis()`.

    >>> import fiveloop.numpy as fnp
    >>> len(saved_residuals(lambda x: fnp.sin(x) * x, 1.0))
    3
    """
    check_callable("saved_residuals", f)
    staged, _ = stage_user(f, args, kwargs)
    num_captured = len(staged.captured)
    nonzero = (False,) * num_captured + tuple(
        a.differentiable for a in staged.jaxpr.in_avals[num_captured:]
    )
    known, _, _, num_res = linearize_jaxpr(staged.jaxpr, nonzero)
    paths = [_argument(f, path) for path, _ in tree_flatten_with_path((args, kwargs))[0]]
    names = [*["closed-over value"] * num_captured, *paths]
    kept = known.outvars[len(known.outvars) - num_res :]
    return SavedResiduals(tuple(_residual(known, names, atom) for atom in kept))


def _argument(f: Callable[..., Any], path: Any) -> str:
    """An argument as its user knows it; `path` leads from the pair of positional and named arguments."""
    kind, first, *inner = path
    called = argument_name(f, first.idx) if kind.idx == 0 else f"`{first.key}`"
    return f"argument {called}{keystr(tuple(inner))}"


def _residual(known: Jaxpr, names: list[str], atom: Var | Literal) -> Residual:
    if isinstance(atom, Literal):
        return Residual(atom.aval, "a constant", None)
    if atom in known.invars:
        return Residual(atom.aval, names[known.invars.index(atom)], None)
    for eqn in known.eqns:
        if atom in eqn.outvars:
            made = made_by(eqn, eqn.outvars.index(atom))
            return Residual(atom.aval, _origin(made), made.source)
    raise AssertionError("unreachable: a residual is an input or a result")


def _origin(eqn: Eqn) -> str:
    if eqn.primitive is name_p:
        return f"named {eqn.params.name!r}"
    return f"result of {eqn.primitive}"
