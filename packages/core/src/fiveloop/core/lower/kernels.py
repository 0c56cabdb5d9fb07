"""Which values XLA:CPU must not compute in one kernel with what uses them: it would be wrong, or slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set

from fiveloop.core import ir, rules

READS, WRITES = "take", "put"
_BRANCHES = frozenset(["pad", "concatenate"])
"""Within a kernel they ask of each element where it comes from, which takes `_BRANCH` operations for each answer."""
_BY_ELEMENT = frozenset(["select", "convert", "integer_pow", "relu", "reduce_precision"])
_MOVES = _BRANCHES | {"split", "reverse"}
_READS_ELSEWHERE = _MOVES | {READS}
_BRANCH, _KEEP, _LIGHT = 2, 8, 3
"""Operations: of a branch, those that take as long as to write an element, and those that pay to read one instead."""
_KERNEL, _CALL = 1024, 4096
"""To begin another kernel takes as long as to write so many elements in it, and to call one outside of a loop, which
is how XLA:CPU is kept from fusing where it drops barriers."""
_SMALL = 127
"""So many elements, or fewer, are computed again for less than another kernel takes."""
_MOST_USES = 16
"""So many are told apart; XLA:CPU computes hardly more in one kernel."""


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
def computed_again(jaxpr: ir.Jaxpr, calls: bool) -> frozenset[ir.Var]:
    """The arrays that XLA:CPU would compute again so often, or so dearly, that it is faster to keep them in memory.

    Those that are kept are passed through a function if it `calls`.

    It computes what is computed element by element, moved or reduced in each kernel that uses it, and in one kernel
    again for each place of an element. So steps that add neighbours, one after the other, compute the first of them
    exponentially often: up to 30 times as long as one kernel after the other. Arrays that nothing moves are left to it:
    to keep those, too, made gradients of networks need 1.1 to 1.4 times the memory.
    """
    moving = (eqn for eqn in jaxpr.eqns if eqn.primitive.name in _READS_ELSEWHERE)
    if not any(map(_is_large, ir.used_vars(a for eqn in moving for a in eqn.invars))):
        return frozenset()
    own, kernel = [_own_operations(eqn) for eqn in jaxpr.eqns], _CALL if calls else _KERNEL
    times = _times_again(jaxpr, own, _operations(jaxpr, own, {}, kernel)[0], kernel)
    return _operations(jaxpr, own, times, kernel)[1]


def _operations(
    jaxpr: ir.Jaxpr, own: Sequence[int | None], times: Mapping[ir.Var, int], kernel: int
) -> tuple[Mapping[ir.Var, int], frozenset[ir.Var]]:
    """The operations, one after the other, from what is in memory to an element of each array; and which to keep.

    Those are kept for which that pays, of those that are computed again so many `times`.
    """
    found, kept, joined = dict[ir.Var, int](), set[ir.Var](), _joined_once(jaxpr)
    for eqn, count in zip(jaxpr.eqns, own, strict=True):
        if count is None or not joined.isdisjoint(eqn.outvars):
            continue
        before = max([found.get(x, 0) for x in ir.used_vars(eqn.invars)], default=0)
        total = count * (1 + before) if _reduces(eqn) else count + before
        for v in eqn.outvars:
            keeps = v in times and _pays(total, times[v], v.aval, kernel)
            kept |= {v} if keeps else set()
            found[v] = 0 if keeps else total
    return found, frozenset(kept)


def _times_again(
    jaxpr: ir.Jaxpr, own: Sequence[int | None], operations: Mapping[ir.Var, int], kernel: int
) -> Mapping[ir.Var, int]:
    """How many times the arrays that are moved are computed again, if that takes longer than to keep them.

    Those that are computed in the same way count as one: XLA makes them one. Two kernels that need an array where it
    is compute it twice, which saves the memory of a residual that they share.
    """
    known, found = _equal(jaxpr).known, dict[Hashable, int]()
    uses = dict[Hashable, frozenset[int]]()
    none, numbers, moved = frozenset[int](), dict[Hashable, int](), set[int]()
    joined = _joined_once(jaxpr)

    def number(use: Hashable) -> int:
        return numbers.setdefault(use, len(numbers))

    for x in map(known, ir.used_vars(jaxpr.outvars)):
        uses[x] = frozenset([number(x)])
    for eqn, count in zip(reversed(jaxpr.eqns), reversed(own), strict=True):
        if any(known(v) is not v for v in eqn.outvars[:1]):
            continue
        here = none
        for v in eqn.outvars:
            of, times = uses.get(v, none), len(uses.get(v, none)) - 1
            is_moved = times > 0 and not moved.isdisjoint(of)
            pays = _pays(operations.get(v, 0), times, v.aval, kernel)
            if v in joined:
                of = frozenset([number(v)])
            elif is_moved and _is_large(v) and pays:
                found[v] = times
                of = frozenset([number(v)])
            here = here | of if here else of
        if count is None:
            called = rules.plain_bodies(eqn.primitive, eqn.params)
            here = here if called else frozenset([number(eqn)])
        elif not _is_by_element(eqn):
            moves = eqn.primitive.name in _READS_ELSEWHERE or not moved.isdisjoint(here)
            here = frozenset([number((eqn, use)) for use in here])
            moved |= here if moves else none
        for x in map(known, ir.used_vars(eqn.invars)):
            there = uses.get(x, none)
            if not there or len(there) < _MOST_USES:
                uses[x] = there | here if there else here
    return {v: found[known(v)] for e in jaxpr.eqns for v in e.outvars if known(v) in found}


@ir.once_per_jaxpr
def _joined_once(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The arrays that are joined of others and used several times: XLA:CPU computes these once."""
    users = ir.users(jaxpr)

    def is_shared(v: ir.Var) -> bool:
        while len(uses := users.get(v, ())) == 1 and rules.is_view(uses[0]):
            v = uses[0].outvars[0]
        return len(uses) > 1

    joins = (e.outvars[0] for e in jaxpr.eqns if e.primitive.name == "concatenate")
    return frozenset(filter(is_shared, joins))


