"""Make a failing sample small: take equations away, at any depth, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fiveloop.core.arrays.array import as_value
from fiveloop.core.ir.avals import Aval, ShapedArray
from fiveloop.core.ir.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, all_atoms, used_vars
from fiveloop.core.rules import abstract_eval_rules
from fiveloop.testing.core.oracle import Cell
from fiveloop.testing.core.samples import Sample


def failure_of(law: Callable[[Sample], None], s: Sample) -> str:
    """The name of the exception that a law raises, or nothing."""
    try:
        law(s)
    except Exception as error:
        return type(error).__name__
    return ""


def shrink(s: Sample, law: Callable[[Sample], None], most: int = 2000) -> Sample:
    """A smaller sample for which the law fails with an exception of the same type."""
    kind = failure_of(law, s)
    tries = 0
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(s):
            tries += 1
            if tries > most:
                return s
            if failure_of(law, candidate) == kind:
                s, progress = candidate, True
                break
    return s


def _smaller(s: Sample) -> Iterator[Sample]:
    jaxpr = s.jaxpr
    for k in range(len(jaxpr.outvars)):
        yield Sample(jaxpr.replace(outvars=jaxpr.outvars[:k] + jaxpr.outvars[k + 1 :]), s.args)
    used = used_vars(all_atoms(jaxpr))
    for k, v in enumerate(jaxpr.invars):
        if v not in used:
            args = s.args[:k] + s.args[k + 1 :]
            yield Sample(jaxpr.replace(invars=jaxpr.invars[:k] + jaxpr.invars[k + 1 :]), args)
        elif not isinstance(s.args[k], Cell):
            yield Sample(_substituted(jaxpr, {v: _constant(v.aval)}), s.args)
    for smaller in variants(jaxpr):
        yield Sample(smaller, s.args)


def variants(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Jaxprs with one equation less, or with one equation whose jaxpr has one less."""
    for k in reversed(range(len(jaxpr.eqns))):
        eqn = jaxpr.eqns[k]
        fewer = jaxpr.replace(eqns=jaxpr.eqns[:k] + jaxpr.eqns[k + 1 :])
        used = used_vars(all_atoms(fewer))
        gone = [v for v in eqn.outvars if v in used]
        if all(isinstance(v.aval, ShapedArray) for v in gone):
            yield _substituted(fewer, {v: _constant(v.aval) for v in gone})
        if len(eqn.outvars) == 1:
            same = [a for a in eqn.invars if a.aval is eqn.outvars[0].aval]
            yield from (_substituted(fewer, {eqn.outvars[0]: a}) for a in same)
        for inner in _nested_variants(eqn):
            yield jaxpr.replace(eqns=(*jaxpr.eqns[:k], inner, *jaxpr.eqns[k + 1 :]))


def _nested_variants(eqn: Eqn) -> Iterator[Eqn]:
    if eqn.params is None or not hasattr(eqn.params, "__dataclass_fields__"):
        return
    for f in fields(eqn.params):
        value = getattr(eqn.params, f.name)
        if isinstance(value, Jaxpr):
            for smaller in variants(value):
                yield _retyped(eqn, replace(eqn.params, **{f.name: smaller}))
        elif (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value > 1
            and f.name == "nsteps"
        ):
            yield _retyped(eqn, replace(eqn.params, nsteps=value - 1))


def _retyped(eqn: Eqn, params: Any) -> Eqn:
    _, effects = abstract_eval_rules[eqn.primitive]([a.aval for a in eqn.invars], params)
    return eqn.replace(params=params, effects=effects)


def _constant(aval: Aval) -> Literal:
    value = np.arange(1, 1 + int(np.prod(aval.shape)), dtype=np.float64) * 0.37
    return Literal(as_value(value.reshape(aval.shape).astype(aval.dtype)))


def _substituted(jaxpr: Jaxpr, env: Mapping[Var, Atom]) -> Jaxpr:
    def atom(a: Atom) -> Atom:
        return env.get(a, a) if isinstance(a, Var) else a

    eqns = [eqn.replace(invars=tuple(map(atom, eqn.invars))) for eqn in jaxpr.eqns]
    return Jaxpr(jaxpr.invars, eqns, tuple(map(atom, jaxpr.outvars)), jaxpr.name)
