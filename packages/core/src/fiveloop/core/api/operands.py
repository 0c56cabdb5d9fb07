"""Arguments of a call as operands: a Ref is one operand, a part of a Ref is its base and its index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any, TypeVar, cast

from fiveloop.core import ad, arrays, errors, ir, pytree, rules, transforms
from fiveloop.core.api.flatten import Naming, flatten_values
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import apart as index_apart
from fiveloop.core.index import layout as index_layout
from fiveloop.core.index.views import View, base_of
from fiveloop.core.ir.indexer import Indexer, whole_indexer
from fiveloop.core.trace.stage import StageTrace, StageTracer
from fiveloop.core.trace.tracer import ARGUMENT, Trace, Tracer, current_trace


@dataclass(frozen=True, slots=True)
class StandIn:
    """A mutable value made of some contents; `before` is the buffer of these, if it exists now."""

    value: Value
    before: Any

    @property
    def is_changed(self) -> bool:
        """Whether something may have been written to it."""
        x = innermost(self.value)
        if isinstance(x, StageTracer) and isinstance(x.owner, StageTrace):
            eqns = x.owner.eqns
            written = [eqn.invars[k] for eqn in eqns for k in ir.mutated_positions(eqn.effects)]
            return any(atom is x.binder for atom in written)
        return _buffer(x) is not self.before


def stand_in(contents: Value, aval: ir.Aval) -> StandIn:
    """A new mutable value of the kind of a type, with these contents."""
    value = holding(contents, aval)
    return StandIn(value, _buffer(innermost(value)))


def holding(contents: Value, aval: ir.Aval) -> Value:
    """A new mutable value of the kind of a type, with these contents."""
    make = rules.type_rules(aval).holding
    assert make is not None, "unreachable: the value can change"
    return make(contents)


def innermost(x: Value) -> Value:
    """What a value is to the trace that writes down, or to nobody: without tangents and batch axes."""
    while isinstance(x, transforms.JvpTracer | transforms.BatchTracer):
        x = x.primal if isinstance(x, transforms.JvpTracer) else x.value
    return x


class _Given(threading.local):
    values: tuple[Value, ...] = ()


_given = _Given()


@contextmanager
def giving(values: ad.Values) -> Iterator[None]:
    """While a function runs, the mutable values that it is given are not its own."""
    before = _given.values
    _given.values = (*before, *values)
    try:
        yield
    finally:
        _given.values = before


def is_given(x: Value) -> bool:
    """Whether a function is given a mutable value, or it comes from outside of what is being staged."""
    if any(x is y for y in _given.values):
        return True
    trace: Trace | None = current_trace()
    while trace is not None and type(trace) is not StageTrace:
        trace = trace.parent
    if trace is None:
        return False
    x = innermost(x)
    return not isinstance(x, StageTracer) or x.owner is not trace or x.source is ARGUMENT


def _buffer(x: Value) -> Any:
    return None if isinstance(x, Tracer) else rules.type_rules(x.aval).buffer(x)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf of the arguments: the operand that it is; for a view, its base, and each view from that to it."""

    operand: int
    views: tuple[_View, ...] = ()

    def of(self, operands: Sequence[Any]) -> Any:
        """The leaf, from the operands."""
        out = operands[self.operand]
        for view in self.views:
            index = [operands[k] for k in view.index]
            out = view.kind(out, view.indexer, index, view.layouts)
        return out


@dataclass(frozen=True, slots=True)
class _View:
    """A view: where in the outer value it is, and which operands of the call its index has."""

    kind: type[View]
    indexer: Indexer
    index: tuple[int, ...]
    layouts: tuple[index_layout.Layout, ...]


@dataclass(frozen=True, slots=True)
class OperandTree:
    """The structure of arguments some of which are views: it stands where a `TreeDef` does."""

    tree: pytree.TreeDef
    leaves: tuple[_Leaf, ...]

    def unflatten(self, operands: Iterable[Any]) -> Any:
        """The arguments, from their operands."""
        given = list(operands)
        return self.tree.unflatten([leaf.of(given) for leaf in self.leaves])

    def children(self) -> list[pytree.TreeDef]:
        """The structures of the parts."""
        return self.tree.children()


def flatten_arguments(tree: Any, naming: Naming) -> tuple[list[Value], pytree.TreeDef]:
    """The operands of a call with these arguments, and their structure.

    Raises ValueError if one mutable value goes in twice, unless as views that lie apart.
    """
    leaves, treedef = flatten_values(tree, naming)
    if not any(x.aval.accumulates for x in leaves):
        return leaves, treedef
    check_mutable(tree, leaves, naming)
    if not any(isinstance(x, View) for x in leaves):
        return leaves, treedef
    operands: list[Value] = []
    numbers: dict[int, int] = {}

    def number(x: Value) -> int:
        if id(x) not in numbers:
            numbers[id(x)] = len(operands)
            operands.append(x)
        return numbers[id(x)]

    places = tuple([_leaf(x, number) for x in leaves])
    # What is asked of a TreeDef is asked of this.
    return operands, cast(pytree.TreeDef, OperandTree(treedef, places))


def _leaf(x: Value, number: Callable[[Value], int]) -> _Leaf:
    if not isinstance(x, View):
        return _Leaf(number(x))
    outer = _leaf(x.outer, number)
    index = tuple([number(i) for i in x.operands])
    return _Leaf(outer.operand, (*outer.views, _View(type(x), x.indexer, index, x.layouts)))


