"""Shared by loops and branches: closures as operands, results of one type, checks of conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from operator import index
from typing import Any

import numpy as np

from fiveloop.core import Value, ad, arrays, ir, prims, pytree, structure, trace, transforms, util
from fiveloop.core.api import flatten
from fiveloop.core.closed_call import closed_call_p
from fiveloop.core.dataclass import dataclass
from fiveloop.core.errors import STATIC
from fiveloop.core.util import T
from fiveloop.state import Ref, api, predicate


@dataclass(frozen=True, slots=True)
class Closures:
    """Functions with the same operands: `jaxprs : [*consts, *args, *refs] -> [*outs]`."""

    jaxprs: list[ir.Jaxpr]
    consts: list[Value]
    refs: list[Value]


def share_captured(staged: Sequence[trace.Staged]) -> Closures:
    """Functions of the same arguments, each given all that any of them closes over, and every Ref once.

    staged.jaxpr : [*captured, *args]      -> [*outs]
    jaxpr        : [*consts, *args, *refs] -> [*outs]
    """
    captured = {id(x): x for s in staged for x in s.captured}
    consts = [x for x in captured.values() if not isinstance(x, Ref)]
    refs: list[Value] = [x for x in captured.values() if isinstance(x, Ref)]
    jaxprs = []
    for s in staged:
        num = len(s.captured)
        binders = {id(x): v for x, v in zip(s.captured, s.jaxpr.invars, strict=False)}
        first, last = ([binders.get(id(x)) or ir.Var(x.aval) for x in xs] for xs in (consts, refs))
        jaxprs.append(s.jaxpr.replace(invars=[*first, *s.jaxpr.invars[num:], *last]))
    return Closures(jaxprs, consts, refs)


def reached(
    body: ir.Jaxpr,
    given: Sequence[bool],
    states: Sequence[bool],
    find: Callable[[ir.Jaxpr, ir.Vars, ir.Vars], Collection[ir.Var]],
) -> util.Mask:
    """Which inputs of a body after its counter are reached in some step from those given, of the others only states.

    `find` does so in a body, from the first variables, without the second.
    """
    binders = body.invars[1:]
    found = find(body, util.select_by(given, binders), util.partition(states, binders)[0])
    return tuple(v in found for v in binders)


def with_tangents(body: ir.Jaxpr, nonzero: Sequence[bool], states: Sequence[bool]) -> util.Mask:
    """Which inputs of a body after its counter may have a tangent in some step."""
    differentiable = lambda aval: aval.differentiable
    find = lambda body, seeds, fixed: ir.reachable(body, seeds, differentiable, fixed, created=True)
    return reached(body, nonzero, states, find)


def dots_behind(
    sizes: Sequence[int], nonzero: util.Mask, xs: Sequence[T], dots: Sequence[T]
) -> list[T]:
    """Each part of a list followed by its tangents; `sizes` are those of the parts but the last."""
    counts = [sum(mask) for mask in util.split_list(nonzero, sizes)]
    parts = zip(util.split_list(xs, sizes), util.split_list(dots, counts[:-1]), strict=True)
    return [x for part, of_part in parts for x in (*part, *of_part)]


def body_with_dots(
    body: ir.Jaxpr,
    first: int,
    sizes: Sequence[int],
    nonzero: util.Mask,
    inst: bool | Sequence[bool] = False,
) -> ir.Jaxpr:
    """A body on values and tangents: after its `first` inputs, each part is followed by its tangents.

    body     : [*first, *part, *part, ...]
    body_jvp : [*first, *part, *part, ..., *dots, *dots, ...]
    made     : [*first, *part, *dots, *part, *dots, ...]
    """
    num = len(body.invars)
    mask = nonzero[: num - first]
    body_jvp, _ = transforms.jvp_jaxpr(body, (*[False] * first, *mask), inst)
    start, rest, dots = util.split_list(body_jvp.invars, [first, num - first])
    return body_jvp.replace(invars=[*start, *dots_behind(sizes, mask, rest, dots)])


def with_inputs(jaxpr: ir.Jaxpr, avals: ir.Avals, at: int) -> ir.Jaxpr:
    """The jaxpr with inputs that it does not use, from position `at` on."""
    new = [ir.Var(a) for a in avals]
    return jaxpr.replace(invars=[*jaxpr.invars[:at], *new, *jaxpr.invars[at:]])


def handed_through(jaxpr: ir.Jaxpr) -> list[int | None]:
    """For each result the position of the input that it is, or None; also if a call within hands it through."""
    place: dict[ir.Atom, int] = {v: k for k, v in enumerate(jaxpr.invars)}
    for eqn in jaxpr.eqns:
        if eqn.primitive is closed_call_p:
            pairs = zip(eqn.outvars, handed_through(eqn.params.jaxpr), strict=True)
            place |= {
                v: place[a] for v, k in pairs if k is not None and (a := eqn.invars[k]) in place
            }
    return [place.get(a) for a in jaxpr.outvars]


def check_values(what: str, tree: Any, leaves: ad.Values) -> None:
    """Refuse a Ref among the operands or results of a loop or a branch; messages name the tree `what`."""
    if not any(isinstance(x, Ref) for x in leaves):
        return
    for x, (path, _) in zip(leaves, pytree.tree_flatten_with_path(tree)[0], strict=True):
        if isinstance(x, Ref):
            raise TypeError(
                f"{what}{pytree.keystr(path)} must be an array, got a Ref of type {x.aval}; its contents are `ref[...]`"
            )


def made_at(source: object | None) -> str:
    """What a message adds of a value that a line of the user's body has made; an argument has no line."""
    return "" if source is None or isinstance(source, str) else f", made at {source}"