def _is_large(v: ir.Var) -> bool:
    """Whether an array is so large that it may pay to keep it."""
    return ir.is_more(ir.size_of(v.aval.shape), _SMALL)


def _pays(operations: int, times: int, aval: ir.Aval, kernel: int) -> bool:
    """Whether to keep an array takes less than to compute it again so many times."""
    size = ir.size_of(aval.shape)
    return operations >= _LIGHT and operations * times * size > _KEEP * max(size, kernel)


def _own_operations(eqn: ir.Eqn) -> int | None:
    """The operations for an element of a result without those for its operands; None if it is in memory at once."""
    if _is_by_element(eqn):
        return _operations_by_element(eqn)
    if _reduces(eqn):
        size = ir.size_of(eqn.outvars[0].aval.shape)
        return ir.size_of(eqn.invars[0].aval.shape) // size if size else None
    if eqn.primitive.name in _BRANCHES:
        return _BRANCH * (len(eqn.invars) - 1)
    return 0 if _moves(eqn) else None


def _operations_by_element(eqn: ir.Eqn) -> int:
    """The operations of an equation that works element by element, for one of them."""
    cost = rules.cost_rules.find(eqn.primitive)
    if cost is None or eqn.primitive.name in _BY_ELEMENT:
        return 1
    return cost([ir.ShapedArray((), a.aval.dtype) for a in eqn.invars], eqn.params).flops


def _reads_parts(eqn: ir.Eqn) -> bool:
    """Whether an equation reads an array otherwise than element by element."""
    by_element = rules.by_element_rules.find(eqn.primitive)
    return not by_element and any(v.aval.shape for v in ir.used_vars(eqn.invars))


