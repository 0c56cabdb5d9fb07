"""Checks of the results of custom rules: structure, shapes and dtypes, with the leaf and the rule in the message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core import ad, arrays, ir, prims, pytree, transforms, util
from fiveloop.core.api import flatten, operands
from fiveloop.core.arrays import Value


@dataclass(frozen=True)
class SymbolicZero:
    """A tangent or cotangent that is zero, without an array: what rules with `symbolic_zeros` get and may return."""

    aval: ir.Aval

    @classmethod
    def from_primal_value(cls, val: Any) -> SymbolicZero:
        """The zero that stands for the tangent of a value.

        >>> SymbolicZero.from_primal_value(np.ones(3, np.float32)).shape
        (3,)
        """
        return cls(arrays.as_value(val, "SymbolicZero.from_primal_value: val").aval.tangent())

    @property
    def shape(self) -> ir.Shape:
        """The shape of the zeros that it stands for."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the zeros that it stands for."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.aval.ndim


def is_zero(x: object) -> bool:
    """Whether a leaf that a rule returns stands for zero."""
    return x is None or isinstance(x, SymbolicZero)


def as_given(t: ad.Tangent, symbolic_zeros: bool) -> Any:
    """A tangent or cotangent as a rule gets it: zeros as arrays, unless the rule asked for `SymbolicZero`."""
    if symbolic_zeros and isinstance(t, ad.Zero):
        return SymbolicZero(t.aval)
    return transforms.instantiate(t)


@dataclass(frozen=True)
class RuleName:
    """A rule as messages name it: what it is, the user's function, and whose rule it is."""

    what: str
    rule: object
    of: str

    def __str__(self) -> str:
        return f"the {self.what} rule of {self.of}, {ir.function_source(self.rule)}"

    def pair(self, result: Any, parts: str) -> tuple[Any, Any]:
        """The two parts of what a rule returned."""
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise self.error(f"must return a pair {parts}, got {shown(result)}")
        return result[0], result[1]

    def error(self, what: str) -> TypeError:
        """The error of what a rule returned."""
        return TypeError(f"{self}: it {what}")


def shown(x: object) -> str:
    """Something that a rule returned, by its type."""
    if isinstance(x, Value):
        return str(x.aval)
    size = f" of length {len(x)}" if isinstance(x, (tuple, list)) else ""
    return f"{type(x).__name__}{size}"


def check_outs(
    name: RuleName, out: Any, tree: pytree.TreeDef | None, avals: ir.Avals | None
) -> tuple[list[Value], pytree.TreeDef]:
    """The leaves of the result that a rule gives; it must be what the function gives, where that is known."""
    leaves, given = flatten.flatten_values(
        out, lambda path: f"{name}: the result{pytree.keystr(path)}"
    )
    if tree is not None and given != tree:
        raise name.error(
            f"must give a result of the structure that {name.of} gives, {tree}, got {given}"
        )
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(out)[0]]
    for path, x, aval in zip(paths, leaves, avals or [x.aval for x in leaves], strict=True):
        if x.aval.strong() is not aval.strong():
            raise name.error(
                f"must give what {name.of} gives, {aval}, as the result{path}, got {x.aval}"
            )
    return leaves, given


def check_tangents(
    name: RuleName, dots: Any, outs: ad.Values, tree: pytree.TreeDef
) -> list[ad.Tangent]:
    """The leaves of the tangents that a rule gives, which must be like its results."""
    pairs, given = pytree.tree_flatten_with_path(
        dots, is_leaf=lambda x: isinstance(x, SymbolicZero)
    )
    if given != tree:
        full = _filled(name, "the tangent of the result", "results", dots, tree, outs)
    else:
        full = [(pytree.keystr(path), t) for path, t in pairs]
    return [
        check_like(name, f"the tangent of the result{path}", "the result", t, x.aval)
        for (path, t), x in zip(full, outs, strict=True)
    ]


