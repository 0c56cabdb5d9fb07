"""Weighted sums: arrays that are multiplied by a weight each and summed over the first axis become a product.

XLA on CPU takes 3 to 25 times as long for a sum of matrices with a weight each as for the product of the weights with
them: per-example gradients that are clipped and summed are one. Measured on two versions of jaxlib with five sizes, of
64 x 8 x 8 to 1024 x 20 x 32. Weighted sums of vectors are left alone: they take as long as their product. A weighted
sum of outer products, as gradients of a layer for each example are, is one product of two matrices.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fiveloop.core import ir, passes, prims, rules
from fiveloop.core.arrays import Scalar
from fiveloop.core.backend import client
from fiveloop.core.dataclass import dataclass
from fiveloop.core.primitives import broadcast, dot
from fiveloop.core.transforms.dce import with_equations

LEAST = 2_048
"""Elements below which nothing is changed: they are fused with what is around them."""

FLOATS = "fd"
"""Dtypes of which sums are changed: those that are not rounded more in another order."""

ALONG_FIRST = dot.DotParams(((0,), (0,)))
OUTER = dot.DotParams(((), ()), ((0,), (0,)))
"""Products along the first axes, and outer products for each place of them."""


@ir.once_per_jaxpr
def as_products(jaxpr: ir.Jaxpr) -> ir.Jaxpr:
    """The jaxpr with its weighted sums as products, in nested jaxprs too.

    >>> jaxpr = make_jaxpr(lambda w, x: (w[:, None, None] * x).sum(0))(
    ...     np.ones(8), np.ones((8, 16, 16))
    ... )
    >>> print(as_products(jaxpr))
    { lambda a:f64[8] b:f64[8,16,16] ; let
        c:f64[8,1,1] = reshape[shape=(8, 1, 1)] a
        d:f64[8] = reshape[shape=(8,)] c
        e:f64[16,16] = dot_general[contract=((0,), (0,))] d b
      in (e,) }
    """
    made, uses = ir.makers(jaxpr), ir.use_counts(jaxpr)
    eqns = list[ir.Eqn]()
    for eqn in jaxpr.eqns:
        eqns += _as_product(eqn, made, uses) or [rules.with_bodies(eqn, as_products)]
    return with_equations(jaxpr, eqns)


def _as_product(
    eqn: ir.Eqn, made: Mapping[ir.Var, ir.Eqn], uses: Mapping[ir.Var, int]
) -> list[ir.Eqn]:
    """What computes a weighted sum as a product, if nothing else uses its terms; nothing for other equations."""
    if eqn.primitive is prims.dot_general_p and eqn.params == ALONG_FIRST:
        found = [
            (w, _outer(x, made)) for w, x in (eqn.invars, eqn.invars[::-1]) if w.aval.ndim == 1
        ]
        return next((_of_outer(w, outer, eqn) for w, outer in found if outer), [])
    if eqn.primitive is not prims.reduce_sum_p or eqn.params.axes != (0,):
        return []
    (terms,) = eqn.invars
    if terms.aval.ndim < 3 or not _is_worth(terms.aval):
        return []
    outer = _outer(terms, made)
    if outer:
        return [*outer.eqns, _product(outer.left, outer.right, eqn)]
    weighted = _weighted(terms, made, uses)
    if weighted is None:
        return []
    outer = _outer(weighted.right, made)
    if outer:
        return [*weighted.eqns, *_of_outer(weighted.left, outer, eqn)]
    return [*weighted.eqns, _product(weighted.left, weighted.right, eqn)]


@dataclass(frozen=True, slots=True)
class Parts:
    """Two arrays that are multiplied for each place of the first axis; `eqns` compute them."""

    left: ir.Atom
    right: ir.Atom
    eqns: ir.Eqns = ()


def _is_worth(aval: ir.Aval) -> bool:
    return ir.is_more(ir.size_of(aval.shape), LEAST) and aval.dtype.char in FLOATS


def _product(x: ir.Atom, y: ir.Atom, eqn: ir.Eqn) -> ir.Eqn:
    """The product of two arrays along their first axes, in place of an equation."""
    return rules.new_eqn(prims.dot_general_p, [x, y], ALONG_FIRST, eqn.outvars, eqn.source)


def _weighted(
    terms: ir.Atom, made: Mapping[ir.Var, ir.Eqn], uses: Mapping[ir.Var, int]
) -> Parts | None:
    """The weights that arrays are multiplied by, or divided by the inverses of, and the arrays; None of other terms."""
    eqn = ir.maker(terms, made)
    if eqn is None or uses[eqn.outvars[0]] > 1:
        return None
    pairs = {"mul": (eqn.invars, eqn.invars[::-1]), "div": (eqn.invars[::-1],)}
    for weights, arrays in pairs.get(eqn.primitive.name, ()):
        column = _repeated(weights, made)
        if column is not None and arrays.aval.shape == terms.aval.shape:
            eqns = [_reshaped(column, column.aval.shape[:1], eqn)]
            if eqn.primitive.name == "div":
                one = ir.Literal(Scalar(np.ones((), column.aval.dtype)))
                operands: list[ir.Atom] = [one, *eqns[-1].outvars]
                eqns.append(rules.new_eqn(eqn.primitive, operands, eqn.params, source=eqn.source))
            return Parts(eqns[-1].outvars[0], arrays, eqns)
    return None


def _reshaped(x: ir.Atom, shape: ir.Shape, eqn: ir.Eqn) -> ir.Eqn:
    params = broadcast.ReshapeParams(tuple(shape))
    return rules.new_eqn(prims.reshape_p, [x], params, source=eqn.source)


def _outer(x: ir.Atom, made: Mapping[ir.Var, ir.Eqn]) -> Parts | None:
    """The outer products that an array is of, if it is of such."""
    eqn = ir.maker(x, made)
    if eqn is None or x.aval.ndim != 3 or not _is_worth(x.aval):
        return None
    if eqn.primitive is prims.dot_general_p and eqn.params == OUTER:
        left, right = eqn.invars
        return Parts(left, right)
    if eqn.primitive is not prims.mul.prim:
        return None
    n, *sizes = x.aval.shape
    for pair in (eqn.invars, eqn.invars[::-1]):
        spread = [ir.maker(a, made, prims.broadcast_in_dim_p) for a in pair]
        parts = [e.invars[0] for e in spread if e and e.params.dims == (0, 1, 2)]
        if [a.aval.shape for a in parts] == [(n, sizes[0], 1), (n, 1, sizes[1])]:
            rows = [_reshaped(a, (n, size), eqn) for a, size in zip(parts, sizes, strict=True)]
            left, right = (e.outvars[0] for e in rows)
            return Parts(left, right, rows)
    return None


def _of_outer(weights: ir.Atom, outer: Parts, eqn: ir.Eqn) -> list[ir.Eqn]:
    """What computes a weighted sum of outer products: one product of two matrices, the rows of one weighted."""
    spread = broadcast.BroadcastParams(outer.left.aval.shape, (0,))
    rows = rules.new_eqn(prims.broadcast_in_dim_p, [weights], spread, source=eqn.source)
    operands = [outer.left, *rows.outvars]
    weighted = rules.new_eqn(prims.mul.prim, operands, ir.NO_PARAMS, source=eqn.source)
    return [*outer.eqns, rows, weighted, _product(weighted.outvars[0], outer.right, eqn)]


def _repeated(x: ir.Atom, made: Mapping[ir.Var, ir.Eqn]) -> ir.Atom | None:
    """What is repeated along all axes but the first, if `x` is that."""
    repeated = ir.maker(x, made, prims.broadcast_in_dim_p)
    if repeated is None or repeated.params.dims[:1] != (0,):
        return None
    (column,) = repeated.invars
    ones = [1] * (column.aval.ndim - 1)
    return column if column.aval.shape == (x.aval.shape[0], *ones) else None


def _on_cpu(jaxpr: ir.Jaxpr) -> ir.Jaxpr:
    return as_products(jaxpr) if client.platform() == "cpu" else jaxpr


passes.register_pass(
    passes.Pass("weighted", ("dce",), ir.holding(prims.reduce_sum_p, prims.dot_general_p), _on_cpu)
)
