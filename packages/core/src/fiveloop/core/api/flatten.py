"""Flattens arguments to operands: pytrees to leaves, a Ref to one operand, a part of a Ref to base and index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from inspect import Parameter, signature
from itertools import combinations
from typing import Any, cast

from fiveloop.core import ad, arrays, errors, ir, pytree, rules, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.backend.tree import IsLeaf, KeyPath, TreeDef
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import layout, overlap
from fiveloop.core.index.access import View, base_of
from fiveloop.core.ir.indexer import Indexer, whole_indexer
from fiveloop.core.primitives import check
from fiveloop.core.trace.stage import StageTrace, StageTracer
from fiveloop.core.trace.tracer import ARGUMENT, Trace, Tracer, current_trace
from fiveloop.core.util import T


def function_name(fun: object) -> str:
    """The name that a function goes by in messages and modules."""
    return getattr(fun, "__name__", None) or type(fun).__name__


def check_callable(what: str, fun: object) -> None:
    """Raise TypeError if something that should be a function cannot be called.

    `what` names the caller in the message, which ends with the user's line.

    >>> check_callable("apply", abs)
    >>> check_callable("apply", 3)
    Traceback (most recent call last):
    TypeError: apply: expected a function, got 3 of type int
      at ...
    """
    if not callable(fun):
        raise errors.no_function(what, fun, trace.current_source())


Naming = Callable[[KeyPath], str]
"""What a leaf is called in messages, by its path."""


def flatten_values(tree: Any, what: str | Naming) -> tuple[list[Value], TreeDef]:
    """The leaves of a pytree as values; TypeError with the path of a leaf that is no value.

    `what` names the tree, or is a function that names each leaf.
    """
    leaves, treedef = flatten_located(tree, what=what)
    try:
        return [arrays.as_value(x) for x in leaves], treedef
    except (TypeError, OverflowError):
        pass
    return [
        arrays.as_value(x, named(what, path)) for path, x in pytree.tree_flatten_with_path(tree)[0]
    ], treedef


def named(what: str | Naming, path: KeyPath) -> str:
    """What the part of a tree at a path is called, if the tree is called `what`."""
    return f"{what}{pytree.keystr(path)}" if isinstance(what, str) else what(path)


def flatten_located(
    tree: Any, is_leaf: IsLeaf | None = None, what: str | Naming = "a tree"
) -> tuple[list[Any], TreeDef]:
    """`tree_flatten`; what it says of dict keys without an order names the dict, and ends with the user's line."""
    try:
        return pytree.tree_flatten(tree, is_leaf)
    except TypeError as error:
        found = pytree.unordered(tree, is_leaf)
        if found is not None:
            _, expected, rest = str(error).partition(": expected dict keys")
            error.args = (f"{named(what, found[0])}{expected}{rest}",)
        trace.locate(error)
        raise


def argument_naming(what: str, fun: object, numbers: Sequence[int] | None = None) -> Naming:
    """What the leaves of `(args, kwargs)` of a call of `fun` are called: "grad of f: argument `x`['w']".

    `numbers` says which of the function's positional arguments `args` holds, if not all.
    """
    return call_naming(
        lambda: f"{what} of {function_name(fun)}",
        lambda k: argument_name(fun, k if numbers is None else numbers[k]),
    )


def call_naming(call: Callable[[], str], placed: Callable[[int], str]) -> Naming:
    """What the leaves of `(args, kwargs)` are called, from what the call and a positional argument are called."""

    def name(path: KeyPath) -> str:
        if len(path) < 2:
            return f"{call()}: arguments"
        kind, first, *inner = path
        called = f"`{first.key}`" if kind.idx == 1 else placed(first.idx)
        return f"{call()}: argument {called}{pytree.keystr(tuple(inner))}"

    return name


def leaf_naming(tree: Any, naming: Naming) -> Callable[[int], str]:
    """What a leaf is called, by its number; found only when a message asks for it."""
    return lambda k: naming(pytree.tree_flatten_with_path(tree)[0][k][0])