def check_cotangents(
    name: RuleName, cts: Any, args: ir.Avals, tree: pytree.TreeDef, perturbed: util.Mask
) -> list[ad.Tangent]:
    """The leaves of what bwd gives: a tuple with one entry an argument, None for zeros.

    For an argument of one leaf, the cotangent of the leaf does. `perturbed` marks what is differentiated.
    """
    count = len(pytree.tree_unflatten(tree, args)[0])
    if not isinstance(cts, (tuple, list)):
        raise name.error(
            f"must return a tuple with a cotangent for each of {count} arguments, got {shown(cts)}"
        )
    if len(cts) != count:
        raise name.error(
            f"must return a tuple with a cotangent for each of {count} arguments, got one of length {len(cts)}"
        )
    leaves = _filled(name, "the cotangent of argument ", "arguments", tuple(cts), tree, args)
    for (path, ct), is_part in zip(
        leaves, operands.parts_among(tree, len(leaves), perturbed), strict=True
    ):
        if is_part and not is_zero(ct):
            raise name.error(
                f"must return None for argument {path}, a part of a Ref whose contents are differentiated; pass the "
                f"whole Ref, and the index beside it"
            )
    full = operands.spread(tree, leaves, len(args), ("", None))
    return [
        check_like(name, f"the cotangent of argument {path}", "the argument", ct, x)
        for (path, ct), x in zip(full, args, strict=True)
    ]


def _filled(
    name: RuleName, what: str, likes: str, given: Any, tree: pytree.TreeDef, values: Sequence[Any]
) -> list[tuple[str, Any]]:
    """Path and leaf for each of `values`, whose tree is `tree`; a None counts for all leaves at its place."""
    skeleton = pytree.tree_unflatten(tree, values)
    if likes == "arguments":
        skeleton = skeleton[0]
    leaves, treedef = pytree.tree_flatten(given, is_leaf=is_zero)
    numbers = pytree.tree_unflatten(treedef, range(len(leaves)))
    try:
        places = pytree.broadcast_prefix(numbers, skeleton)
        subtrees = treedef.flatten_up_to(skeleton)
    except (ValueError, TypeError):
        differs = _difference(skeleton, given)
        raise name.error(
            f"must return the structure of the {likes}, which differs{differs}"
        ) from None
    for x, subtree, (path, _) in zip(
        leaves, subtrees, pytree.tree_flatten_with_path(numbers)[0], strict=True
    ):
        alone = likes == "arguments" and pytree.tree_structure(subtree).num_leaves == 1
        if not is_zero(x) and not alone and pytree.tree_structure(subtree) != pytree.LEAF:
            raise name.error(
                f"must return the structure of the {likes}; for {what}{pytree.keystr(path)} it is "
                f"{pytree.tree_structure(subtree)}, got {shown(x)}"
            )
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(skeleton)[0]]
    return [(path, leaves[k]) for path, k in zip(paths, places, strict=True)]


def _difference(wanted: Any, given: Any) -> str:
    """Where and how a tree first differs from what is wanted."""
    try:
        subtrees = pytree.tree_structure(wanted).flatten_up_to(given)
    except (ValueError, TypeError):
        try:
            pytree.broadcast_prefix(wanted, given)
        except ValueError as error:
            return str(error).removeprefix("the tree does not fit")
        return ""
    for (path, _), subtree in zip(pytree.tree_flatten_with_path(wanted)[0], subtrees, strict=True):
        if not is_zero(subtree) and pytree.tree_structure(subtree) != pytree.LEAF:
            return f" at {pytree.keystr(path)}: expected an array, got {shown(subtree)}"
    return ""


def check_like(name: RuleName, what: str, likes: str, t: Any, aval: ir.Aval) -> ad.Tangent:
    """A tangent or cotangent of a value; what does not count, since the value has none, is zero."""
    if is_zero(t) or isinstance(t, ad.Zero):
        _check_zero(name, what, likes, t, aval)
        return ad.Zero(aval.tangent())
    if not aval.differentiable:
        return ad.Zero(aval.tangent())
    value = arrays.as_value(t, f"{name}: {what}")
    if value.aval.accumulates and aval.accumulates:
        return value
    if value.weak_type and not value.shape and not value.aval.accumulates:
        value = prims.convert(value, aval.dtype)
    if value.aval.strong() is not aval.tangent():
        raise name.error(f"must give {what} the type of {likes}, {aval}, got {value.aval}")
    return value


def _check_zero(name: RuleName, what: str, likes: str, t: Any, aval: ir.Aval) -> None:
    if t is not None and aval.differentiable and t.aval.strong() is not aval.tangent():
        raise name.error(
            f"must give {what} the type of {likes}, {aval}, got a zero of type {t.aval}"
        )
