"""The public functions `cond` and `switch`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Literal, TypeVarTuple, overload

import numpy as np

from fiveloop.core import Jaxpr, Value, ad, arrays, ir, prims, pytree, structure, trace, transforms
from fiveloop.core.api import flat_function, flatten
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.util import T, U
from fiveloop.loops import common
from fiveloop.loops.primitives.cond import WAYS, CondParams, cond_p
from fiveloop.state import Ref, predicate

Ts = TypeVarTuple("Ts")
Vmap = Literal["select", "serial", "group"]
NO_OPERAND: Any = object()
"""What `operand` is if it is not given: None is an operand."""


@overload
def cond(
    pred: Any,
    true_fun: Callable[[*Ts], T],
    false_fun: Callable[[*Ts], T],
    *operands: *Ts,
    vmap: Vmap = ...,
) -> T: ...
@overload
def cond(
    pred: Any,
    true_fun: Callable[[U], T],
    false_fun: Callable[[U], T],
    *,
    operand: U,
    vmap: Vmap = ...,
) -> T: ...
@trace.boundary  # type: ignore[misc]  # mypy does not see that `*operands` takes `*Ts`
def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = NO_OPERAND,
    vmap: Vmap = "select",
    **others: Any,
) -> Any:
    """`true_fun(*operands)` if `pred` is true, else `false_fun(*operands)`; only one of them runs.

    `pred` is a bool scalar. Both functions must return results of the same structure, shapes and dtypes; a Python
    number takes the dtype of the other result. They may read and write Refs, passed as operands or closed over. A
    single operand may be passed by name, as `operand=`.

    If the lanes of a `vmap` have different `pred`s, `vmap="select"` runs both functions for all lanes and selects the
    results: a lane changes no Ref in the function that it does not take, and gets no cotangent from it. With "group"
    each function runs on its own lanes, sorted and a block at a time, if that is estimated to be faster, and for all
    lanes otherwise; with "serial" one lane runs after the other, as also with "group" if the functions have effects.

    Raises TypeError if `pred` is no bool scalar, or if the results differ, with the leaf's path and both types.

    >>> cond(True, lambda x: x + 1, lambda x: x - 1, 3)
    Array(4, dtype=int32, weak_type=True)
    """
    given = _operands("cond", operands, operand, others)
    value = _read("cond: pred", pred)
    if value.aval.strong() is not predicate.PREDICATE:
        advice = "reduce it with `all` or `any`, or use `where` to choose element by element"
        raise TypeError(
            f"cond: pred must be a bool scalar, got {value.aval}; "
            f"{advice if value.ndim else 'compare (`x != 0`)'}"
        )
    _check_branches("cond", (false_fun, true_fun))
    how = common.as_choice("cond: vmap", vmap, WAYS)
    return _choose("cond", prims.convert(value, np.int32), (false_fun, true_fun), given, how)


@overload
def switch(
    index: Any, branches: Sequence[Callable[[*Ts], T]], *operands: *Ts, vmap: Vmap = ...
) -> T: ...
@overload
def switch(
    index: Any, branches: Sequence[Callable[[U], T]], *, operand: U, vmap: Vmap = ...
) -> T: ...
@trace.boundary  # type: ignore[misc]  # mypy does not see that `*operands` takes `*Ts`
def switch(
    index: Any,
    branches: Sequence[Callable[..., Any]],
    *operands: Any,
    operand: Any = NO_OPERAND,
    vmap: Vmap = "select",
    **others: Any,
) -> Any:
    """`branches[index](*operands)`; an index out of range takes the nearest branch.

    Operands, results, Refs and `vmap` are as for `cond`.

    Raises TypeError if `index` is no integer scalar; ValueError if there are no branches.

    >>> switch(7, [lambda x: x + 1, lambda x: x * 10], 3)
    Array(30, dtype=int32, weak_type=True)
    """
    given = _operands("switch", operands, operand, others)
    if not isinstance(branches, Iterable):
        raise TypeError(
            f"switch: branches must be a list or a tuple of functions, got {branches!r} of type "
            f"{type(branches).__name__}"
        )
    funs = tuple(branches)
    if not funs:
        raise ValueError("switch: expected at least one branch, got none")
    _check_branches("switch", funs)
    value = _read("switch: index", index)
    if value.ndim or value.dtype.kind not in "iu":
        raise TypeError(f"switch: index must be an integer scalar, got {value.aval}")
    # The bounds fit every integer dtype, once they are no larger than what it holds.
    last = min(len(funs) - 1, int(np.iinfo(value.dtype).max))
    inside = prims.clamp(prims.convert(0, value.dtype), value, prims.convert(last, value.dtype))
    number = prims.convert(inside, np.int32)
    return _choose("switch", number, funs, given, common.as_choice("switch: vmap", vmap, WAYS))


def _check_branches(what: str, funs: Sequence[Any]) -> None:
    for name, fun in zip(_names(what, len(funs)), funs, strict=True):
        flatten.check_callable(f"{what}: {name}", fun)


def _read(what: str, x: Any) -> Value:
    """A value; a Ref has to be read, so that it is plain when."""
    value = arrays.as_value(x, what)
    if isinstance(value, Ref):
        raise TypeError(
            f"{what} must be a scalar, got a Ref of type {value.aval}; its contents are `ref[...]`"
        )
    return value


def _operands(
    what: str, operands: tuple[Any, ...], operand: Any, others: dict[str, Any]
) -> tuple[Any, ...]:
    """The operands of the branches: given by position, or a single operand as `operand=`."""
    if operand is not NO_OPERAND:
        if not operands:
            operands = (operand,)
        else:
            others = {"operand": operand, **others}
    for name in others:
        functions = "true_fun, false_fun" if what == "cond" else "branches"
        first = "pred" if what == "cond" else "index"
        raise TypeError(
            f"{what}: operands are given by position, one by one, got `{name}=`; write "
            f"`{what}({first}, {functions}, x, y)`"
        )
    return operands


def _choose_as_python(
    what: str, index: Value, funs: Sequence[Callable[..., Any]], operands: Any, vmap: str
) -> Any:
    """As `_choose`; where lanes may differ, all branches are traced."""
    if not trace.branches_as_python() and not trace.is_concrete(index):
        return _traced_choice(what, index, funs, operands, vmap)
    chosen = int(index)
    fun, count = funs[chosen], len(operands)

    @wraps(fun)
    def branch(*args: Any) -> Any:
        return flatten.call_user(
            f"{what}: {_names(what, len(funs))[chosen]}", _takes(count), fun, *args
        )

    def name(path: Any) -> str:
        return f"{what}: operands{pytree.keystr(path[1:])}"

    return flat_function.call_as_python(branch, operands, {}, name)


def _traced_choice(
    what: str, index: Value, funs: Sequence[Callable[..., Any]], operands: Any, vmap: str
) -> Any:
    named = list(zip(_names(what, len(funs)), funs, strict=True))
    leaves, tree = flatten.flatten_arguments(
        operands, lambda path: f"{what}: operands{pytree.keystr(path)}"
    )
    args = [x for x in leaves if not isinstance(x, Ref)]
    if len(args) < len(leaves):
        # The branches close over the operands that are Refs.
        plan = _plan(what, named, tree, leaves)
    else:
        key = (what, tree, *[x.aval for x in leaves])
        plan = trace.traced_once(key, funs, lambda: _plan(what, named, tree, leaves))
    operands = [*plan.closures.consts, *args, *plan.closures.refs]
    outs = iter(trace.bind(cond_p, index, *operands, params=replace(plan.params, vmap=vmap)))
    found = [next(outs) if k is None else flatten.as_result(operands[k]) for k in plan.handed]
    return pytree.tree_unflatten(plan.out_tree, found)


_choose = trace.python_form(_choose_as_python)(_traced_choice)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Traced branches: their params, what they close over, and the structure of the result.

    A result that is an operand in all branches is none of the `cond`; `handed` says which operand it is.
    """

    params: CondParams
    handed: Sequence[int | None]
    closures: common.Closures
    out_tree: Any


