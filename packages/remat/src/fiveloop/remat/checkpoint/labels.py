"""Labels reach every use: what is saved under a name is what derivatives of its maker use, too."""

from __future__ import annotations

from fiveloop.core import Jaxpr
from fiveloop.core.extend import Atom, Eqn, Var, jaxprs_in, with_jaxprs
from fiveloop.remat.name import name_p


def labels_first(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr in which a label stands right after what makes its value, and all else uses the labelled value.

    The derivative of `y = exp(x)` uses `y` as it was made. If the program only labels it, as `z`, and `z` is saved,
    `y` would be computed again although it is `z`.
    """
    return jaxpr.remember("labels first", lambda: _labels_first(jaxpr)) if _any(jaxpr) else jaxpr


def _any(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr labels anything, at any depth."""

    def found() -> bool:
        inner = (j for eqn in jaxpr.eqns for j in jaxprs_in(eqn.params))
        return any(eqn.primitive is name_p for eqn in jaxpr.eqns) or any(map(_any, inner))

    return jaxpr.remember("has labels", found)


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
