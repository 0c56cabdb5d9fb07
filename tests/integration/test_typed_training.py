"""A training script as a typed program: it trains, and the type checker knows every result of a public call.

`assert_type` fails in the `types` session where a result has become `Any`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, assert_type, cast

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import (
    Array,
    Jaxpr,
    Pytree,
    ShapeDtype,
    Value,
    closed_call,
    custom_jvp,
    custom_root,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jit,
    jvp,
    linear_transpose,
    linearize,
    make_jaxpr,
    named_call,
    psum,
    stop_gradient,
    tree_map,
    value_and_grad,
    vjp,
    vmap,
)
from fiveloop.core.extend import as_value
from fiveloop.loops import (
    accumulate_grads,
    cond,
    for_loop,
    fori_loop,
    map,
    scan,
    switch,
    while_loop,
)
from fiveloop.remat import checkpoint, dots_saveable
from fiveloop.state import Ref, callback, freeze, new_ref, pure_callback, run_state


class Params(NamedTuple):
    """A recurrent network."""

    cell: Value
    read: Value


class Batch(NamedTuple):
    """Sequences and what should come out: [batch, time, 1] and [batch, 1]."""

    inputs: Value
    targets: Value


def step(params: Params, state: Value, x: Value) -> Value:
    """One step of the cell."""
    return fnp.tanh(fnp.concatenate([state, x]) @ params.cell)


def predict(params: Params, xs: Value) -> Value:
    """The read-out after a sequence."""

    def body(state: Value, x: Value) -> tuple[Value, Value]:
        new = checkpoint(step, policy=dots_saveable)(params, state, x)
        assert_type(new, Value)
        return new, fnp.sum(new)

    last, sums = scan(body, fnp.zeros(4, np.float64), xs)
    assert_type(last, Value)
    assert_type(sums, Value)
    return last @ params.read


def loss(params: Params, batch: Batch) -> Value:
    """The mean squared error."""
    out = vmap(predict, in_axes=(None, 0))(params, batch.inputs)
    assert_type(out, Value)
    return fnp.mean((out - stop_gradient(batch.targets)) ** 2)


@jit
def update(params: Params, batch: Batch) -> tuple[Params, Value]:
    """One step of gradient descent."""
    value, grads = value_and_grad(loss)(params, batch)
    assert_type(value, Value)
    assert_type(grads, Params)
    moved = tree_map(lambda p, g: p - 0.1 * g, params, grads)
    assert_type(moved, Params)
    return moved, value


def test_training() -> None:
    rng = np.random.default_rng(0)
    params = Params(as_value(rng.normal(size=(5, 4)) * 0.3), as_value(rng.normal(size=(4, 1))))
    xs = rng.normal(size=(16, 6, 1))
    batch = Batch(as_value(xs), as_value(xs.sum(1) * 0.2))
    losses = []
    for _ in range(30):
        params, value = update(params, batch)
        assert_type(params, Params)
        assert_type(value, Value)
        losses.append(float(np.asarray(value)))
    assert losses[-1] < 0.5 * losses[0]


def square(x: Value) -> Value:
    return x * x


def with_aux(x: Value, y: Value) -> tuple[Value, dict[str, Value]]:
    return fnp.sum(x * y), {"x": x}


def product(x: Value, y: Value) -> Value:
    return x * y


def test_transforms_keep_types() -> None:
    x = as_value(3.0)
    assert_type(jit(square)(x), Value)
    assert_type(jit(grad(square))(x), Value)
    assert_type(grad(grad(square))(x), Value)
    assert_type(vmap(grad(square))(fnp.arange(3.0)), Value)
    gradient, aux = grad(with_aux, has_aux=True)(x, x)
    assert_type(gradient, Value)
    assert_type(aux, dict[str, Value])
    (value, again), slope = value_and_grad(with_aux, has_aux=True)(x, x)
    assert_type(value, Value)
    assert_type(again, dict[str, Value])
    assert_type(slope, Value)
    by_x, by_y = grad(product, argnums=(0, 1))(x, x)
    assert_type(by_x, Value)
    assert_type(by_y, Value)
    out, dot = jvp(square, (x,), (x,))
    assert_type(out, Value)
    assert_type(dot, Value)
    out, back = vjp(square, x)
    assert_type(out, Value)
    assert_type(back(x), tuple[Value])
    out, linear = linearize(square, x)
    assert_type(linear(x), Value)
    assert_type(closed_call(square)(x), Value)
    assert_type(named_call(square, name="square")(x), Value)
    assert_type(checkpoint(square)(x), Value)
    assert float(np.asarray(dot)) == 18.0


def halfway(x: Value) -> Value:
    """The root of `2 z = x`, by one step from 0."""

    def found(f: Callable[[Value], Value], z: Value) -> Value:
        return z - f(z) * 0.5

    def solved(g: Callable[[Value], Value], y: Value) -> Value:
        return y / g(as_value(1.0))

    root = custom_root(lambda z: 2.0 * z - x, as_value(0.0), found, solved)
    assert_type(root, Value)
    return root


def double(x: Value) -> Value:
    return x * 2.0


def over_lanes(x: Value) -> Value:
    return psum(square(x), "lanes")


def test_more_transforms_keep_types() -> None:
    x = as_value(3.0)
    with_rule = custom_jvp(square)
    with_rule.defjvp(lambda primals, tangents: (square(primals[0]), tangents[0]))
    assert_type(with_rule(x), Value)
    doubled = linear_transpose(double, x)
    (back,) = doubled(x)
    assert_type(back, Value)
    assert_type(jit(inline=True)(square)(x), Value)
    compiled = jit(square).lower(x).compile()
    assert_type(compiled(x), Value)
    assert_type(vmap(over_lanes, axis_name="lanes")(fnp.ones(2)), Value)
    assert_type(fnp.arange(3.0).at[0].set(x), Value)
    assert_type(make_jaxpr(square)(x), Jaxpr)
    assert float(grad(halfway)(x)) == 0.5
    assert float(compiled(back)) == 36.0


class Model:
    """An object with a jitted method."""

    def __init__(self, scale: Value) -> None:
        self.scale = scale

    @jit(static_argnums=0)
    def scaled(self, x: Value) -> Params:
        return Params(self.scale * x, x)


def of_params(params: Params) -> Value:
    return params.cell * params.read


def to_params(x: Value) -> Params:
    return Params(x * x, 3.0 * x)


def to_params_with_aux(x: Value) -> tuple[Params, Value]:
    return to_params(x), x


def of_params_with_aux(params: Params) -> tuple[Value, dict[str, Value]]:
    return of_params(params), {"cell": params.cell}


def params_to_params(params: Params) -> Params:
    return Params(params.cell * params.read, params.read)


def mixed(scale: Value, params: Params, x: Value) -> Value:
    return scale * params.cell * params.read * x


def test_jacobians_keep_types() -> None:
    x = as_value(3.0)
    params = Params(x, x * 2.0)
    for jacobian in (jacfwd, jacrev):
        assert_type(jacobian(square)(x), Value)
        assert_type(jacobian(of_params)(params), Params)
        assert_type(jacobian(to_params)(x), Params)
        slopes, aux = jacobian(of_params_with_aux, has_aux=True)(params)
        assert_type(slopes, Params)
        assert_type(aux, dict[str, Value])
        both = jacobian(to_params_with_aux, has_aux=True)(x)
        assert_type(both, tuple[Params, Value])
        assert_type(jacobian(product, argnums=1)(x, x), Value)
        assert_type(jacobian(product, argnums=(0, 1))(x, x), tuple[Value, Value])
        nested = jacobian(params_to_params)(params)
        assert_type(nested, Pytree)
        assert float(cast(tuple[Params, Params], nested)[0].read) == 3.0
    assert_type(hessian(square)(x), Value)
    assert_type(hessian(to_params)(x), Params)
    assert_type(hessian(of_params)(params), Pytree)
    assert_type(hessian(to_params_with_aux, has_aux=True)(x), tuple[Params, Value])
    assert float(hessian(square, chunk=1)(x)) == 2.0


def test_argnums_choose_types() -> None:
    x = as_value(3.0)
    params = Params(x, x)
    assert_type(grad(mixed)(x, params, x), Value)
    assert_type(grad(mixed, 1)(x, params, x), Params)
    assert_type(grad(mixed, argnums=2)(x, params, x), Value)
    assert_type(grad(mixed, argnums=(0, 1))(x, params, x), tuple[Value, Params])
    assert_type(grad(mixed, argnums=(0, 1, 2))(x, params, x), tuple[Value, Params, Value])
    value, slopes = value_and_grad(mixed, argnums=1)(x, params, x)
    assert_type(value, Value)
    assert_type(slopes, Params)
    last = grad(mixed, argnums=-1)(x, params, x)
    assert_type(last, Pytree)
    assert float(cast(Value, last)) == 27.0


def test_descriptions_and_methods_keep_types() -> None:
    spec = ShapeDtype((), "float64")
    assert_type(eval_shape(square, spec), ShapeDtype)
    described = eval_shape(to_params, spec)
    assert_type(described, Params)
    assert described.cell.shape == ()
    assert_type(jvp(square, [2.0], [1.0]), tuple[Value, Value])
    model = Model(as_value(2.0))
    scaled = model.scaled(as_value(3.0))
    assert_type(scaled, Params)
    assert float(scaled.cell) == 6.0


def test_loops_keep_types() -> None:
    zero = fnp.zeros(())

    def body(i: Value, refs: dict[str, Value]) -> None:
        refs["total"][...] += refs["weight"][...]

    out = for_loop(3, body, {"total": zero, "weight": fnp.ones(())})
    assert_type(out, dict[str, Value])
    assert_type(fori_loop(0, 3, lambda i, x: x + 1.0, zero), Value)
    assert_type(while_loop(lambda x: x < 3.0, lambda x: x + 1.0, zero), Value)
    assert_type(map(square, fnp.arange(3.0)), Value)
    assert_type(cond(True, square, square, zero), Value)
    assert_type(switch(0, [square, square], zero), Value)
    ref = new_ref(zero)
    assert_type(ref, Ref)
    ref[...] += 2.0
    assert_type(ref[...], Value)
    assert_type(freeze(ref), Value)
    pair = new_ref({"a": zero, "b": zero})
    assert_type(pair, dict[str, Value])
    assert_type(freeze(pair), dict[str, Value])
    last, nothing = scan(lambda c, _: (c + 1.0, None), zero, length=3)
    assert_type(last, Value)
    assert nothing is None
    assert float(np.asarray(out["total"])) == 3.0


def doubling(ref: Ref) -> None:
    ref[...] *= 2.0


def test_calls_of_python_and_batches_in_parts_keep_types() -> None:
    scalar = ShapeDtype((), "float32")
    assert_type(callback(np.sin, scalar, np.float32(1.0)), Value)
    assert_type(callback(print, None), None)
    both = pure_callback(lambda x: (x, x), (scalar, scalar), np.float32(2.0))
    assert_type(both, tuple[Value, Value])
    named = pure_callback(lambda x: {"x": x}, {"x": scalar}, np.float32(2.0))
    assert_type(named, dict[str, Value])
    assert_type(run_state(doubling)(1.5), Value)
    assert float(both[0] + named["x"] + run_state(doubling)(1.5)) == 7.0
    params = Params(fnp.ones((5, 4)), fnp.ones((4, 1)))
    batch = Batch(fnp.ones((4, 3, 1)), fnp.ones((4, 1)))
    value, grads = accumulate_grads(loss, 2)(params, batch)
    assert_type(value, Value)
    assert_type(grads, Params)
    gradients = accumulate_grads(product, 1, (0, 1), batch_argnums=2)
    assert_type(gradients, Callable[[Value, Value], tuple[Value, tuple[Value, Value]]])


def test_untyped_functions_are_no_errors() -> None:
    untyped: Callable[[Any], Any] = square
    assert float(np.asarray(grad(untyped)(2.0))) == 4.0
    assert vmap(grad(lambda x: x**3))(np.ones(2, np.float32)).shape == (2,)


def annotated(x: Array, scale: Array) -> Array:
    """A function of arrays, which are traced or not."""
    made: Array = fnp.sin(x) * scale
    return fnp.where(x > 0, made, fnp.float32(x.sum()))


def test_arrays_are_annotated_by_one_name() -> None:
    x: Array = fnp.ones(3)
    results: list[Array] = [annotated(x, x[0]), jit(annotated)(x, x[0]), vmap(annotated)(x, x)]
    results += [
        grad(lambda v: annotated(v, v[0]).sum())(x),
        scan(lambda c, v: (c + v, c), x[0], x)[1],
    ]
    assert_type(results[0], Value)
    assert all(isinstance(v, Array) for v in results)
    assert jit(lambda v: v if isinstance(v, Array) else x[0])(x).shape == (3,)