def _plan(
    what: str,
    named: Sequence[tuple[str, Callable[..., Any]]],
    tree: pytree.TreeDef,
    leaves: ad.Values,
) -> _Plan:
    branches = [_Branch(what, name, fun, tree, leaves) for name, fun in named]
    staged = [b.stage() for b in branches]
    avals = _result_avals(branches, staged)
    closures = common.share_captured(staged)
    jaxprs = [common.with_results(jaxpr, avals) for jaxpr in closures.jaxprs]
    places = zip(*map(common.handed_through, jaxprs), strict=True)
    handed = [ks[0] if len(set(ks)) == 1 else None for ks in places]
    if handed.count(None) < len(handed):
        jaxprs = [transforms.dce(jaxpr, [k is None for k in handed])[0] for jaxpr in jaxprs]
    return _Plan(CondParams(tuple(jaxprs)), handed, closures, branches[0].out_tree)


def _names(what: str, count: int) -> Sequence[str]:
    """What the branches are called in messages."""
    return _OF_COND if what == "cond" else [f"branches[{k}]" for k in range(count)]


_OF_COND = ("false_fun", "true_fun")


class _Branch:
    """A user's function of the value operands; it closes over the Ref operands."""

    def __init__(
        self, what: str, name: str, fun: Callable[..., Any], tree: pytree.TreeDef, leaves: ad.Values
    ) -> None:
        self.what = what
        self.name = name
        self.fun = fun
        self.tree = tree
        self.leaves = leaves
        self.args = [x for x in leaves if not isinstance(x, Ref)]
        self.out_tree: Any = None

    def stage(self) -> trace.Staged:
        """Trace it."""
        return trace.stage(
            self._run, [x.aval for x in self.args], flatten.function_name(self.fun), self.fun
        )

    def _run(self, *args: Value) -> list[Value]:
        rest = iter(args)
        leaves = [x if isinstance(x, Ref) else next(rest) for x in self.leaves]
        given = pytree.tree_unflatten(self.tree, leaves)
        takes = _takes(len(self.tree.children()))
        out = flatten.call_user(f"{self.what}: {self.name}", takes, self.fun, *given)
        where = f"{self.what}: the result of {ir.function_source(self.fun)}, at result"
        outs, self.out_tree = flatten.flatten_values(out, where)
        common.check_values(where, out, outs)
        return outs

    @property
    def paths(self) -> list[str]:
        """The paths of the results' leaves."""
        return pytree.leaf_paths(self.out_tree)


