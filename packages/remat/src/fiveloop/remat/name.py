"""`checkpoint_name` labels a value for policies; the label applies to every use of the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from fiveloop.core import Jaxpr, Value, arrays, errors, ir, pytree, rules, trace, util
from fiveloop.core.backend import lazy
from fiveloop.core.dataclass import dataclass
from fiveloop.core.util import T


@dataclass(frozen=True)
class NameParams:
    """The label of a value."""

    name: str


name_p: ir.Primitive[NameParams] = ir.Primitive("name")


@trace.boundary
def checkpoint_name(x: T, name: str) -> T:
    """`x`, with a text label on each of its arrays, by which policies such as `save_only_these_names` select values.

    >>> import fiveloop.numpy as fnp
    >>> checkpoint_name(fnp.ones(2), "activations")
    Array([1., 1.], dtype=float32)
    """
    if not isinstance(name, str):
        raise TypeError(f"checkpoint_name: name must be a string, got {name!r}")
    if _given.value is not None:
        _given.value.add(name)
    labelled: T = pytree.tree_map(lambda leaf: _labelled(leaf, NameParams(name)), x)
    return labelled


def _labelled(leaf: Any, p: NameParams) -> Value:
    value = arrays.as_value(leaf, "checkpoint_name: a leaf of x")
    if value.aval.accumulates:
        raise TypeError(
            f"checkpoint_name: a leaf of x must be an array or a scalar, got {value.aval}; label what is read of a "
            f"Ref: `checkpoint_name(ref[...], {p.name!r})`"
        )
    return trace.bind1(name_p, value, params=p)


rules.define(
    name_p,
    abstract_eval=rules.pure(lambda avals, p: list(avals)),
    lower=lambda ctx, operands, p: list(operands),
    impl=lambda values, p: list(values),
    # The value keeps its label, and its tangent has none.
    jvp=lambda primals, tangents, p: (trace.bind(name_p, *primals, params=p), list(tangents)),
    batch=lambda size, operands, dims, p: (trace.bind(name_p, *operands, params=p), list(dims)),
    transpose=lambda cts, operands, p: list(cts),
    cost=lambda avals, p: rules.Cost(0, 0, again=True),
    label=lambda p: p.name,
)


@ir.once_per_jaxpr
def labels_in(jaxpr: Jaxpr) -> frozenset[str]:
    """The labels in a jaxpr, at any depth."""
    inner = (labels_in(j) for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params))
    own = [eqn.params.name for eqn in jaxpr.eqns if eqn.primitive is name_p]
    return frozenset(own).union(*inner)


_given: util.OfThread[set[str] | None] = util.OfThread(None)
"""The labels that the function which is traced has given to values, also to those of which nothing is left."""


def with_labels(
    stage: Callable[[], tuple[trace.Staged, T]],
) -> tuple[trace.Staged, T, frozenset[str]]:
    """What a trace of a function gives, and the labels that the function gives to values."""
    around, given = _given.value, set[str]()
    with _given.to(given):
        staged, flat = stage()
    jaxpr = staged.jaxpr
    found = labels_given(jaxpr, given)
    if around is not None:
        around.update(found)
    return staged, flat, found


def labels_given(jaxpr: Jaxpr, given: Iterable[str] = ()) -> frozenset[str]:
    """The labels that a function gives to values, as noted when `with_labels` traced its jaxpr."""
    found: frozenset[str] = jaxpr.remember("labels given", lambda: labels_in(jaxpr).union(given))
    return found


def may_get_labels(jaxpr: Jaxpr) -> bool:
    """Whether a rule of a function in the jaxpr may label values, which is known when it is differentiated."""
    return any(prim.holds_functions for prim in ir.primitives_in(jaxpr))


def tell_of_unknown(
    names: frozenset[str], given: frozenset[str], fun: str, source: ir.Source | None
) -> None:
    """Warn, once for each function, of names in a policy that are none of those given in it."""
    known = sorted(given)
    in_small_letters = {k.lower(): k for k in known}
    for name in sorted(names.difference(known)):
        near = lazy.difflib().get_close_matches(name.lower(), in_small_letters, n=1)
        hint = (
            f"did you mean {in_small_letters[near[0]]!r}?"
            if near
            else f"label a value: `checkpoint_name(x, {name!r})`"
        )
        shown = ", ".join(map(repr, known))
        there = f"the names in {fun} are: {shown}" if known else f"no value in {fun} has a name"
        _warn_once(
            f"checkpoint of {fun}: the policy names {name!r}, and {there}; {hint}"
            f"{errors.at_source(source)}"
        )


@lru_cache(maxsize=4096)
def _warn_once(message: str) -> None:
    lazy.logging().getLogger("fiveloop.remat").warning(message)
