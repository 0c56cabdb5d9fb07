"""Additions in place: a write of what was there and more becomes an addition to elements, before it is transposed.

The transpose of a write sets cotangents to zero, that of the read adds them again in their place. That of an addition
lets them pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import is_

from fiveloop.core import ir, rules, util
from fiveloop.core.dataclass import replace
from fiveloop.core.primitives import elementwise, take
from fiveloop.core.transforms.dce import with_equations


@ir.once_per_jaxpr
def as_additions(jaxpr: ir.Jaxpr, linear: util.Mask) -> ir.Jaxpr:
    """The jaxpr with an addition for each write of sums of what was there, if that is linear.

    It is only to be transposed: a program adds to a block by a read and a write. Vectors stay as they are: there XLA's
    kernels for the one or the other may take twice as long, as the size has it.

    >>> jaxpr = make_jaxpr(lambda x, y: x.at[1:].set(x[1:] + y))(np.ones((4, 2)), np.ones((3, 2)))
    >>> print(as_additions(jaxpr, linear=(True, True)))
    { lambda a:f64[4,2] b:f64[3,2] ; let
        c:f64[4,2] = a.at[1:4, :].add(b)
      in (c,) }
    """
    made, uses = ir.makers(jaxpr), ir.use_counts(jaxpr)
    linears = ir.reachable(jaxpr, util.select_by(linear, jaxpr.invars))
    eqns = list[ir.Eqn]()
    for eqn in jaxpr.eqns:
        writes = eqn.primitive is take.put_p and eqn.invars[0] in linears
        of_rows = writes and eqn.invars[0].aval.ndim > 1
        eqns += _as_addition(eqn, made, uses) if of_rows else [eqn]
    return with_equations(jaxpr, eqns)


def _as_addition(
    eqn: ir.Eqn, made: Mapping[ir.Var, ir.Eqn], uses: Mapping[ir.Var, int]
) -> Iterator[ir.Eqn]:
    """What replaces a write: itself, if it is not of a sum of what was there, each element once."""
    p = eqn.params
    if p.kind != "set" or not (p.unique or p.indexer.names_each_once):
        yield eqn
        return
    sums, rest = list[ir.Eqn](), eqn.invars[1]
    while (found := _added(rest, eqn, made)) is None:
        term = ir.maker(rest, made, elementwise.add.prim)
        if term is None or uses[term.outvars[0]] > 1:
            yield eqn
            return
        sums.append(term)
        rest = term.invars[0]
    for term in reversed(sums):
        made_of = [found, term.invars[1]]
        total = rules.new_eqn(term.primitive, made_of, term.params, source=term.source)
        yield total
        (found,) = total.outvars
    x, _, *positions = eqn.invars
    operands = [x, found, *positions]
    added = replace(p, kind="add")
    yield ir.Eqn(eqn.primitive, operands, eqn.outvars, added, eqn.effects, eqn.source)


def _added(v: ir.Atom, write: ir.Eqn, made: Mapping[ir.Var, ir.Eqn]) -> ir.Atom | None:
    """What is added to what was there, if `v` is the sum of both."""
    total = ir.maker(v, made, elementwise.add.prim)
    if total is None:
        return None
    for there, other in (total.invars, total.invars[::-1]):
        read = ir.maker(there, made, take.take_p)
        if read is not None and other.aval == v.aval and _is_there(read, write):
            return other
    return None


def _is_there(read: ir.Eqn, write: ir.Eqn) -> bool:
    """Whether what is read is what a write replaces."""
    x, _, *positions = write.invars
    same = read.params.indexer == write.params.indexer
    return same and read.invars[0] is x and all(map(is_, read.invars[1:], positions))
