"""Weighted sums: arrays that are multiplied by a weight each and summed over the first axis become a product.

XLA on CPU takes 3 to 25 times as long for a sum of matrices with a weight each as for the product of the weights with
them: per-example gradients that are clipped and summed are one. Measured on two versions of jaxlib with five sizes, of
64 x 8 x 8 to 1024 x 20 x 32. Weighted sums of vectors are left alone: they take as long as their product.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

from fiveloop.core import ir, passes, prims, rules
from fiveloop.core.backend import client
from fiveloop.core.primitives import broadcast, dot
from fiveloop.core.transforms.dce import dce

LEAST = 2_048
"""Elements below which nothing is changed: they are fused with what is around them."""


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
    if len(eqns) == len(jaxpr.eqns) and all(map(is_, eqns, jaxpr.eqns)):
        return jaxpr
    return dce(jaxpr.replace(eqns=eqns), [True] * len(jaxpr.outvars))[0]


def _as_product(
    eqn: ir.Eqn, made: Mapping[ir.Var, ir.Eqn], uses: Mapping[ir.Var, int]
) -> list[ir.Eqn]:
    """What computes a weighted sum as a product, if nothing else uses its terms; nothing for other equations."""
    if eqn.primitive is not prims.reduce_sum_p or eqn.params.axes != (0,):
        return []
    terms = eqn.invars[0]
    product = ir.maker(terms, made, prims.mul.prim)
    small = terms.aval.ndim < 3 or not ir.is_more(ir.size_of(terms.aval.shape), LEAST)
    if product is None or small or terms.aval.dtype.char not in "fd":
        return []
    if uses[product.outvars[0]] > 1:
        return []
    for weights, arrays in (product.invars, product.invars[::-1]):
        column = _repeated(weights, made)
        if column is not None and arrays.aval.shape == terms.aval.shape:
            shape = broadcast.ReshapeParams(terms.aval.shape[:1])
            vector = rules.new_eqn(prims.reshape_p, [column], shape, source=eqn.source)
            params = dot.DotParams(((0,), (0,)))
            operands = [vector.outvars[0], arrays]
            out = rules.new_eqn(prims.dot_general_p, operands, params, eqn.outvars, eqn.source)
            return [vector, out]
    return []


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


passes.register_pass(passes.Pass("weighted", ("dce",), ir.holding(prims.reduce_sum_p), _on_cpu))
