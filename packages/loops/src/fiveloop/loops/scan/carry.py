"""What is said of a step that changes its carry's structure or types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core import TreeDef, leaf_paths
from fiveloop.core.engine import at_source, current_source, flatten_values, function_source
from fiveloop.core.extend import Aval
from fiveloop.loops.common import made_at
from fiveloop.state import Ref


def changed_structure(what: str, f: object, tree: TreeDef, out: Any, found: TreeDef) -> TypeError:
    """The error for a carry that comes out with another structure."""
    advice = "; does the function return?" if out is None else ""
    return TypeError(
        f"{what}: the carry must keep its structure, {tree}, but `{function_source(f)}` returns {found}{advice}"
        f"{at_source(current_source())}"
    )


def changed_types(
    what: str, tree: TreeDef, given: Sequence[Aval], outs: Sequence[Aval], made: Sequence[str]
) -> TypeError:
    """The error for a carry some of whose leaves come out with other types; `made` says where in the body."""
    wrong = [
        f"carry{path} goes in as {a} and comes out as {out}{where}"
        for path, a, out, where in zip(leaf_paths(tree), given, outs, made, strict=False)
        if a.strong() is not out.strong()
    ]
    return TypeError(
        f"{what}: the carry must keep its types, but {'; '.join(wrong)}; make init of the type that the function "
        f"returns, or convert in the function with astype{at_source(current_source())}"
    )


def check_carry(what: str, f: object, given: Any, out: Any) -> None:
    """Refuse a carry with another structure, or with other types where these are not weak."""
    leaves, tree = flatten_values(given, f"{what}: the carry")
    found, out_tree = flatten_values(out, f"{what}: the carry returned")
    if out_tree != tree:
        raise changed_structure(what, f, tree, out, out_tree)
    if any(isinstance(x, Ref) for x in leaves):
        return  # which have checks of their own
    outs = [
        a.aval if a.aval.weak_type or b.aval.weak_type else b.aval
        for a, b in zip(leaves, found, strict=True)
    ]
    if any(a.aval.strong() is not out.strong() for a, out in zip(leaves, outs, strict=True)):
        made = [made_at(getattr(x, "source", None)) for x in found]
        raise changed_types(what, tree, [a.aval for a in leaves], outs, made)
