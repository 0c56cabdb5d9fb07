"""The steps of random programs that core knows: arithmetic, shapes, indexing of values, integers, calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from fiveloop.core.api.autodiff import jvp, vjp
from fiveloop.core.api.batching import vmap
from fiveloop.core.api.custom_rules import custom_derivative, custom_jvp, custom_vjp
from fiveloop.core.api.gradient import grad
from fiveloop.core.arrays.array import Value, as_value
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.primitives import broadcast as bc
from fiveloop.core.primitives import elementwise as e
from fiveloop.core.primitives import reduce as r
from fiveloop.core.primitives import shape as s
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives.dot import dot_general
from fiveloop.core.trace.stage import stage
from fiveloop.core.trace.tracer import bind
from fiveloop.testing.core.programs import (
    INDEX_RANGE,
    SHAPES,
    Block,
    Draw,
    Env,
    Kinds,
    Scope,
    Shape,
    Step,
    Use,
    define_operation,
    draw_block,
    draw_int,
    draw_use,
)

# operations: name, meaning in the library, meaning in NumPy


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sin": (sp.sin, np.sin),
    "tanh": (sp.tanh, np.tanh),
    "neg": (e.neg, np.negative),
    "logistic": (sp.logistic, lambda x: 1 / (1 + np.exp(-x))),
    "bell": (lambda x: e.exp(e.neg(e.square(x))), lambda x: np.exp(-x * x)),
    "root": (
        lambda x: e.sqrt(e.add(e.square(x), 1.5)),
        lambda x: np.sqrt(x * x + x.dtype.type(1.5)),
    ),
    "log": (lambda x: e.log1p(e.square(x)), lambda x: np.log1p(x * x)),
    "inverse": (lambda x: e.rsqrt(e.add(1.0, e.square(x))), lambda x: 1 / np.sqrt(1 + x * x)),
    "cube": (lambda x: sp.tanh(sp.integer_pow(x, 3)), lambda x: np.tanh(x * x * x)),
    "erf": (sp.erf, _erf),
}
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mean2": (lambda x, y: e.mul(e.add(x, y), 0.5), lambda x, y: (x + y) * x.dtype.type(0.5)),
    "product": (lambda x, y: sp.tanh(e.mul(x, y)), lambda x, y: np.tanh(x * y)),
    "difference": (lambda x, y: sp.sin(e.sub(x, y)), lambda x, y: np.sin(x - y)),
    "ratio": (
        lambda x, y: e.div(x, e.add(2.0, sp.sin(y))),
        lambda x, y: x / (2 + np.sin(y)).astype(x.dtype),
    ),
    "maximum": (e.maximum, np.maximum),
    "minimum": (e.minimum, np.minimum),
    "first": (lambda x, y: x, lambda x, y: x),
}
for _name, (_library, _twin) in {**UNARY, **BINARY}.items():
    define_operation(_name, _library, _twin)

define_operation("scale", e.mul, lambda x, c: (x * x.dtype.type(c)).astype(x.dtype))
define_operation("sum", bc.reduce_sum, lambda x, axes=None: np.sum(x, axis=axes).astype(x.dtype))
define_operation("largest", r.reduce_max, lambda x, axes=None: np.max(x, axis=axes))
define_operation("broadcast_to", bc.broadcast_to, lambda x, shape: np.broadcast_to(x, shape).copy())
define_operation("transpose", bc.transpose, np.transpose)
define_operation("reshape", bc.reshape, np.reshape)
define_operation("reverse", s.reverse, lambda x, axes: np.flip(x, axes))
define_operation("concatenate", s.concatenate, np.concatenate)
define_operation(
    "halves",
    lambda x: e.sub(*s.split(x, (x.shape[0] // 2,) * 2)),
    lambda x: np.subtract(*np.split(x, 2)),
)
define_operation("pad", lambda x: s.pad(x, 0.5, (1,), (0,), (1,)), lambda x: _padded(x))
define_operation("matmul", lambda x, y: dot_general(x, y, (((1,), (0,)), ((), ()))), np.matmul)
define_operation("getitem", lambda x, index: x[index], lambda x, index: x[index].copy())
define_operation(
    "int_add", lambda i, j: e.clamp(-6, e.add(i, j), 6), lambda i, j: np.clip(i + j, -6, 6)
)
define_operation("int_neg", e.neg, np.negative)
define_operation("int_rem", lambda i: e.rem(i, 3), lambda i: np.fmod(i, np.int32(3)))
define_operation("int_floor_div", lambda i: e.floor_div(i, -3), lambda i: i // np.int32(-3))
define_operation(
    "int_mod", lambda i, j: e.mod(i, j), lambda i, j: np.where(j == 0, 0, i % (j or 1))
)
define_operation("argmax", lambda x: r.argmax(x, 0), lambda x: np.argmax(x).astype(np.int32))
define_operation(
    "choose", lambda i, x, y: e.select(e.less(i, 1), x, y), lambda i, x, y: x if i < 1 else y
)


def _padded(x: Any) -> Any:
    out = np.full(2 * len(x), 0.5, x.dtype)
    out[1::2] = x
    return out


# steps


@dataclass(frozen=True)
class Apply:
    """An elementwise operation of floats."""

    name: str
    uses: tuple[Use, ...]

    def run(self, env: Env) -> None:
        """Append the result."""
        env.floats.append(env.ops[self.name](*[env.float(u) for u in self.uses]))


def draw_unary(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A function of one float."""
    use = draw_use(draw, scope)
    scope.floats.append(scope.floats[use.index])
    return Apply(draw(st.sampled_from(sorted(UNARY))), (use,))


