"""Labels reach every use: what is saved under a name is what derivatives of its maker use, too."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache
from logging import getLogger

from fiveloop.core import Jaxpr
from fiveloop.core.engine import at_source, current_source
from fiveloop.core.extend import Atom, Eqn, Var, jaxprs_in, with_jaxprs
from fiveloop.remat.name import name_p


def labels_first(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr in which a label stands right after what makes its value, and all else uses the labelled value.

    The derivative of `y = exp(x)` uses `y` as it was made. If the program only labels it, as `z`, and `z` is saved,
    `y` would be computed again although it is `z`.
    """
    return (
        jaxpr.remember("labels first", lambda: _labels_first(jaxpr)) if labels_in(jaxpr) else jaxpr
    )


def labels_in(jaxpr: Jaxpr) -> frozenset[str]:
    """The labels in a jaxpr, at any depth."""

    def found() -> frozenset[str]:
        inner = (labels_in(j) for eqn in jaxpr.eqns for j in jaxprs_in(eqn.params))
        own = [eqn.params.name for eqn in jaxpr.eqns if eqn.primitive is name_p]
        return frozenset(own).union(*inner)

    return jaxpr.remember("labels", found)


def tell_of_unknown(names: frozenset[str], jaxpr: Jaxpr, fun: str) -> None:
    """Warn, once for each function, of names in a policy that label nothing in it."""
    known = sorted(labels_in(jaxpr))
    for name in sorted(names.difference(known)):
        near = get_close_matches(name, known, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"label a value: `checkpoint_name(x, {name!r})`"
        )
        shown = ", ".join(map(repr, known)) or "none"
        _warn_once(
            f"checkpoint of {fun}: the policy saves values named {name!r}, and the names in {fun} are: {shown}; {hint}"
            f"{at_source(current_source())}"
        )


@lru_cache(maxsize=4096)
def _warn_once(message: str) -> None:
    getLogger("fiveloop.remat").warning(message)


def _labels_first(jaxpr: Jaxpr) -> Jaxpr:
    inputs = set(jaxpr.invars)
    labels: dict[Atom, Eqn] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive is name_p and eqn.invars[0] not in inputs:
            labels.setdefault(eqn.invars[0], eqn)
    moved = set(labels.values())
    labelled: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if eqn in moved:
            continue
        operands = [labelled.get(a, a) for a in eqn.invars]
        eqns.append(eqn.replace(invars=operands, params=with_jaxprs(eqn.params, labels_first)))
        for v in eqn.outvars:
            made = _chain(v, labels)
            eqns += made
            if made:
                labelled |= dict.fromkeys([v, *[e.outvars[0] for e in made]], made[-1].outvars[0])
    outs = [labelled.get(a, a) for a in jaxpr.outvars]
    return jaxpr.replace(eqns=eqns, outvars=outs)


def _chain(v: Var, labels: dict[Atom, Eqn]) -> list[Eqn]:
    """The equations that label a value, one after the other."""
    found: list[Eqn] = []
    while v in labels:
        found.append(labels[v])
        (v,) = labels[v].outvars
    return found
