"""Integers of a body that are computed in the same way, so that indices are known to be equal."""

from __future__ import annotations

from collections.abc import Hashable

from fiveloop.core.extend import Atom, Eqn, Var


class Equal:
    """The integers noted so far, each of which stands for those that are computed in the same way."""

    def __init__(self) -> None:
        self._first: dict[Hashable, Var] = {}
        self._same: dict[Var, Var] = {}

    def known(self, atom: Atom) -> Hashable:
        """A thing that is the same for operands that are known to be equal."""
        if isinstance(atom, Var):
            return self._same.get(atom, atom)
        host = getattr(atom.value, "host", None)
        return id(atom.value) if host is None else (atom.aval, host.tobytes())

    def note(self, eqn: Eqn) -> None:
        """Note what an equation computes."""
        if len(eqn.outvars) != 1 or eqn.effects or eqn.outvars[0].aval.dtype.kind not in "iu":
            return
        (out,) = eqn.outvars
        operands = [self.known(a) for a in eqn.invars]
        try:
            first = self._first.setdefault((eqn.primitive, eqn.params, *operands), out)
        except TypeError:  # params that cannot be compared
            return
        if first is not out and first.aval is out.aval:
            self._same[out] = first