def argument_name(fun: object, k: int) -> str:
    """A positional argument as messages show it: by its name where the signature tells, else by its number."""
    known = parameters(fun)
    return f"`{known.placed[k]}`" if known is not None and k < len(known.placed) else str(k)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a signature tells: all names, those that have a place, and whether others are taken by place or by name."""

    names: list[str]
    placed: list[str]
    takes_more: bool
    takes_names: bool


def parameters(fun: object) -> Parameters | None:
    """The parameters of a function, where its signature tells."""
    try:
        known = list(signature(fun).parameters.values())  # type: ignore[arg-type]  # anything may be tried
    except (TypeError, ValueError):
        return None
    kinds = [q.kind for q in known]
    return Parameters(
        [q.name for q in known],
        [q.name for q in known if q.kind in (q.POSITIONAL_ONLY, q.POSITIONAL_OR_KEYWORD)],
        Parameter.VAR_POSITIONAL in kinds,
        Parameter.VAR_KEYWORD in kinds,
    )


def as_result(x: Value) -> Value:
    """A value as users are given it: a number on the host becomes an array."""
    return arrays.to_array(x) if isinstance(x, arrays.Scalar) else x


def call_user(what: str, takes: str, fun: Callable[..., Any], *args: Any) -> Any:
    """Call `fun(*args)`; a TypeError that names the parameters it must have, `takes`, if their number is wrong.

    >>> call_user("apply", "(x, y)", lambda x, y: x + y, 1, 2)
    3
    """
    try:
        return fun(*args)
    except TypeError as error:
        # An error from within the function has a frame of its own.
        inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
        if inside or _accepts(fun, args):
            if not inside:  # a function of C, which has no line of its own
                errors.add_source(error, trace.current_source())
            raise
        known = [p.replace(annotation=Parameter.empty) for p in signature(fun).parameters.values()]
        raise TypeError(
            f"{what} must take {takes}, but `{ir.function_source(fun)}` takes ({', '.join(map(str, known))})"
            f"{errors.at_source(trace.current_source())}"
        ) from None


def _accepts(fun: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    try:
        signature(fun).bind(*args)
    except TypeError:
        return False
    except ValueError:
        return True  # a function of C that tells no signature
    return True


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


_given: util.OfThread[tuple[Value, ...]] = util.OfThread(())


def giving(values: ad.Values) -> AbstractContextManager[object]:
    """While a function runs, the mutable values that it is given are not its own."""
    return _given.to((*_given.value, *values))


def is_given(x: Value) -> bool:
    """Whether a function is given a mutable value, or it comes from outside of what is being staged."""
    if any(x is y for y in _given.value):
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
    layouts: tuple[layout.Layout, ...]


@dataclass(frozen=True, slots=True)
class OperandTree:
    """The structure of arguments some of which are views: it stands where a `TreeDef` does."""

    tree: TreeDef
    leaves: tuple[_Leaf, ...]

    def unflatten(self, operands: Iterable[Any]) -> Any:
        """The arguments, from their operands."""
        given = list(operands)
        return self.tree.unflatten([leaf.of(given) for leaf in self.leaves])

    def children(self) -> list[TreeDef]:
        """The structures of the parts."""
        return self.tree.children()


def flatten_arguments(tree: Any, naming: Naming) -> tuple[list[Value], TreeDef]:
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
    return operands, cast(TreeDef, OperandTree(treedef, places))


def _leaf(x: Value, number: Callable[[Value], int]) -> _Leaf:
    if not isinstance(x, View):
        return _Leaf(number(x))
    outer = _leaf(x.outer, number)
    index = tuple([number(i) for i in x.operands])
    return _Leaf(outer.operand, (*outer.views, _View(type(x), x.indexer, index, x.layouts)))


def check_places(tree: Any, naming: Naming) -> list[Value]:
    """The mutable values in a tree. ValueError if one is in two places, unless as views that lie apart."""
    leaves, _ = flatten_located(tree, what=naming)
    mutable = [x for x in leaves if isinstance(x, Value) and x.aval.accumulates]
    if mutable:
        check_mutable(tree, flatten_values(tree, naming)[0], naming)
    return mutable


def spread(tree: TreeDef, given: Sequence[T], num: int, none: T) -> list[T]:
    """What is given for each leaf as something for each of `num` operands: `none` for what views are made of."""
    if not isinstance(tree, OperandTree):
        return list(given)
    out = [none] * num
    for leaf, x in zip(tree.leaves, given, strict=True):
        if not leaf.views:
            out[leaf.operand] = x
    return out


def parts_among(tree: TreeDef, count: int, wanted: Sequence[bool]) -> list[bool]:
    """Which of the leaves of arguments are parts of operands that `wanted` marks."""
    if not isinstance(tree, OperandTree):
        return [False] * count
    return [bool(leaf.views) and wanted[leaf.operand] for leaf in tree.leaves]


def with_tangents(tree: TreeDef, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
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
        found = overlap.overlap(*_place(x), *_place(y), base_of(x).shape)
        if found != "apart":
            nested = any(isinstance(v, View) and v.outer is not v.base for v in (x, y))
            found = "unknown" if nested else found
            paths = [path for path, _ in pytree.tree_flatten_with_path(tree)[0]]
            raise _goes_in_twice(naming, (paths[k], x), (paths[m], y), found)


def refuse_donated(tree: Any, donated: Any, naming: Naming, consts: Sequence[Any] = ()) -> None:
    """Raise DonatedError that names the argument if a call failed because its memory is given away.

    `donated` are the parts of the arguments that the call itself donates, and `consts` what its program closes over.
    """
    given = {id(x.buffer) for x in pytree.tree_leaves(donated) if type(x) is arrays.Array}
    held = {id(buffer) for buffer in consts}
    seen = held.copy()
    for path, x in pytree.tree_flatten_with_path(tree)[0]:
        if type(x) is not arrays.Array:
            continue
        told = "has been donated, and is gone; copy it before, or use the result of that call"
        if not x.buffer.is_deleted():
            closed = id(x.buffer) in held
            place = "closed over by the function" if closed else "in another place of this call"
            told = f"is {place} too, which donates it; copy it"
            if id(x.buffer) not in seen & given:
                seen.add(id(x.buffer))
                continue
        raise errors.DonatedError(f"{naming(path)} of type {x.aval} {told}") from None
    gone = next((buffer for buffer in consts if buffer.is_deleted()), None)
    if gone is not None:
        what = naming(()).partition(": ")[0]
        raise errors.DonatedError(
            f"{what}: an array of type {gone.aval} that the function closes over has been donated, and is gone; copy "
            f"it before"
        ) from None


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
        told = f"may overlap: they are {x} and {y} of one Ref, and their indices are known only at run time"
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


def refuse_closed_over(naming: Naming, captured: ad.Values, args: ad.Values, tree: TreeDef) -> None:
    """Raise ValueError if a mutable value is an argument of a function that also closes over it."""
    held = {id(x) for x in captured if x.aval.accumulates}
    if not any(id(x) in held for x in args):
        return
    for path, x in pytree.tree_flatten_with_path(pytree.tree_unflatten(tree, args))[0]:
        if id(base_of(x)) in held:
            what, name = naming(path).split(": ", 1)
            raise ValueError(
                f"{what}: {name} is {_shown(x)}, which the function also closes over, so that what is written "
                f"through one would be lost; pass it, or close over it"
            )


@dataclass(frozen=True)
class ShapeDtype:
    """The shape and dtype of an array that need not exist; `make_jaxpr`, `eval_shape` and `lower` take it."""

    shape: tuple[int, ...]
    dtype: Any


def is_spec(x: object) -> bool:
    """Whether something describes an array instead of being one."""
    return isinstance(x, (ShapeDtype, ir.Aval))


def aval_of(x: Any, what: str = "argument") -> ir.Aval:
    """The type of a value or of a description of one."""
    if isinstance(x, ir.Aval):
        return x
    if isinstance(x, ShapeDtype):
        return ir.ShapedArray(
            check.canonical_shape(what, x.shape), check.canonical_dtype(what, x.dtype)
        )
    return arrays.as_value(x, what).aval