def made_in(jaxpr: ir.Jaxpr) -> list[str]:
    """What messages add of each result of a body."""
    sources = {v: eqn.source for eqn in jaxpr.eqns for v in eqn.outvars}
    return [made_at(sources.get(v) if isinstance(v, ir.Var) else None) for v in jaxpr.outvars]


def leaf_texts(leaves: Sequence[Any]) -> list[structure.LeafText]:
    """What messages say of the leaves of a tree that a body was given, or gave."""
    return [structure.LeafText(_type_text(x), made_at(getattr(x, "source", None))) for x in leaves]


def _type_text(x: Any) -> str:
    try:
        return str(arrays.as_value(x).aval)
    except TypeError:
        return f"{x!r} of type {type(x).__name__}"


NO_RETURN = "; does the function return?"
"""What messages ask where a function gave None."""


def changed_places(
    name: str,
    given: pytree.TreeDef,
    found: pytree.TreeDef,
    before: Sequence[Any],
    after: Sequence[Any],
) -> str:
    """Where a body returns its argument `name`, of leaves `before`, with another structure."""
    places = structure.differences(given, found, leaf_texts(before), leaf_texts(after))
    return ", and ".join([_changed_place(name, place) for place in places])


def _changed_place(name: str, place: structure.Difference) -> str:
    at = f"{name}{place.path}"
    if place.second is None:
        return f"{at} goes in as {place.first} and does not come out"
    if place.first is None:
        return f"{at} does not go in and comes out as {place.second}"
    return f"{at} goes in as {place.first} and comes out as {place.second}"


def joined(x: ir.Aval, y: ir.Aval) -> ir.Aval | None:
    """The type that both can be brought to because one of them is weak, or None."""
    if x.strong() is y.strong():
        return x if not x.weak_type else y
    if x.shape != y.shape:
        return None
    dtype, weak = arrays.join(
        (arrays.Typed(x.dtype, x.weak_type), arrays.Typed(y.dtype, y.weak_type))
    )
    if any(not a.weak_type and a.dtype != dtype for a in (x, y)):
        return None
    return ir.ShapedArray(x.shape, dtype, weak)


def grown(given: ir.Aval, out: ir.Aval) -> ir.Aval:
    """The type that a carry has after a step gives `out`: a weak one may grow to it, any other keeps its own."""
    found = joined(given, out) if given.weak_type else None
    return given if found is None or found.strong() is given.strong() else found


def keeps_type(given: ir.Aval, out: ir.Aval) -> bool:
    """Whether a step may return the type `out` for a carry: the same type, or the type that a weak carry grows to."""
    found = joined(given, out)
    return found is not None and (given.weak_type or found.strong() is given.strong())


def body_name(fun: object) -> str:
    """The name of the user's function that a loop runs, inside partials and wrappers."""
    inner: Any = fun
    while isinstance(inner, partial) or hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__ if hasattr(inner, "__wrapped__") else inner.func
    return flatten.function_name(inner)


def as_type(x: Value, aval: ir.Aval) -> Value:
    """A value converted to a type's dtype, unless it has it."""
    return x if x.aval.strong() is aval.strong() else prims.convert(x, aval.dtype)


def strong(x: Value) -> Value:
    """A result of a loop over Refs, whose contents are never weak; a number on the host becomes an array."""
    return prims.convert(flatten.as_result(x), x.dtype)


