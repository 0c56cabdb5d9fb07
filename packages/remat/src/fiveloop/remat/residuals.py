"""Residuals: what a derivative saves, with sizes and places; and the equation that makes a value, at any depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fiveloop.core import Jaxpr, ir, prims, pytree, rules, transforms
from fiveloop.core.api import flatten, staging
from fiveloop.core.dataclass import dataclass
from fiveloop.remat.name import name_p


@dataclass(frozen=True)
class Residual:
    """One array that is kept for the backward pass."""

    aval: ir.Aval
    origin: str
    source: ir.Source | None

    @property
    def bytes(self) -> int:
        """Its size."""
        return ir.size_of(self.aval.shape) * self.aval.dtype.itemsize

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
    flatten.check_callable("saved_residuals", f)
    staged, _ = staging.stage_user(f, args, kwargs)
    num_captured = len(staged.captured)
    nonzero = (False,) * num_captured + tuple(
        a.differentiable for a in staged.jaxpr.in_avals[num_captured:]
    )
    known, _, _, num_res = transforms.linearize_jaxpr(staged.jaxpr, nonzero)
    paths = [_argument(f, path) for path, _ in pytree.tree_flatten_with_path((args, kwargs))[0]]
    names = [*["closed-over value"] * num_captured, *paths]
    kept = known.outvars[len(known.outvars) - num_res :]
    return SavedResiduals(tuple(_residual(known, names, atom) for atom in kept))


def _argument(f: Callable[..., Any], path: Any) -> str:
    """An argument as its user knows it; `path` leads from the pair of positional and named arguments."""
    kind, first, *inner = path
    called = flatten.argument_name(f, first.idx) if kind.idx == 0 else f"`{first.key}`"
    return f"argument {called}{pytree.keystr(tuple(inner))}"


def _residual(known: Jaxpr, names: list[str], atom: ir.Var | ir.Literal) -> Residual:
    if isinstance(atom, ir.Literal):
        return Residual(atom.aval, "a constant", None)
    if atom in known.invars:
        return Residual(atom.aval, names[known.invars.index(atom)], None)
    for eqn in known.eqns:
        if atom in eqn.outvars:
            made = made_by(eqn, eqn.outvars.index(atom))
            return Residual(atom.aval, _origin(made), made.source)
    raise AssertionError("unreachable: a residual is an input or a result")


def _origin(eqn: ir.Eqn) -> str:
    if eqn.primitive is name_p:
        return f"named {eqn.params.name!r}"
    return f"result of {eqn.primitive}"


def made_by(eqn: ir.Eqn, position: int) -> ir.Eqn:
    """The equation that makes a result of an equation: within what that holds, if it is made there.

    Of a loop's array of all steps that is what makes the value of one step.
    """
    bodies = rules.bodies_rules.find(eqn.primitive)
    for body in bodies(eqn.params) if bodies else ():
        operands = zip(reversed(body.jaxpr.invars), reversed(eqn.invars), strict=False)
        states = [v for v, a in operands if v.aval.accumulates and not a.aval.accumulates]
        results = [*body.jaxpr.outvars, *reversed(states)]
        if len(results) == len(eqn.outvars):
            made = _maker(body.jaxpr, results[position])
            if made is not None:
                return made
    return eqn


def _maker(jaxpr: Jaxpr, atom: ir.Atom) -> ir.Eqn | None:
    """What makes a value, or what a Ref is given last; None if it comes from outside, or is a constant."""
    for eqn in reversed(jaxpr.eqns):
        if atom in eqn.outvars and eqn.primitive is prims.to_memory_p:
            atom = eqn.invars[0]
        elif atom in eqn.outvars:
            return made_by(eqn, eqn.outvars.index(atom)) if ir.used_vars(eqn.invars) else None
        if atom in [eqn.invars[k] for k in ir.mutated_positions(eqn.effects)]:
            return _given(jaxpr, eqn, atom)
    return None


def _given(jaxpr: Jaxpr, eqn: ir.Eqn, ref: ir.Atom) -> ir.Eqn | None:
    """What makes the value that an equation gives to a Ref."""
    bodies = rules.bodies_rules.find(eqn.primitive)
    if bodies is None:
        return _maker(jaxpr, eqn.invars[1])
    after = len(eqn.invars) - eqn.invars.index(ref)
    found = (_maker(b.jaxpr, b.jaxpr.invars[-after]) for b in bodies(eqn.params))
    return next((made for made in found if made is not None), None)
