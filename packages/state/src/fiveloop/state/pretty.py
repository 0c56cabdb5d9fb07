"""How equations on Refs print: `b <- r[i, :]`, `r[i] <- v`, `r[i] += v`, `r[i] max= v`, `b, r[i] <- r[i], v`."""

from __future__ import annotations

from collections.abc import Sequence

from fiveloop.core.extend import Atom, Eqn, Names, define_printer
from fiveloop.state.monoids import MONOIDS
from fiveloop.state.primitives.common import accumulate_p, addupdate_p, get_p, swap_p


def _place(eqn: Eqn, names: Names, index: Sequence[Atom]) -> str:
    ref = eqn.invars[0]
    inside = eqn.params.indexer.pretty([names.atom(a) for a in index], ref.aval.shape)
    return f"{names.atom(ref)}[{inside}]"


def _get(eqn: Eqn, names: Names) -> str:
    return f"{names.binder(eqn.outvars[0])} <- {_place(eqn, names, eqn.invars[1:])}"


def _swap(eqn: Eqn, names: Names) -> str:
    place, new = _place(eqn, names, eqn.invars[2:]), names.atom(eqn.invars[1])
    if not eqn.outvars:
        return f"{place} <- {new}"
    return f"{names.binder(eqn.outvars[0])}, {place} <- {place}, {new}"


def _addupdate(eqn: Eqn, names: Names) -> str:
    return f"{_place(eqn, names, eqn.invars[2:])} += {names.atom(eqn.invars[1])}"


define_printer(get_p, _get)
define_printer(swap_p, _swap)


def _accumulate(eqn: Eqn, names: Names) -> str:
    place, symbol = _place(eqn, names, eqn.invars[2:]), MONOIDS[eqn.params.monoid].symbol
    return f"{place} {symbol} {names.atom(eqn.invars[1])}"


define_printer(addupdate_p, _addupdate)
define_printer(accumulate_p, _accumulate)