def _takes(count: int) -> str:
    """What a branch must take, as messages show it."""
    return f"the {count} operand{'s' * (count != 1)}"


def _result_avals(branches: Sequence[_Branch], staged: Sequence[trace.Staged]) -> list[ir.Aval]:
    """The types that all branches' results are brought to."""
    first, *others = branches
    avals = list(staged[0].jaxpr.out_avals)
    for other, s in zip(others, staged[1:], strict=True):
        # Messages show what the user gave in the order in which it was given.
        one, two = (other, first) if first.name in _OF_COND else (first, other)
        if other.out_tree != first.out_tree:
            jaxprs = (s.jaxpr, staged[0].jaxpr) if one is other else (staged[0].jaxpr, s.jaxpr)
            raise _other_structure(one, two, *jaxprs)
        found = [common.joined(a, b) for a, b in zip(avals, s.jaxpr.out_avals, strict=True)]
        types = (s.jaxpr.out_avals, avals) if one is other else (avals, s.jaxpr.out_avals)
        given = zip(first.paths, found, *types, strict=True)
        wrong = [f"result{path} is {a} and {b}" for path, j, a, b in given if j is None]
        if wrong:
            raise TypeError(
                f"{first.what}: the branches must return the same types, but from {_source(one)} and "
                f"{_source(two)}, {'; '.join(wrong)}; convert in a branch with astype, or make the shapes "
                f"equal"
            )
        avals = [a for a in found if a is not None]
    return avals


def _other_structure(one: _Branch, two: _Branch, *jaxprs: Jaxpr) -> TypeError:
    """The error for branches whose results differ in structure; `jaxprs` are what they were traced to."""
    texts = [
        [
            structure.LeafText(str(a), made)
            for a, made in zip(jaxpr.out_avals, common.made_in(jaxpr), strict=True)
        ]
        for jaxpr in jaxprs
    ]
    places = [
        f"result{at} is {a or 'missing'} and {b or 'missing'}"
        for at, a, b in structure.differences(one.out_tree, two.out_tree, *texts)
    ]
    returns_none = pytree.tree_structure(None) in (one.out_tree, two.out_tree)
    return TypeError(
        f"{one.what}: the branches must return the same structure, but from {_source(one)} and {_source(two)}, "
        f"{'; '.join(places)}{common.NO_RETURN if returns_none else ''}"
    )


def _source(branch: _Branch) -> str:
    return f"{branch.name} `{ir.function_source(branch.fun)}`"