def draw_binary(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A function of two floats, in the shape of the first; sometimes of one float and itself."""
    first = draw_use(draw, scope)
    shape = scope.floats[first.index]
    second = draw_use(draw, scope, shape)
    scope.floats.append(shape)
    return Apply(draw(st.sampled_from(sorted(BINARY))), (first, second))


@dataclass(frozen=True)
class Reshape:
    """An operation that moves or reduces the elements of one float."""

    name: str
    use: Use
    arg: Any = None

    def run(self, env: Env) -> None:
        """Append the result."""
        x = env.float(self.use)
        args = () if self.arg is None else (self.arg,)
        env.floats.append(env.ops[self.name](x, *args))


def draw_shape(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """Transpose, reshape, reverse, sum, maximum, padding or cutting."""
    options: list[tuple[str, Shape, Any, Shape]] = [
        ("transpose", (2, 3), (1, 0), (3, 2)),
        ("reshape", (2, 3), (3, 2), (3, 2)),
        ("reshape", (3, 3), (9,), (9,)),
        ("reverse", (4,), (0,), (4,)),
        ("sum", (2, 3), (0,), (3,)),
        ("sum", (3, 3), (1,), (3,)),
        ("largest", (2, 3), (1,), (2,)),
        ("broadcast_to", (3,), (3, 3), (3, 3)),
        ("pad", (3,), None, (6,)),
        ("halves", (4,), None, (2,)),
    ]
    name, shape, arg, out = draw(st.sampled_from(options))
    use = draw_use(draw, scope, shape)
    scope.floats.append(out)
    return Reshape(name, use, arg)


@dataclass(frozen=True)
class Contract:
    """A matrix product, or two floats joined end to end."""

    name: str
    left: Use
    right: Use

    def run(self, env: Env) -> None:
        """Append the result."""
        x, y = env.float(self.left), env.float(self.right)
        if self.name == "concatenate":
            env.floats.append(env.ops["concatenate"]([x, y], 0))
        else:
            env.floats.append(env.ops["tanh"](env.ops["matmul"](x, y)))


def draw_contract(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A matrix product or a concatenation."""
    options: list[tuple[str, Shape, Shape, Shape]] = [
        ("matmul", (2, 3), (3, 3), (2, 3)),
        ("concatenate", (3,), (4,), (7,)),
    ]
    name, left, right, out = draw(st.sampled_from(options))
    step = Contract(name, draw_use(draw, scope, left), draw_use(draw, scope, right))
    scope.floats.append(out)
    return step


@dataclass(frozen=True)
class Integer:
    """An operation that gives an integer."""

    name: str
    operands: tuple[int, ...]
    use: Use | None = None

    def run(self, env: Env) -> None:
        """Append the integer."""
        if self.use is not None:
            env.ints.append(env.ops[self.name](env.float(self.use)))
        else:
            env.ints.append(env.ops[self.name](*[env.ints[k] for k in self.operands]))


def draw_integer(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """Integer arithmetic, or the place of the greatest element."""
    name = draw(
        st.sampled_from(["int_add", "int_neg", "int_rem", "int_floor_div", "int_mod", "argmax"])
    )
    count = 2 if name in ("int_add", "int_mod") else 1
    if name == "argmax":
        step = Integer(name, (), draw_use(draw, scope, (4,)))
    else:
        step = Integer(name, tuple(draw_int(draw, scope) for _ in range(count)))
    scope.ints += 1
    return step


@dataclass(frozen=True)
class Choose:
    """One of two floats, by an integer."""

    integer: int
    left: Use
    right: Use

    def run(self, env: Env) -> None:
        """Append the float chosen."""
        x, y = env.float(self.left), env.float(self.right)
        env.floats.append(env.ops["choose"](env.ints[self.integer], x, y))


def draw_choose(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A select between two floats of one shape."""
    left = draw_use(draw, scope)
    shape = scope.floats[left.index]
    right = draw_use(draw, scope, shape)
    scope.floats.append(shape)
    return Choose(draw_int(draw, scope), left, right)


# calls


def call(fun: Callable[..., Sequence[Any]], args: Sequence[Any]) -> list[Value]:
    """Call a flat function through `closed_call`; what it closes over becomes leading operands."""
    values = [as_value(x) for x in args]
    staged = stage(fun, [x.aval for x in values])
    params = ClosedCallParams(staged.jaxpr, "called")
    return bind(closed_call_p, *staged.captured, *values, params=params)


define_operation("call", call, lambda fun, args: fun(*args))


@dataclass(frozen=True)
class Call:
    """A nested block under a call: it takes some floats as arguments, and closes over everything else."""

    name: str
    args: tuple[int, ...]
    block: Block

    def run(self, env: Env) -> None:
        """Append the block's results."""

        def body(*xs: Any) -> list[Any]:
            inner = env.inner()
            for k, x in zip(self.args, xs, strict=True):
                inner.floats[k] = x
            return self.block.run(inner)

        env.floats.extend(env.ops[self.name](body, [env.floats[k] for k in self.args]))


def draw_call_of(name: str) -> Callable[[Draw, Scope, Kinds], Step]:
    """The kind of step that runs a block under the operation `name`, which calls a flat function."""

    def draw_call(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
        inner = scope.inner()
        args = tuple({draw_use(draw, scope).index for _ in range(draw(st.integers(1, 2)))})
        block = draw_block(draw, inner, kinds)
        scope.floats.extend(inner.floats[k] for k in block.outs)
        return Call(name, args, block)

    return draw_call


# transforms inside of programs


@dataclass(frozen=True)
class Within:
    """A transform of a nested block as a function of one float; it reads a Ref from outside, but writes none."""

    name: str
    use: Use
    block: Block
    ref: int | None = None

    def run(self, env: Env) -> None:
        """Append the transform's results."""

        def body(x: Any) -> list[Any]:
            inner = Env(env.ops, [*env.floats, x], list(env.ints))
            if self.ref is not None:
                inner.floats.append(env.ops["read"](env.refs[self.ref], ...))
            return self.block.run(inner)

        env.floats.extend(env.ops[self.name](body, env.float(self.use)))


def draw_within(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A gradient, a directional derivative or a batch of a block."""
    name = draw(st.sampled_from(["grad", "jvp", "vmap"]))
    use = draw_use(draw, scope, (3,)) if name == "vmap" else draw_use(draw, scope)
    shape = () if name == "vmap" else scope.floats[use.index]
    inner = Scope([*scope.floats, shape], scope.ints, [], scope.depth + 1)
    ref = draw(st.integers(0, len(scope.refs) - 1)) if scope.refs else None
    if ref is not None:
        inner.floats.append(scope.refs[ref])
    block = draw_block(draw, inner, kinds)
    outs = [inner.floats[k] for k in block.outs]
    scope.floats.extend({"grad": [shape], "jvp": outs, "vmap": [(3, *s) for s in outs]}[name])
    return Within(name, use, block, ref)


KINK = 0.03
"""Where the slopes on both sides differ by more, there is no derivative to compare with."""


def _total(ys: Sequence[Any]) -> Value:
    total: Value = bc.reduce_sum(ys[0])
    for y in ys[1:]:
        total = e.add(total, bc.reduce_sum(y))
    return total


def _twin_grad(fun: Callable[[Any], Sequence[Any]], x: Any) -> list[Any]:
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        unit = np.zeros_like(x)
        unit[at] = 1.0
        out[at] = sum(np.sum(y) for y in _twin_jvp(fun, x, unit))
    return [out]


def _twin_jvp(fun: Callable[[Any], Sequence[Any]], x: Any, direction: Any = 1.0) -> list[Any]:
    """The central difference of fourth order; a program that has a kink there is drawn in vain."""

    def at(step: float) -> Sequence[Any]:
        return fun(x + step * direction)

    h = 1e-3
    for before, here, after in zip(at(-h), at(0.0), at(h), strict=True):
        if np.any(np.abs((after - here) - (here - before)) > KINK * h):
            reject()
    points = zip(at(-2 * h), at(-h), at(h), at(2 * h), strict=True)
    return [(a - 8 * b + 8 * c - d) / (12 * h) for a, b, c, d in points]


def _grad_of_total(fun: Callable[[Any], Sequence[Any]], x: Any) -> list[Any]:
    def total(y: Any) -> Any:
        return _total(fun(y))

    return [grad(total)(x)]


def _twin_vmap(fun: Callable[[Any], Sequence[Any]], xs: Any) -> list[Any]:
    return [np.stack(ys) for ys in zip(*[fun(np.asarray(x)) for x in xs], strict=True)]


define_operation("grad", _grad_of_total, _twin_grad)
define_operation("jvp", lambda fun, x: jvp(fun, (x,), (bc.full_like(x, 1.0),))[1], _twin_jvp)
define_operation("vmap", lambda fun, xs: vmap(fun)(xs), _twin_vmap)

# functions with custom rules


@dataclass(frozen=True)
class Custom:
    """A nested block as a function with a derivative of its own, of all floats, and of Refs if its rule is a jvp."""

    name: str
    block: Block

    def run(self, env: Env) -> None:
        """Append the block's results."""
        refs = env.refs if self.name == "custom_jvp" else []
        ints = tuple(env.ints)  # the rule may run when the program has more of them

        def body(floats: Sequence[Any], refs: Sequence[Any]) -> list[Any]:
            return self.block.run(Env(env.ops, list(floats), list(ints), list(refs)))

        env.floats.extend(env.ops[self.name](body, list(env.floats), list(refs)))


def draw_custom(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A block with a custom rule of each kind."""
    name = draw(st.sampled_from(["custom_jvp", "custom_vjp", "custom_both"]))
    inner = scope.inner()
    inner.refs = inner.refs if name == "custom_jvp" else []
    inner.streams = 0
    block = draw_block(draw, inner, kinds)
    scope.floats.extend(inner.floats[k] for k in block.outs)
    return Custom(name, block)


def _by_jvp(fun: Callable[..., Any], floats: Any, refs: Any) -> Any:
    with_rule = custom_jvp(fun)
    with_rule.defjvp(lambda primals, tangents: jvp(fun, primals, tangents))
    return with_rule(floats, refs)


def _by_vjp(fun: Callable[..., Any], floats: Any, refs: Any) -> Any:
    with_rule = custom_vjp(fun)
    with_rule.defvjp(
        lambda floats, refs: (with_rule(floats, refs), floats),
        lambda floats, ct: (vjp(lambda xs: fun(xs, []), floats)[1](ct)[0], None),
    )
    return with_rule(floats, refs)


def _by_both(fun: Callable[..., Any], floats: Any, refs: Any) -> Any:
    return custom_derivative(
        fun,
        jvp=lambda primals, tangents: jvp(fun, primals, tangents),
        fwd=lambda floats, refs: (fun(floats, refs), floats),
        bwd=lambda floats, ct: (vjp(lambda xs: fun(xs, []), floats)[1](ct)[0], None),
    )(floats, refs)


for _custom in (("custom_jvp", _by_jvp), ("custom_vjp", _by_vjp), ("custom_both", _by_both)):
    define_operation(*_custom, lambda fun, floats, refs: fun(floats, refs))

CORE_KINDS = Kinds(
    steps=(draw_unary, draw_binary, draw_shape, draw_contract, draw_integer, draw_choose),
    nested=(draw_call_of("call"),),
)


def with_custom_rules(kinds: Kinds) -> Kinds:
    """Programs of these steps, and functions with custom rules, which nest but once: each traces its block often."""
    return replace(kinds.plus(nested=(draw_custom, draw_custom)), depth=1)


def with_transforms(kinds: Kinds) -> Kinds:
    """Programs of these steps, and transforms of blocks; the twin differentiates by differences."""
    return kinds.plus(nested=(draw_within, draw_within))


__all__ = [
    "CORE_KINDS",
    "INDEX_RANGE",
    "SHAPES",
    "Apply",
    "Call",
    "Choose",
    "Contract",
    "Custom",
    "Integer",
    "Reshape",
    "Within",
    "call",
    "draw_call_of",
    "with_custom_rules",
    "with_transforms",
]