def _is_by_element(eqn: ir.Eqn) -> bool:
    """Whether each element of a result is computed of those at its place."""
    return eqn.primitive.name in _BY_ELEMENT or bool(rules.by_element_rules.find(eqn.primitive))


def _moves(eqn: ir.Eqn) -> bool:
    """Whether the elements of a result are those of an operand, elsewhere."""
    return rules.is_view(eqn) or eqn.primitive.name in _MOVES


def _reduces(eqn: ir.Eqn) -> bool:
    """Whether each of several elements is a sum, or the like, of some of an operand."""
    return eqn.primitive.name.startswith("reduce_") and eqn.outvars[0].aval.shape != ()


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


def _by_element(v: ir.Var, made: Mapping[ir.Var, ir.Eqn]) -> ir.Eqn | None:
    """The equation that computes an array element by element, if one does."""
    eqn = made.get(v)
    return eqn if eqn is not None and rules.by_element_rules.find(eqn.primitive) else None


@ir.once_per_jaxpr
def read_in_another_shape(jaxpr: ir.Jaxpr) -> frozenset[ir.Var]:
    """The reshaped values of which the original, or the original in a third shape, is read, too.

    An original that is computed twice counts as one: XLA makes it one.
    """
    equal = _equal(jaxpr)
    originals, read = dict[ir.Var, Hashable](), dict[Hashable, set[Hashable]]()
    for eqn in jaxpr.eqns:
        for v in ir.used_vars(eqn.invars):
            original = originals.get(v, equal.known(v))
            if _reshapes(eqn):
                originals[eqn.outvars[0]] = original
            else:
                read.setdefault(original, set()).add(equal.known(v))
    return frozenset(v for v, of in originals.items() if read.get(of, set()) - {equal.known(v)})


@ir.once_per_jaxpr
def _equal(jaxpr: ir.Jaxpr) -> ir.Equal:
    """Which values of a jaxpr are computed in the same way."""
    equal = ir.Equal()
    for eqn in jaxpr.eqns:
        equal.note(eqn)
    return equal


@ir.once_per_jaxpr
def saves_memory(jaxpr: ir.Jaxpr) -> bool:
    """Whether something in a jaxpr, at any depth, is computed again to save memory."""
    bodies = [body for eqn in jaxpr.eqns for body in rules.bodies_of(eqn)]
    return any(b.role in ("checkpointed", "recomputed") or saves_memory(b.jaxpr) for b in bodies)


def _reshapes(eqn: ir.Eqn) -> bool:
    """Whether an equation gives all elements of its operand, as one of a single row does, too."""
    sizes = {math.prod(a.aval.shape) for a in (eqn.invars[0], *eqn.outvars)} if eqn.invars else ()
    return len(sizes) == 1 and rules.is_view(eqn)


class Kernels:
    """The values of a jaxpr that XLA:CPU must not compute in one kernel with what replaces elements, or uses them.

    A program that `saves_memory` computes again what it does not keep on purpose, except what is split. What is kept
    is passed through a function if it `calls`.
    """

    def __init__(self, jaxpr: ir.Jaxpr, saves_memory: bool, calls: bool) -> None:
        self.apart = reshaped_and_written(jaxpr)
        self.reshaped = read_in_another_shape(jaxpr)
        self.first = computed_first(jaxpr, saves_memory, calls)


def computed_first(jaxpr: ir.Jaxpr, saves_memory: bool, calls: bool) -> frozenset[ir.Var]:
    """The values that are kept in memory so that no kernel computes them again; see `Kernels`."""
    splits = [e for e in jaxpr.eqns if e.primitive.name == "split"]
    again = frozenset[ir.Var]()
    if splits or not saves_memory:
        again = computed_again(jaxpr, calls)
    if again and saves_memory:
        again &= ir.used_by(splits)
    return computed_and_written(jaxpr) | again
