"""The fingerprint of a jaxpr: equal for jaxprs that differ only in variable names, source lines and constants.

Jaxprs of one form run the same program, each with its own constants. So a loop whose body is traced anew at
each call is compiled once, whatever the body closes over.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

from fiveloop.core import ir, util
from fiveloop.core.dataclass import dataclass, fields, is_dataclass

MOST_KEYS = 4_096
"""The keys of how many params are remembered."""

_KEYS: dict[int, tuple[Any, Hashable]] = {}
"""Params and their keys, by identity: equal ones may differ in a number's type."""


@dataclass(frozen=True, slots=True)
class Form:
    """What tells programs apart: a hashable skeleton, and the numbers that stand in it.

    `consts` are the arrays that it leaves open, numbered by where they occur first.
    """

    skeleton: Hashable
    consts: list[ir.Constant]
    scalars: list[ir.Literal]
    labels: tuple[ir.Label, ...] = ()

    @property
    def numbers(self) -> tuple[bytes, ...]:
        """The numbers in the program, bit by bit."""
        return tuple([literal.value.host.tobytes() for literal in self.scalars])  # type: ignore[attr-defined]  # scalars

    @property
    def key(self) -> Hashable:
        """The skeleton with the numbers."""
        return self.skeleton, self.numbers


def form_of(jaxpr: ir.Jaxpr) -> Form | None:
    """The form of a jaxpr, or None if something in its params cannot be compared.

    >>> from fiveloop.core import make_jaxpr
    >>> one, two = (make_jaxpr(lambda x: x * 2.0)(1.0) for _ in range(2))
    >>> form_of(one).key == form_of(two).key
    True
    """
    writer = _Writer()
    key = writer.jaxpr(jaxpr)
    try:
        hash(key)
    except TypeError:
        return None
    return Form(key, list(writer.consts.values()), writer.scalars, writer.labels)


class _Writer:
    """Numbers constants, labels and nested jaxprs in the order in which they are met."""

    def __init__(self) -> None:
        self.consts: dict[int, ir.Constant] = {}
        self.scalars: list[ir.Literal] = []
        self._const_numbers: dict[int, int] = {}
        self._jaxprs: dict[ir.Jaxpr, int] = {}
        self._labels: dict[ir.Label, int] = {}
        self._numbered = 0

    @property
    def labels(self) -> tuple[ir.Label, ...]:
        """What is compared by identity, with what lies outside too."""
        return tuple(self._labels)

    def jaxpr(self, jaxpr: ir.Jaxpr) -> Hashable:
        """The inputs' types, the equations and the results; a jaxpr met before is its number."""
        if jaxpr in self._jaxprs:
            return self._jaxprs[jaxpr]
        self._jaxprs[jaxpr] = len(self._jaxprs)
        places: dict[ir.Var, int] = {v: k for k, v in enumerate(jaxpr.invars)}
        eqns = tuple([self._eqn(eqn, places) for eqn in jaxpr.eqns])
        outs = tuple([self._atom(a, places) for a in jaxpr.outvars])
        return (tuple(jaxpr.in_avals), eqns, outs)

    def _eqn(self, eqn: ir.Eqn, places: dict[ir.Var, int]) -> Hashable:
        operands = tuple([self._atom(a, places) for a in eqn.invars])
        params = self._params(eqn.params)
        avals: list[ir.Aval] = []
        for v in eqn.outvars:
            places[v] = len(places)
            avals.append(v.aval)
        return (eqn.primitive, operands, params, *avals)

    def _atom(self, atom: ir.Atom, places: dict[ir.Var, int]) -> Hashable:
        if isinstance(atom, ir.Var):
            return places[atom]
        if ir.is_scalar(atom):
            self.scalars.append(atom)
            return (atom.aval,)
        number = self._const_numbers.setdefault(id(atom.value), len(self._const_numbers))
        self.consts[number] = atom.value
        return (atom.aval, number)

    def _params(self, params: Any) -> Hashable:
        """The key of params; remembered, as rewritten equations hand them on, if nothing in them is numbered."""
        known = _KEYS.get(id(params))
        if known is not None and known[0] is params:
            return known[1]
        before = self._numbered
        key = self.param(params)
        if self._numbered == before:
            if len(_KEYS) >= MOST_KEYS:
                _KEYS.clear()
            _KEYS[id(params)] = params, key
        return key

    def param(self, x: Any) -> Hashable:
        """A param such that equal keys mean equal programs: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
        kind = type(x)
        found = util.exact_key(x, self.param)
        if found is not None:
            return found
        if isinstance(x, ir.Jaxpr):
            self._numbered += 1
            return self.jaxpr(x)
        if isinstance(x, ir.Label):
            self._numbered += 1
            return ("label", self._labels.setdefault(x, len(self._labels)))
        if is_dataclass(kind) and kind.__eq__ is not object.__eq__:
            return (kind, *[self.param(getattr(x, name)) for name in _field_names(kind)])
        return (kind, x)


def opened(jaxpr: ir.Jaxpr, values: Mapping[int, ir.Constant]) -> ir.Jaxpr:
    """The jaxpr with other constants in the place of some literals, which are told by their identity."""
    known: dict[ir.Jaxpr, ir.Jaxpr] = {}

    def change(inner: ir.Jaxpr) -> ir.Jaxpr:
        if inner not in known:
            known[inner] = anew(inner)
        return known[inner]

    def anew(inner: ir.Jaxpr) -> ir.Jaxpr:
        eqns = [
            e.replace(invars=list(map(atom, e.invars)), params=ir.with_jaxprs(e.params, change))
            for e in inner.eqns
        ]
        return inner.replace(eqns=eqns, outvars=list(map(atom, inner.outvars)))

    def atom(a: ir.Atom) -> ir.Atom:
        return ir.Literal(values[id(a)]) if id(a) in values else a

    return change(jaxpr)


@lru_cache(maxsize=1024)
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple([field.name for field in fields(kind) if field.compare])
