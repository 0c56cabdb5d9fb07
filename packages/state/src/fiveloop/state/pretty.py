"""The printing of equations on Refs: `b <- r[i, :]`, `r[i] <- v`, `r[i] += v`, `r[i] max= v`, `b, r[i] <- r[i], v`."""

from __future__ import annotations

from fiveloop.core import ir, prims
from fiveloop.state import primitives


def _get(eqn: ir.Eqn, names: ir.Names) -> str:
    return f"{names.binder(eqn.outvars[0])} <- {prims.place_of(eqn, names, eqn.invars[1:])}"


def _swap(eqn: ir.Eqn, names: ir.Names) -> str:
    place, new = prims.place_of(eqn, names, eqn.invars[2:]), names.atom(eqn.invars[1])
    if not eqn.outvars:
        return f"{place} <- {new}"
    return f"{names.binder(eqn.outvars[0])}, {place} <- {place}, {new}"


def _addupdate(eqn: ir.Eqn, names: ir.Names) -> str:
    return f"{prims.place_of(eqn, names, eqn.invars[2:])} += {names.atom(eqn.invars[1])}"


ir.define_printer(primitives.get_p, _get)
ir.define_printer(primitives.swap_p, _swap)


def _accumulate(eqn: ir.Eqn, names: ir.Names) -> str:
    place, symbol = (
        prims.place_of(eqn, names, eqn.invars[2:]),
        prims.MONOIDS[eqn.params.monoid].symbol,
    )
    return f"{place} {symbol} {names.atom(eqn.invars[1])}"


ir.define_printer(primitives.addupdate_p, _addupdate)
ir.define_printer(primitives.accumulate_p, _accumulate)
