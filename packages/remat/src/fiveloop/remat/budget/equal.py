"""Equal jaxprs as one, so that what is derived of them is derived once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from operator import is_

from fiveloop.core import Jaxpr, ir
from fiveloop.core.lower.fingerprint import form_of

form_once = ir.once_per_jaxpr(form_of)
"""The form of a jaxpr, remembered on it."""


class Equal:
    """One jaxpr for all equal ones that equations hold, so that what is derived of them is derived once."""

    def __init__(self) -> None:
        self._lone: dict[Hashable, Jaxpr | None] = {}
        self._first: dict[Hashable, Jaxpr] = {}
        self._known: dict[Jaxpr, Jaxpr] = {}

    def shared(self, jaxpr: Jaxpr) -> Jaxpr:
        """The jaxpr whose equations hold the first of those that are equal; itself if they do."""
        eqns = list(map(self._each, jaxpr.eqns))
        return jaxpr if all(map(is_, eqns, jaxpr.eqns)) else jaxpr.replace(eqns=eqns)

    def _each(self, eqn: ir.Eqn) -> ir.Eqn:
        params = ir.with_jaxprs(eqn.params, self._first_of)
        return eqn if params is eqn.params else eqn.replace(params=params)

    def _first_of(self, inner: Jaxpr) -> Jaxpr:
        if inner not in self._known:
            self._known[inner] = self._found(inner)
        return self._known[inner]

    def _found(self, inner: Jaxpr) -> Jaxpr:
        """The first equal jaxpr; identities are asked only of those that are alike at a glance."""
        numbers = [ir.key_of(a) for e in inner.eqns for a in e.invars if isinstance(a, ir.Literal)]
        glance = len(inner.eqns), *inner.in_avals, None, *inner.out_avals, None, *numbers
        lone = self._lone.setdefault(glance, inner)
        if lone is inner:
            return inner
        if lone is not None:
            self._first[_identity(lone)], self._lone[glance] = lone, None
        return self._first.setdefault(_identity(inner), inner)


@ir.once_per_jaxpr
def _identity(jaxpr: Jaxpr) -> Hashable:
    """Equal for jaxprs that compute the same with the same arrays, written at the same lines."""
    form = form_once(jaxpr)
    if form is None:
        return jaxpr
    return form.key, *[id(x) for x in (*form.consts, *form.labels)], *_lines_of(jaxpr)


def _lines_of(jaxpr: Jaxpr) -> Iterator[Hashable]:
    """The user's lines that the equations come from, at any depth."""
    for eqn in jaxpr.eqns:
        yield eqn.source and (id(eqn.source.code), eqn.source.lasti)
        for inner in ir.jaxprs_in(eqn.params):
            yield from _lines_of(inner)
