"""`new_ref` and `freeze`: a Ref from an array, and its final contents."""

from __future__ import annotations

from fiveloop.core import Value, ad, ir, prims, rules, trace, transforms
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.state import discharge, refs
from fiveloop.state.primitives.common import accumulator, combine


@dataclass(frozen=True)
class NewRefParams:
    """Whether the Ref holds a tangent: then it is linear, whatever it is made from; and whether it may have one."""

    holds_tangent: bool = False
    differentiable: bool = True


new_ref_p: ir.Primitive[NewRefParams] = ir.Primitive("new_ref", creates_state=True)
freeze_p: ir.Primitive[ir.NoParams] = ir.Primitive("freeze")


def ref_of(x: Value, **params: bool) -> Value:
    """A new Ref that holds `x`, with these params."""
    return trace.bind1(new_ref_p, x, params=NewRefParams(**params))


def tangent_of(aval: ir.Aval) -> Value:
    """A new Ref for the tangent or the cotangent of one of this type, which holds zeros."""
    assert isinstance(aval, refs.AbstractRef), "unreachable: a rule of Refs"
    return ref_of(transforms.zeros_of(aval.inner), holds_tangent=True)


def end(ref: Value) -> Value:
    """The array that a Ref holds in the end."""
    return trace.bind1(freeze_p, ref)


def new_ref_abstract_eval(avals: ir.Avals, p: NewRefParams) -> ir.Typing:
    """A Ref of the operand's type."""
    prims.check_count("new_ref", avals, 1)
    (x,) = avals
    if isinstance(x, refs.AbstractRef):
        raise TypeError(
            f"new_ref: expected an array, got {x}; to copy a Ref, read it: new_ref(ref[...])"
        )
    return [refs.AbstractRef(x, p.differentiable)], ir.NO_EFFECTS


def new_ref_jvp(primals: ad.Values, tangents: ad.Tangents, p: NewRefParams) -> ad.Duals:
    """A Ref for the tangent, even if it is zero now: another may be written later."""
    # For whoever differentiates the derivative, a tangent is a value like any other.
    ref = trace.bind1(new_ref_p, *primals, params=replace(p, holds_tangent=False))
    if not ref.aval.differentiable:
        return [ref], [transforms.zero_like(ref)]
    return [ref], [ref_of(transforms.instantiate(tangents[0]), holds_tangent=True)]


def new_ref_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: NewRefParams
) -> ad.Batched:
    """A Ref with a batch axis, even if all lanes start alike: each may be written its own value later."""
    (x,), (dim,) = operands, dims
    full = transforms.move_batch(x, size, dim)
    return trace.bind(new_ref_p, full, params=p), [0]


def freeze_abstract_eval(avals: ir.Avals, p: ir.NoParams) -> ir.Typing:
    """The type of what the Ref holds; the Ref is read."""
    prims.check_count("freeze", avals, 1)
    (ref,) = avals
    if not isinstance(ref, refs.AbstractRef):
        raise TypeError(f"freeze: expected a Ref, got {ref}")
    return [ref.inner], frozenset([refs.ReadEffect(0)])


def freeze_impl(values: ad.Values, p: ir.NoParams) -> list[Value]:
    """The array that the Ref holds; using the Ref afterwards is an error."""
    (ref,) = values
    assert isinstance(ref, refs.EagerRef), "unreachable: a concrete Ref"
    return [ref.end()]


def freeze_jvp(primals: ad.Values, tangents: ad.Tangents, p: ir.NoParams) -> ad.Duals:
    """Freeze both Refs."""
    out, (t,) = trace.bind1(freeze_p, *primals), tangents
    return [out], [
        transforms.zero_like(out) if isinstance(t, ad.Zero) else trace.bind1(freeze_p, t)
    ]


def freeze_transpose(cts: ad.Tangents, operands: ad.Operands, p: ir.NoParams) -> ad.Cotangents:
    """Add the cotangent into the Ref's accumulator."""
    (ct,), acc = cts, accumulator(operands[0])
    if not isinstance(ct, ad.Zero):
        combine(acc, ct)
    return [None]


rules.define(
    new_ref_p,
    abstract_eval=new_ref_abstract_eval,
    lower=rules.Refusal("it makes a Ref; discharge it first (`discharge_state`)"),
    impl=lambda values, p: [refs.EagerRef(values[0], p.differentiable)],
    jvp=new_ref_jvp,
    batch=new_ref_batch,
    # The Ref's accumulator has gathered the cotangent of what the Ref was made from.
    transpose=lambda cts, xs, p: [cts[0] if isinstance(xs[0], ad.UndefinedPrimal) else None],
)
rules.define(
    freeze_p,
    abstract_eval=freeze_abstract_eval,
    lower=rules.Refusal("it ends a Ref; discharge it first (`discharge_state`)"),
    impl=freeze_impl,
    jvp=freeze_jvp,
    batch=lambda size, operands, dims, p: (trace.bind(freeze_p, *operands), list(dims)),
    transpose=freeze_transpose,
)
discharge.define_discharge(new_ref_p, lambda ctx, xs, p: [ctx.new_cell(*xs)])
discharge.define_discharge(freeze_p, lambda ctx, xs, p: [ctx.contents(*xs)])
