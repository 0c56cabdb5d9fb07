"""`einsum`: NumPy plans the contraction, and each pair of operands is one `dot_general`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from fiveloop.core import ArrayLike, Value, ir, prims
from fiveloop.core.extend import fused
from fiveloop.core.operators import operators as op
from fiveloop.numpy.linear import diagonal

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@fused
def einsum(subscripts: str, /, *xs: ArrayLike, preferred_element_type: Any = None) -> Value:
    """Products of arrays summed over labelled axes, as `subscripts` say: "ij,jk->ik", "...i->...".

    Operands are contracted in pairs, in the order that NumPy's planner finds. Without an arrow the result
    has the labels that occur once, in alphabetical order. ValueError if labels and shapes do not fit.

    >>> fnp.einsum("ij,j->i", np.array([[1, 2], [3, 4]]), np.array([1, 1]))
    Array([3, 7], dtype=int64)
    """
    if not isinstance(subscripts, str):
        prims.bad_type(
            f"einsum: expected `subscripts` to be a string such as 'ij,jk->ik', got {subscripts!r}"
        )
    values = prims.promote("einsum", *xs)
    labels, out = _parse(subscripts, [x.shape for x in values])
    terms = [
        _single(x, ls, _needed(k, labels, out))
        for k, (x, ls) in enumerate(zip(values, labels, strict=True))
    ]
    for pair in _plan(labels, out, [x.shape for x in values]):
        picked = [terms.pop(k) for k in sorted(pair, reverse=True)]
        kept = {*out, *(label for _, ls in terms for label in ls)}
        term = picked.pop()
        while picked:
            other = picked.pop()
            later = kept | {label for _, ls in picked for label in ls}
            term = _pair(*term, *other, later, preferred_element_type)
        terms.append(term)
    ((result, have),) = terms
    return prims.transpose(result, [have.index(label) for label in out])


def _needed(k: int, labels: Sequence[str], out: str) -> set[str]:
    return {*out, *(label for j, ls in enumerate(labels) if j != k for label in ls)}


def _parse(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """A label for every axis of every operand, and those of the result."""
    text = subscripts.replace(" ", "")
    left, arrow, out = text.partition("->")
    given = left.split(",")
    if len(given) != len(shapes):
        prims.bad_value(
            f"einsum: expected {len(given)} operands for {subscripts!r}, got {len(shapes)}"
        )
    free = [c for c in _LETTERS if c not in text]
    ranks = [
        len(shape) - len(ls.replace("...", "")) for ls, shape in zip(given, shapes, strict=True)
    ]
    widest = max([n for n, ls in zip(ranks, given, strict=True) if "..." in ls], default=0)
    dots = "".join(free[:widest])
    labels = []
    for ls, rank, shape in zip(given, ranks, shapes, strict=True):
        full = ls.replace("...", dots[widest - rank :] if rank > 0 else "")
        if len(full) != len(shape) or (not full.isalpha() and full):
            prims.bad_value(
                f"einsum: expected labels for the axes of an operand of shape {shape}, got {ls!r}"
            )
        labels.append(full)
    if not arrow:
        once = sorted(
            c for c in set("".join(labels)) if "".join(labels).count(c) == 1 and c not in dots
        )
        return labels, dots + "".join(once)
    out = out.replace("...", dots)
    if len(set(out)) != len(out) or not set(out) <= set("".join(labels)):
        prims.bad_value(
            f"einsum: expected each label of the result once, from the operands, got {subscripts!r}"
        )
    return labels, out


def _plan(
    labels: Sequence[str], out: str, shapes: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Which operands meet in which order."""
    if len(shapes) < 3:
        return [tuple(range(len(shapes)))]
    # The planner looks only at shapes: these arrays hold no memory.
    stand_ins = [np.broadcast_to(np.empty(()), shape) for shape in shapes]
    path, _ = np.einsum_path(f"{','.join(labels)}->{out}", *stand_ins, optimize="greedy")
    return [tuple(step) for step in path[1:]]


def _single(x: Value, labels: str, needed: set[str]) -> tuple[Value, str]:
    """An operand with each label once, and only labels that are needed elsewhere."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            x = diagonal(x, 0, i, j)
            labels = labels[:i] + labels[i + 1 : j] + labels[j + 1 :] + label
    gone = [k for k, label in enumerate(labels) if label not in needed]
    return op.sum(x, gone) if gone else x, "".join(c for c in labels if c in needed)


def _pair(
    x: Value, x_labels: str, y: Value, y_labels: str, kept: set[str], out_dtype: Any
) -> tuple[Value, str]:
    """Two operands as one, with the labels that are kept."""
    x, x_labels = _without_ones(x, x_labels, y, y_labels)
    y, y_labels = _without_ones(y, y_labels, x, x_labels)
    x, x_labels = _single(x, x_labels, {*kept, *y_labels})
    y, y_labels = _single(y, y_labels, {*kept, *x_labels})
    shared = [c for c in x_labels if c in y_labels]
    batch = [c for c in shared if c in kept]
    contract = [c for c in shared if c not in kept]
    for label in shared:
        if x.shape[x_labels.index(label)] != y.shape[y_labels.index(label)]:
            prims.bad_value(f"einsum: label {label!r} has two sizes, in {x.aval} and in {y.aval}")
    numbers = (
        ([x_labels.index(c) for c in contract], [y_labels.index(c) for c in contract]),
        ([x_labels.index(c) for c in batch], [y_labels.index(c) for c in batch]),
    )
    out = prims.dot_general(x, y, numbers, out_dtype)
    free = [c for c in x_labels + y_labels if c not in shared]
    return out, "".join([*batch, *free])


def _without_ones(x: Value, x_labels: str, y: Value, y_labels: str) -> tuple[Value, str]:
    """An operand without the axes of size 1 that broadcast against the other's."""
    gone = [
        k
        for k, c in enumerate(x_labels)
        if c in y_labels and ir.is_one(x.shape[k]) and not ir.is_one(y.shape[y_labels.index(c)])
    ]
    kept = "".join(c for k, c in enumerate(x_labels) if k not in gone)
    return prims.squeeze(x, gone) if gone else x, kept