def with_results(jaxpr: ir.Jaxpr, avals: ir.Avals) -> ir.Jaxpr:
    """The jaxpr with its results converted to the given types."""
    if all(a.strong() is b.strong() for a, b in zip(jaxpr.out_avals, avals, strict=True)):
        return jaxpr

    def run(*args: Value) -> list[Value]:
        outs = transforms.eval_jaxpr(jaxpr, args)
        return [as_type(x, a) for x, a in zip(outs, avals, strict=True)]

    return trace.stage_closed(run, jaxpr.in_avals, jaxpr.name)


def check_params(prim: str, *params: tuple[str, Any, bool, str]) -> None:
    """Refuse params that no equation may have: each with its name, its value, whether it is right, and what is."""
    for name, given, is_right, expected in params:
        if not is_right:
            raise TypeError(f"{prim}: {name} must be {expected}, got {given!r}")


def is_count(x: Any) -> bool:
    """Whether a param is a number of things."""
    return type(x) is int and x >= 0


def as_count(what: str, given: Any, more: str = "", least: int = 1) -> int:
    """An option that is an integer of at least `least`; `more` says what else it may be."""
    expected = f"{what} must be an integer of at least {least}{more}"
    try:
        number = index(given)
        if isinstance(given, bool):  # which Python counts as an integer
            raise TypeError
    except TypeError:
        raise wrong_type(expected, given) from None
    if number < least:
        raise ValueError(f"{expected}, got {given!r}")
    return number


def as_flag(what: str, given: Any) -> bool:
    """An option that is True or False."""
    if not isinstance(given, bool | np.bool_):
        raise wrong_type(f"{what} must be True or False", given)
    return bool(given)


def as_choice(what: str, given: Any, choices: Sequence[str]) -> str:
    """An option that is one of some words."""
    *most, last = [f'"{word}"' for word in choices]
    expected = f"{what} must be {', '.join(most)} or {last}"
    if not isinstance(given, str):
        raise wrong_type(expected, given)
    if given not in choices:
        raise ValueError(f"{expected}, got {given!r}")
    return given


def shown(x: Any) -> str:
    """Something as messages show it: a value by its type."""
    return str(x.aval) if isinstance(x, Value) else f"{x!r} of type {type(x).__name__}"


def wrong_type(expected: str, given: Any) -> TypeError:
    """The error for an argument of a type that it cannot have."""
    traced = isinstance(given, trace.Tracer)
    advice = f"; it must be known while tracing: {STATIC}" if traced else ""
    return TypeError(f"{expected}, got {shown(given)}{advice}")


def condition(what: str, takes: str, fun: Callable[[Any], Any], x: Any) -> Value:
    """What a function of the user says of a value, which must be a bool scalar; it must not write to a Ref."""
    with trace.noting() as notes:
        out = flatten.call_user(what, takes, fun, x)
    for ref in notes.written_outside:
        raise _writes(what, fun, ref.aval, None)
    try:
        value = arrays.as_value(out, "the condition's result")
    except TypeError:
        value = None
    if value is None or isinstance(value, Ref) or value.aval.strong() is not predicate.PREDICATE:
        given = value.aval if value is not None else f"{out!r} of type {type(out).__name__}"
        raise TypeError(
            f"{what} must return a bool scalar, but `{ir.function_source(fun)}` returns {given}; compare "
            "(`x > 0`), or reduce with `all` or `any`"
        )
    return value


def staged_condition(
    what: str, takes: str, fun: Callable[[Any], Any], tree: pytree.TreeDef, avals: ir.Avals
) -> trace.Staged:
    """The same of the leaves of a value, traced."""

    def run(*leaves: Value) -> list[Value]:
        return [condition(what, takes, fun, pytree.tree_unflatten(tree, leaves))]

    staged = trace.stage(run, avals, flatten.function_name(fun), fun)
    changed = ir.mutated_positions(staged.jaxpr.effects)
    if changed:
        ref = staged.jaxpr.invars[min(changed)]
        write = next(eqn for eqn in staged.jaxpr.eqns if ref in ir.changed_refs(eqn))
        raise _writes(what, fun, ref.aval, write.source)
    return staged


def _writes(what: str, fun: object, aval: ir.Aval, source: ir.Source | None) -> TypeError:
    """The error for a condition that writes: it decides whether there is a step, and changes nothing."""
    where = "" if source is None else f" at {source}"
    condition = what.rpartition(" ")[2]
    step = "body_fun" if condition == "cond_fun" else "f"
    return TypeError(
        f"{what} must only read Refs, but `{ir.function_source(fun)}` writes to one of type {aval}{where}; write in "
        f"{step}, and let {condition} read what it has written"
    )


