"""Which values XLA:CPU must not compute in one kernel with what uses them: it would be wrong, or slow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Set

from fiveloop.core import ir, rules

READS, WRITES, _SPLITS, _PADS = "take", "put", "split", "pad"
_SMALL = 1023
"""So many elements, or fewer, are computed twice for less than another kernel takes."""
_FEW = 3
"""What is computed of more arrays, and split once, is computed twice for less than another kernel takes (measured)."""


@ir.once_per_jaxpr
def reshaped_and_written(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The values in another shape, as a row of an array has, that are read and have several elements replaced.

    XLA:CPU replaces them in place, in one kernel with what computes the new ones from others, if it overlooks that
    these are of the same array. It does where it reads them in the old shape: a barrier keeps to the new one.
    """
    made = ir.makers(jaxpr)
    found = [(v, ir.maker(v, made)) for v in _read_and_written(jaxpr)]
    return frozenset(
        v for v, m in found if m is not None and (rules.is_view(m) or m.primitive.name == READS)
    )


@ir.once_per_jaxpr
def _read_and_written(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The values that are read and have several elements replaced, here or in what is called here."""
    users = ir.users(jaxpr)
    found = ((eqn, v) for eqn in jaxpr.eqns for v in _replaced(eqn, _read_and_written))
    return frozenset(v for eqn, v in found if eqn.primitive.name != WRITES or len(users[v]) > 1)


@ir.once_per_jaxpr
def replaced_in(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The values that have several elements replaced, here or in what is called here."""
    return frozenset(v for eqn in jaxpr.eqns for v in _replaced(eqn, replaced_in))


def _replaced(eqn: ir.Eqn, within: Callable[[ir.Jaxpr], Set[ir.Var]]) -> Iterator[ir.Var]:
    """The operands of which several elements are replaced, by a write or `within` a jaxpr that is called."""
    if eqn.primitive.name == WRITES and eqn.invars[1].aval.shape != ():
        yield from ir.used_vars(eqn.invars[:1])
    for body in rules.plain_bodies(eqn.primitive, eqn.params):
        if body.role not in ("loop", "branch"):
            pairs = zip(reversed(body.jaxpr.invars), reversed(eqn.invars), strict=False)
            yield from ir.used_vars([a for v, a in pairs if v in within(body.jaxpr)])


@ir.once_per_jaxpr
def computed_and_written(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The arrays that have blocks replaced by what is read from arrays, and are computed of arrays that are read so.

    XLA:CPU does all of it in one kernel, which asks of each element whether it is replaced, one after the other. That
    takes up to 13 times as long as one kernel after the other.
    """
    made, readers = ir.makers(jaxpr), [e for e in jaxpr.eqns if _reads_parts(e)]
    parts = {v for e in readers for v in ir.used_vars(e.invars)}
    values = ir.reachable(jaxpr, [v for e in readers for v in e.outvars])
    replaced = (
        v
        for e in jaxpr.eqns
        if e.primitive.name == WRITES and e.params.indexer.is_block and e.invars[1] in values
        for v in ir.used_vars(e.invars[:1])
    )
    return frozenset(v for v in replaced if not parts.isdisjoint(_of_elements(v, made)))


@ir.once_per_jaxpr
def computed_and_moved(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The larger arrays that are computed element by element, and split into parts that are padded.

    Derivatives of what is joined or rolled are. XLA:CPU does all of it in one kernel, which computes each element again
    for each part, and so what that is computed of: up to 4 times as long as one kernel after the other. One that is
    split once pays only if computed of few arrays, as measured; one that a single equation computes does not.
    """
    made, users = ir.makers(jaxpr), ir.users(jaxpr)
    splits = Counter[ir.Var]()
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == _SPLITS and any(
            user.primitive.name == _PADS for part in eqn.outvars for user in users.get(part, ())
        ):
            splits.update(ir.used_vars(eqn.invars))
    larger = [
        v for v in splits if ir.is_more(ir.size_of(v.aval.shape), _SMALL) and _is_dear(v, made)
    ]
    few = {v for v in larger if len(_sources(v, made)) <= _FEW}
    return frozenset(v for v in larger if splits[v] > 1 or v in few)


def _is_dear(v: ir.Var, made: Mapping[ir.Var, ir.Eqn]) -> bool:
    """Whether several equations compute an array element by element: what one does is done again for less."""
    eqn = _by_element(v, made)
    return eqn is not None and any(_by_element(x, made) for x in ir.used_vars(eqn.invars))


def _reads_parts(eqn: ir.Eqn) -> bool:
    """Whether an equation reads an array otherwise than element by element."""
    by_element = rules.by_element_rules.find(eqn.primitive)
    return not by_element and any(v.aval.shape for v in ir.used_vars(eqn.invars))


def _of_elements(v: ir.Var, made: Mapping[ir.Var, ir.Eqn]) -> set[ir.Var]:
    """The arrays of which the elements of an array are computed, each of that at its place."""
    found, waiting = set[ir.Var](), [v]
    while waiting:
        eqn = _by_element(waiting.pop(), made)
        if eqn is not None:
            alike = {x for x in ir.used_vars(eqn.invars) if x.aval.shape == v.aval.shape}
            waiting += alike - found
            found |= alike
    return found


def _sources(v: ir.Var, made: Mapping[ir.Var, ir.Eqn]) -> set[ir.Var]:
    """The arrays of which the elements of an array are computed, and that are not so themselves."""
    return {x for x in _of_elements(v, made) if _by_element(x, made) is None}


def _by_element(v: ir.Var, made: Mapping[ir.Var, ir.Eqn]) -> ir.Eqn | None:
    """The equation that computes an array element by element, if one does."""
    eqn = made.get(v)
    return eqn if eqn is not None and rules.by_element_rules.find(eqn.primitive) else None


@ir.once_per_jaxpr
def read_in_another_shape(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The reshaped values of which the original, or the original in a third shape, is read, too.

    An original that is computed twice counts as one: XLA makes it one.
    """
    equal = ir.Equal()
    originals, read = dict[ir.Var, Hashable](), dict[Hashable, set[Hashable]]()
    for eqn in jaxpr.eqns:
        equal.note(eqn)
        for v in ir.used_vars(eqn.invars):
            original = originals.get(v, equal.known(v))
            if _reshapes(eqn):
                originals[eqn.outvars[0]] = original
            else:
                read.setdefault(original, set()).add(equal.known(v))
    return frozenset(v for v, of in originals.items() if read.get(of, set()) - {equal.known(v)})


def _reshapes(eqn: ir.Eqn) -> bool:
    """Whether an equation gives all elements of its operand, as one of a single row does, too."""
    sizes = {math.prod(a.aval.shape) for a in (eqn.invars[0], *eqn.outvars)} if eqn.invars else ()
    return len(sizes) == 1 and rules.is_view(eqn)


class Kernels:
    """The values of a jaxpr that XLA:CPU must not compute in one kernel with what replaces elements, or splits them."""

    def __init__(self, jaxpr: ir.Jaxpr) -> None:
        self.apart = reshaped_and_written(jaxpr)
        self.reshaped = read_in_another_shape(jaxpr)
        self.first = computed_and_written(jaxpr) | computed_and_moved(jaxpr)
