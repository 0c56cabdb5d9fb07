"""Errors of a step that changes the structure or types of its carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveloop.core import TreeDef, Value, ad, arrays, ir, prims, pytree
from fiveloop.core.api.flatten import flatten_values
from fiveloop.loops import common


def is_pair(out: object) -> bool:
    """Whether a step gave a carry and an output: a tuple, or a list, of two."""
    return isinstance(out, tuple | list) and len(out) == 2


def check_pair(what: str, f: object, out: object) -> None:
    """Refuse what a step of `f` gave, unless it is a pair."""
    if is_pair(out):
        return
    if isinstance(out, tuple | list):
        given = f"a {type(out).__name__} of {len(out)}"
    else:
        given = f"None{common.NO_RETURN}" if out is None else common.shown(out)
    raise TypeError(
        f"{what}: the function must return a pair (carry, y), but `{ir.function_source(f)}` returns {given}"
    )


def changed_structure(
    what: str, f: object, tree: TreeDef, given: Sequence[Any], out: Any, name: str = "carry"
) -> TypeError:
    """The error for a carry, of leaves `given`, that comes out with another structure."""
    leaves, found = pytree.tree_flatten(out)
    advice = common.NO_RETURN if out is None else ""
    kept = "the carry must keep its structure"
    if name != "carry":
        kept = "the body must keep the structure of the value"
    return TypeError(
        f"{what}: {kept}, but in `{ir.function_source(f)}` "
        f"{common.changed_places(name, tree, found, given, leaves)}{advice}"
    )


def changed_types(
    what: str,
    f: object,
    tree: TreeDef,
    given: ir.Avals,
    outs: ir.Avals,
    made: Sequence[str],
    init: str,
) -> TypeError:
    """The error for a carry some of whose leaves come out with other types.

    `made` says of each where in the body of `f` it is made, if it is; `init` is what the argument with the first carry
    is called.
    """
    given_back = f", given back by `{ir.function_source(f)}`"
    wrong = [
        f"carry{path} goes in as {a} and comes out as {out}{where or given_back}"
        for path, a, out, where in zip(pytree.leaf_paths(tree), given, outs, made, strict=False)
        if not common.keeps_type(a, out)
    ]
    advice = to_keep_types(given, outs, init, "function")
    return TypeError(f"{what}: the carry must keep its types, but {'; '.join(wrong)}; {advice}")


def to_keep_types(given: ir.Avals, outs: ir.Avals, init: str, step: str) -> str:
    """What to do where a `step` gives values of other types than it was given: of another shape, or dtype."""
    if any(a.shape != b.shape for a, b in zip(given, outs, strict=False)):
        return (
            f"make {init} of the shape that the {step} returns; an array that grows needs its last size from the "
            "beginning: write to it at indices"
        )
    return f"make {init} of the type that the {step} returns, or convert in the {step} with astype"


def check_carry(what: str, f: object, given: Any, out: Any) -> None:
    """Refuse a carry with another structure, or with other types where these are not weak."""
    leaves, tree = flatten_values(given, f"{what}: the carry")
    found, out_tree = flatten_values(out, f"{what}: the carry returned")
    if out_tree != tree:
        raise changed_structure(what, f, tree, leaves, out)
    common.check_values(f"{what}: the carry returned", out, found)
    given_avals, outs = [x.aval for x in leaves], [x.aval for x in found]
    if not all(common.keeps_type(a, b) for a, b in zip(given_avals, outs, strict=True)):
        made = [common.made_at(getattr(x, "source", None)) for x in found]
        raise changed_types(what, f, tree, given_avals, outs, made, "init_val")


def next_carry(
    what: str, name: str, fun: object, given: ad.Values, tree: Any, out: Any
) -> list[Value]:
    """The carry that a step of `fun` gave, which must have the structure and types of the one before."""
    leaves, out_tree = flatten_values(out, f"{what}: the {name} returned")
    if out_tree != tree:
        raise changed_structure(what, fun, tree, given, out, name)
    common.check_values(f"{what}: the {name} returned", out, leaves)
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(out)[0]]
    carry = []
    for path, a, b in zip(paths, given, leaves, strict=True):
        found = common.joined(a.aval, b.aval)
        if found is None or not common.keeps_type(a.aval, b.aval):
            called = "carry" if name == "carry" else "value"
            raise TypeError(
                f"{what}: the {called} must keep its types, but {name}{path} goes in as {a.aval} and comes out as "
                f"{b.aval}; {to_keep_types([a.aval], [b.aval], f'the first {name}', 'function')}"
            )
        same = b.aval.strong() is found.strong()
        carry.append(b if same else prims.convert(b, found.dtype, found.weak_type))
    return carry


def counters(steps: int, reverse: bool) -> list[Any]:
    """The values that a loop's counter takes."""
    order = range(steps)
    return [
        arrays.to_array(arrays.as_value(np.int32(i)))
        for i in (reversed(order) if reverse else order)
    ]