@dataclass(frozen=True)
class CarriedRefs:
    """The carry or the slices of a loop, `tree` of `leaves`, some of them Refs; messages call it `name`."""

    name: str
    tree: pytree.TreeDef
    leaves: Sequence[Any]

    @property
    def values(self) -> Any:
        """The same without its Refs: None in their places."""
        return _without_refs(pytree.tree_unflatten(self.tree, self.leaves))

    def names(self) -> list[tuple[str, Any]]:
        """What the user calls each Ref."""
        root = self.name.partition(": ")[2].removeprefix("the ").removeprefix("init_")
        held = pytree.tree_flatten_with_path(pytree.tree_unflatten(self.tree, self.leaves))[0]
        return [(f"{root}{pytree.keystr(path)}", x) for path, x in held if isinstance(x, Ref)]

    def whole(self, values: Any, index: Any = None) -> Any:
        """What has None in the places of the Refs, with them; with their parts at an index, if one is given."""
        given = iter(pytree.tree_flatten(values)[0])
        refs = [x if isinstance(x, Ref) else None for x in self.leaves]
        if index is not None:
            refs = [x if x is None else _slice(x, index) for x in refs]
        filled = [next(given) if x is None else x for x in refs]
        return pytree.tree_unflatten(self.tree, filled)

    def kept(self, out: Any, fun: Callable[..., Any]) -> Any:
        """The results of a step of `fun`, without its Refs, which must be the Refs that it was given."""
        leaves, tree = flatten.flatten_located(out, what=f"{self.name} returned")
        if tree != self.tree:
            places = changed_places(
                self.name.rpartition(" ")[2], self.tree, tree, self.leaves, leaves
            )
            advice = NO_RETURN if out is None else ""
            raise TypeError(
                f"{self.name} must keep its structure, but in `{ir.function_source(fun)}` {places}{advice}"
            )
        for given, x, (path, _) in zip(
            self.leaves, leaves, pytree.tree_flatten_with_path(out)[0], strict=True
        ):
            if isinstance(given, Ref) and x is not given:
                came = f"another Ref, of type {x.aval}" if isinstance(x, Ref) else shown(x)
                raise TypeError(
                    f"{self.name}{pytree.keystr(path)} goes in as a Ref of type {given.aval}, "
                    f"and must come out as the same "
                    f"Ref, but `{ir.function_source(fun)}` returns {came}; write to the Ref, and return it as it is"
                )
        return _without_refs(out, self.leaves)

    def step(self, fun: Callable[..., Any], at: int) -> Callable[..., Any]:
        """A function whose argument number `at` is what is carried, as one that is given it without its Refs."""

        @wraps(fun)
        def run(*args: Any) -> Any:
            return fun(*args[:at], self.whole(args[at]), *args[at + 1 :])

        return run

    def carrying(self, fun: Callable[..., Any], at: int) -> Callable[..., Any]:
        """The same for a step that returns the carry."""
        given = self.step(fun, at)
        return wraps(fun)(lambda *args: self.kept(given(*args), fun))


def carried_refs(name: str, carry: Any) -> CarriedRefs | None:
    """The Refs among what a loop carries, if there are any: each once, or parts that lie apart."""
    leaves, tree = flatten.flatten_located(carry, what=name)
    if not any(isinstance(x, Ref) for x in leaves):
        return None
    others = arrays.as_value(0)
    refs = [x if isinstance(x, Ref) else others for x in leaves]
    flatten.check_mutable(carry, refs, lambda path: f"{name}{pytree.keystr(path)}")
    return CarriedRefs(name, tree, leaves)


def check_one_size(what: str, sizes: Mapping[str, Any]) -> None:
    """Refuse axes of different sizes, which are given by name."""
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(f"{what} differ: {shown}")


def _slice(ref: Ref, index: Any) -> Ref:
    """What is at an index, as a Ref; where no step is taken, one of its type."""
    return ref.at[index] if len(ref) else api.empty_ref(ref.shape[1:], ref.dtype)


def _without_refs(tree: Any, refs: Sequence[Any] | None = None) -> Any:
    """None in the places of the Refs; if they are given, only in their places."""
    marks = iter(refs if refs is not None else pytree.tree_flatten(tree)[0])
    return pytree.tree_map(lambda x: None if isinstance(next(marks), Ref) else x, tree)