def check_places(tree: Any, naming: Naming) -> list[Value]:
    """The mutable values in a tree. ValueError if one is in two places, unless as views that lie apart."""
    mutable = [x for x in pytree.tree_leaves(tree) if isinstance(x, Value) and x.aval.accumulates]
    if mutable:
        check_mutable(tree, flatten_values(tree, naming)[0], naming)
    return mutable


def spread(tree: pytree.TreeDef, given: Sequence[T], num: int, none: T) -> list[T]:
    """What is given for each leaf as something for each of `num` operands: `none` for what views are made of."""
    if not isinstance(tree, OperandTree):
        return list(given)
    out = [none] * num
    for leaf, x in zip(tree.leaves, given, strict=True):
        if not leaf.views:
            out[leaf.operand] = x
    return out


def parts_among(tree: pytree.TreeDef, count: int, wanted: Sequence[bool]) -> list[bool]:
    """Which of the leaves of arguments are parts of operands that `wanted` marks."""
    if not isinstance(tree, OperandTree):
        return [False] * count
    return [bool(leaf.views) and wanted[leaf.operand] for leaf in tree.leaves]


def with_tangents(
    tree: pytree.TreeDef, primals: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """The operands that make the tangents of arguments: the index of a view is that of its tangent."""
    out = list(tangents)
    for leaf in tree.leaves if isinstance(tree, OperandTree) else ():
        for k in [k for view in leaf.views for k in view.index]:
            out[k] = primals[k]
    return out


def check_mutable(tree: Any, leaves: ad.Values, naming: Naming) -> None:
    """Hand the mutable values among the leaves of a tree on to a function.

    Raises ValueError if two of them are, or may be, the same part of one.
    """
    mutable = [(k, x) for k, x in enumerate(leaves) if x.aval.accumulates]
    for base in [base_of(x) for _, x in mutable]:
        if base._note is not None:
            base._note = base._note.handed_on(base)
    for (k, x), (m, y) in combinations(mutable, 2):
        if base_of(x) is not base_of(y):
            continue
        found = index_apart.overlap(*_place(x), *_place(y), base_of(x).shape)
        if found != "apart":
            nested = any(isinstance(v, View) and v.outer is not v.base for v in (x, y))
            found = "unknown" if nested else found
            paths = [path for path, _ in pytree.tree_flatten_with_path(tree)[0]]
            raise _goes_in_twice(naming, (paths[k], x), (paths[m], y), found)


def refuse_donated(tree: Any, donated: Any, naming: Naming) -> None:
    """Raise DonatedError that names the argument if a call failed because its memory is given away.

    `donated` are the parts of the arguments that the call itself donates.
    """
    given = {id(x.buffer) for x in pytree.tree_leaves(donated) if type(x) is arrays.Array}
    seen: set[int] = set()
    for path, x in pytree.tree_flatten_with_path(tree)[0]:
        if type(x) is not arrays.Array:
            continue
        told = "has been donated, and is gone; copy it before, or use the result of that call"
        if not x.buffer.is_deleted():
            told = "is in another place of this call too, which donates it; copy it"
            if id(x.buffer) not in seen & given:
                seen.add(id(x.buffer))
                continue
        raise errors.DonatedError(f"{naming(path)} of type {x.aval} {told}") from None


def _place(x: Value) -> tuple[Indexer, ad.Values]:
    """Where a value lies in its base; of a view of a view, where the outer one does."""
    if not isinstance(x, View):
        return whole_indexer(x.shape), ()
    return _place(x.outer) if isinstance(x.outer, View) else (x.indexer, x.operands)


def _goes_in_twice(
    naming: Naming,
    one: tuple[pytree.KeyPath, Value],
    other: tuple[pytree.KeyPath, Value],
    found: str,
) -> ValueError:
    what, first = naming(one[0]).split(": ", 1)
    second = naming(other[0]).split(": ", 1)[1]
    x, y = _shown(one[1]), _shown(other[1])
    if not isinstance(one[1], View) and not isinstance(other[1], View):
        told, advice = f"are one {x}", "pass it once"
    elif found == "overlap":
        told, advice = (
            f"are parts of one Ref that overlap, {x} and {y}",
            "pass parts that lie apart",
        )
    else:
        told = f"may overlap: they are {x} and {y} of one Ref, and where these lie is known only at run time"
        advice = "pass the Ref once, and the indices beside it"
    return ValueError(
        f"{what}: {first} and {second} {told}, so that what is written through one would change the other; {advice}"
    )


def _shown(x: Value) -> str:
    if not isinstance(x, View):
        return str(x.aval)
    count = len(x.all_operands)
    names = ["i"] if count == 1 else [f"i{k}" for k in range(count)]
    return f"{x.base.aval}{x.pretty(names)}"


def refuse_closed_over(
    naming: Naming, captured: ad.Values, operands: ad.Values, tree: pytree.TreeDef
) -> None:
    """Raise ValueError if a mutable value is an argument of a function that also closes over it."""
    held = {id(x) for x in captured if x.aval.accumulates}
    if not any(id(x) in held for x in operands):
        return
    for path, x in pytree.tree_flatten_with_path(pytree.tree_unflatten(tree, operands))[0]:
        if id(base_of(x)) in held:
            what, name = naming(path).split(": ", 1)
            raise ValueError(
                f"{what}: {name} is {_shown(x)}, which the function also closes over, so that what is written "
                f"through one would be lost; pass it, or close over it"
            )
