"""The oracle: runs any jaxpr in plain NumPy, a Ref being an array that changes in place.

It reads the IR and nothing else of the library: no rule, no indexing, no discharge, no compiler. What it knows
of each primitive is a *reference*, written anew in NumPy. So where the library and the oracle agree, two
independent readings of a program agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fiveloop.testing.core.lanes import LanesError, lanes_to_run


@dataclass(eq=False)
class Cell:
    """A Ref as the oracle sees it: an array that changes in place, until it is frozen."""

    array: np.ndarray[Any, Any]
    frozen: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the contents."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the contents."""
        dtype: np.dtype[Any] = self.array.dtype
        return dtype


Operand: TypeAlias = "np.ndarray[Any, Any] | Cell"
Run: TypeAlias = "Callable[[Jaxpr, Sequence[Any]], list[Any]]"
Reference: TypeAlias = "Callable[[Sequence[Any], Any, Run], list[Any]]"

reference_rules: dict[str, Reference] = {}
"""What each primitive computes, by name: from operands, params and the interpreter to results."""


class OracleError(AssertionError):
    """The oracle found a jaxpr that does not mean what its types say, or does not know a primitive."""


def define_reference(name: str, fn: Callable[[Sequence[Any], Any], list[Any]]) -> None:
    """Say, once, what a primitive computes: `fn(values, params)` gives a list of NumPy values."""
    define_nested_reference(name, lambda values, p, run: fn(values, p))


def define_nested_reference(name: str, fn: Reference) -> None:
    """Say, once, what a primitive with jaxprs in its params computes; `run(jaxpr, values)` runs one of them."""
    if name in reference_rules:
        raise OracleError(f"the reference of `{name}` is defined twice")
    reference_rules[name] = fn


def run_jaxpr(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr on NumPy arrays, scalars, and Cells for its Refs, which it changes.

    A jaxpr that goes over named axes runs within `lanes`, in every lane.
    """
    operands = [a if isinstance(a, Cell) else np.asarray(a) for a in args]
    everyone = lanes_to_run()
    if everyone is not None:
        return everyone.run(lambda lane: _run_lane(jaxpr, operands, lane))
    with np.errstate(all="ignore"):
        return _run(jaxpr, operands)


def _run_lane(jaxpr: Jaxpr, args: Sequence[Any], lane: tuple[int, ...]) -> list[Any]:
    """The results in one lane: its operands and its part of the Cells are those at `[..., *lane]`."""
    at: Any = (..., *lane)
    own = [Cell(a.array[at]) if isinstance(a, Cell) else a[at] for a in args]
    outs = _run(jaxpr, own)
    for cell, mine in zip(args, own, strict=True):
        if isinstance(cell, Cell):
            cell.array[at] = mine.array
            cell.frozen = cell.frozen or mine.frozen
    return outs


def _run(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    if len(args) != len(jaxpr.invars):
        raise OracleError(f"expected {len(jaxpr.invars)} operands, got {len(args)}, for\n{jaxpr}")
    env: dict[Var, Any] = {}
    for k, (var, arg) in enumerate(zip(jaxpr.invars, args, strict=True)):
        _check(arg, var.aval, f"operand {k} of the jaxpr", jaxpr)
        env[var] = arg
    for eqn in jaxpr.eqns:
        results = _run_eqn(eqn, [_read(env, a, eqn) for a in eqn.invars])
        if len(results) != len(eqn.outvars):
            raise OracleError(f"expected {len(eqn.outvars)} results, got {len(results)}, of\n{eqn}")
        for k, (var, result) in enumerate(zip(eqn.outvars, results, strict=True)):
            _check(result, var.aval, f"result {k}", eqn)
            env[var] = result
    return [_read(env, a, jaxpr) for a in jaxpr.outvars]


def _run_eqn(eqn: Eqn, values: Sequence[Any]) -> list[Any]:
    reference = reference_rules.get(eqn.primitive.name)
    if reference is None:
        raise OracleError(
            f"the oracle has no reference of `{eqn.primitive}`; add one with `define_reference`"
        )
    try:
        results = reference(values, eqn.params, _run)
    except (OracleError, LanesError):
        raise
    except Exception as error:
        raise OracleError(
            f"the reference of `{eqn.primitive}` failed: {error!r}, in\n{eqn}"
        ) from error
    return [r if isinstance(r, Cell) else np.asarray(r) for r in results]


def _read(env: dict[Var, Any], atom: Atom, where: object) -> Any:
    if isinstance(atom, Literal):
        return np.array(atom.value.numpy())  # type: ignore[attr-defined]  # every concrete value has it
    if atom not in env:
        raise OracleError(
            f"a variable of type {atom.aval} is used before it is defined, in\n{where}"
        )
    return env[atom]


def _check(value: Any, aval: Aval, what: str, where: object) -> None:
    if tuple(value.shape) != tuple(aval.shape) or value.dtype != aval.dtype:
        given = f"{value.dtype}{list(value.shape)}"
        raise OracleError(f"{what} should have type {aval}, but is {given}, in\n{where}")
