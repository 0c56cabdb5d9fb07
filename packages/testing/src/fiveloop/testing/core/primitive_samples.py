"""Samples of every core primitive: functions and float64 arguments at points where derivatives exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fiveloop.core.ir.indexer import At, Indexer, Lane, Pick, Span
from fiveloop.core.primitives import broadcast as bc
from fiveloop.core.primitives import dot as d
from fiveloop.core.primitives import elementwise as e
from fiveloop.core.primitives import reduce as r
from fiveloop.core.primitives import running as c
from fiveloop.core.primitives import shape as s
from fiveloop.core.primitives import sort as o
from fiveloop.core.primitives import special as sp
from fiveloop.core.primitives import take as t
from fiveloop.core.primitives.convert import convert
from fiveloop.core.primitives.ordering import barrier, order, to_memory
from fiveloop.core.primitives.put import put
from fiveloop.core.primitives.special import threefry2x32

Function = Callable[..., Any]
Case = tuple[str, Function, tuple[Any, ...]]

NOT_QUOTIENTS = {"stop_gradient", "nextafter", "reduce_precision", "custom_rule"}
"""Primitives whose derivative is by design not that of their values."""

_rng = np.random.default_rng(20)


def floats(*shape: int, low: float = -1.5, high: float = 1.5) -> np.ndarray[Any, Any]:
    """Random numbers, away from each other so that no two tie."""
    return _rng.uniform(low, high, shape)


def complexes(*shape: int) -> np.ndarray[Any, Any]:
    """Random complex numbers."""
    return floats(*shape) + 1j * floats(*shape)


def ints(*shape: int, low: int = -7, high: int = 8, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    """Random integers."""
    return _rng.integers(low, high, shape).astype(dtype)


def bools(*shape: int) -> np.ndarray[Any, Any]:
    """Random bools."""
    return _rng.integers(0, 2, shape).astype(np.bool_)


_A, _B = floats(2, 3), floats(2, 3)
_POSITIVE, _INSIDE = floats(2, 3, low=0.4, high=2.5), floats(2, 3, low=-0.9, high=0.9)

_UNARY: dict[str, np.ndarray[Any, Any]] = {
    **dict.fromkeys(
        "neg exp expm1 sin cos tan sinh cosh tanh asinh atan logistic erf erfc square cbrt abs".split(),
        _A,
    ),
    **dict.fromkeys("sign floor ceil round stop_gradient is_finite".split(), _A),
    **dict.fromkeys("log log1p sqrt rsqrt lgamma digamma".split(), _POSITIVE),
    **dict.fromkeys("asin acos atanh erf_inv".split(), _INSIDE),
    "acosh": _POSITIVE + 1.1,
}
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "hypot", "logaddexp")
_COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")


def elementwise(name: str) -> Function:
    """An elementwise function by its name."""
    found: Function = getattr(e if hasattr(e, name) else sp, name)
    return found


def _elementwise() -> list[Case]:
    cases: list[Case] = [(name, elementwise(name), (arg,)) for name, arg in _UNARY.items()]
    for name in _BINARY:
        fn = elementwise(name)
        cases += [(name, fn, (_A, _B)), (name, fn, (_A, floats())), (name, fn, (floats(), _B))]
    for name in _COMPARE:
        cases += [
            (name, elementwise(name), (_A, _B)),
            (name, elementwise(name), (ints(4, high=3), ints(4, high=3))),
        ]
    for name in _BITS:
        cases += [
            (name, elementwise(name), (ints(4), ints(4))),
            (name, elementwise(name), (bools(4), bools(4))),
        ]
    for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
        amounts = np.array([0, 1, 5, 31, 32, 40], np.int32)
        cases.append((name, elementwise(name), (ints(6, low=-1000, high=1000), amounts)))
    return cases


def _special() -> list[Case]:
    whole = ints(5, low=-20, high=20)
    divisor = np.array([3, -3, 2, -7, 5], np.int32)
    return [
        ("div", e.div, (whole, divisor)),
        ("rem", e.rem, (whole, divisor)),
        ("rem", e.rem, (_A * 3, _POSITIVE)),
        *[(f.prim.name, f, (whole, divisor - 2)) for f in (e.floor_div, e.mod)],
        ("pow", e.pow, (_POSITIVE, _A)),
        ("pow", e.pow, (_POSITIVE, floats())),
        ("nextafter", e.nextafter, (_A, _B)),
        ("clamp", e.clamp, (np.float64(-0.5), _A, np.float64(0.7))),
        ("clamp", e.clamp, (_A - 0.4, _B, _A + 0.5)),
        ("integer_pow", lambda a: sp.integer_pow(a, 3), (_A,)),
        ("integer_pow", lambda a: sp.integer_pow(a, -2), (_POSITIVE,)),
        ("integer_pow", lambda a: sp.integer_pow(a, 0), (_A,)),
        ("integer_pow", lambda a: sp.integer_pow(a, 5), (ints(4),)),
        ("select", e.select, (bools(2, 3), _A, _B)),
        ("select", e.select, (np.bool_(True), _A, _B)),
        ("bitwise_not", e.bitwise_not, (ints(4),)),
        ("bitwise_not", e.bitwise_not, (bools(4),)),
        ("population_count", e.population_count, (ints(4),)),
        ("count_leading_zeros", e.count_leading_zeros, (ints(4, low=0),)),
        ("polygamma", lambda a: sp.polygamma(1.0, a), (_POSITIVE,)),
        ("reduce_precision", lambda a: sp.reduce_precision(a, 5, 40), (_A,)),
        (
            "bitcast_convert",
            lambda a: sp.bitcast_convert(a, np.int32),
            (floats(3).astype(np.float32),),
        ),
        ("bitcast_convert", lambda a: sp.bitcast_convert(a, np.int16), (ints(3),)),
        ("convert", lambda a: convert(a, np.float64), (ints(4),)),
        ("convert", lambda a: convert(a, np.int32), (_A * 5,)),
        ("convert", lambda a: convert(a, np.bool_), (ints(6, low=-1, high=2),)),
        ("real", e.real, (complexes(3),)),
        ("imag", e.imag, (complexes(3),)),
        ("conj", lambda a, b: e.real(e.conj(e.complex(a, b))), (_A, _B)),
        ("sign", lambda a, b: _both_parts(e.sign(e.complex(a, b))), (_A, _B)),
        ("complex", lambda a, b: e.abs(e.mul(e.complex(a, b), e.complex(b, a))), (_A, _B)),
    ]


def _both_parts(x: Any) -> Any:
    return e.sub(e.real(x), e.mul(e.imag(x), 2.0))


def _shapes() -> list[Case]:
    return [
        ("broadcast_in_dim", lambda a: bc.broadcast_in_dim(a, (4, 2, 3), (1, 2)), (_A,)),
        ("broadcast_in_dim", lambda a: bc.broadcast_in_dim(a, (2, 3, 4), (0, 2)), (floats(2, 1),)),
        ("reshape", lambda a: bc.reshape(a, (3, 2)), (_A,)),
        ("transpose", lambda a: bc.transpose(a, (2, 0, 1)), (floats(2, 3, 4),)),
        ("reverse", lambda a: s.reverse(a, (1,)), (_A,)),
        ("pad", lambda a, v: s.pad(a, v, (1, -1), (2, 3), (0, 2)), (_A, floats())),
        ("pad", lambda a, v: s.pad(a, v, (-1, 0), (0, -2), (1, 1)), (_A, floats())),
        ("concatenate", lambda a, b: s.concatenate([a, b, a], 1), (_A, floats(2, 1))),
        ("split", lambda a: e.mul(*s.split(a, (2, 0, 2), 1)[::2]), (floats(2, 4),)),
        ("split", lambda a: s.split(a, (1, 2), 0)[1], (floats(3, 2),)),
        ("iota", lambda a: e.mul(a, s.iota(np.float64, (2, 3), 1)), (_A,)),
        ("reduce_sum", lambda a: bc.reduce_sum(a, (0, 2)), (floats(2, 3, 4),)),
        ("reduce_prod", lambda a: r.reduce_prod(a, (1,)), (_A,)),
        ("reduce_max", lambda a: r.reduce_max(a, (1,)), (_A,)),
        ("reduce_min", lambda a: r.reduce_min(a, (0,)), (_A,)),
        ("reduce_and", lambda a: r.reduce_and(a, (0,)), (bools(2, 3),)),
        ("reduce_or", lambda a: r.reduce_or(a, (1,)), (bools(2, 3),)),
        ("argmax", lambda a: r.argmax(a, 1), (_A,)),
        ("argmin", lambda a: r.argmin(a, 0), (_A,)),
    ]


def _dots() -> list[Case]:
    matmul: d.DimensionNumbers = (((1,), (0,)), ((), ()))
    batched: d.DimensionNumbers = (((1, 3), (2, 0)), ((2,), (1,)))
    return [
        ("dot_general", lambda a, b: d.dot_general(a, b, matmul), (_A, floats(3, 4))),
        (
            "dot_general",
            lambda a, b: d.dot_general(a, b, batched),
            (floats(5, 2, 3, 4), floats(4, 3, 2)),
        ),
        ("dot_general", lambda a, b: d.dot_general(a, b, (((), ()), ((), ()))), (_A, floats(2))),
        ("dot_general", lambda a: d.dot_general(a, a, (((1,), (1,)), ((), ()))), (_A,)),
        ("dot_general", lambda a, b: d.dot_general(a, b, matmul), (ints(2, 3), ints(3, 2))),
    ]


def _indexing() -> list[Case]:
    wide, i, j = floats(4, 5), np.int32(1), np.int32(4)
    at = np.array([2, 0, 3, 2], np.int32)
    block = Indexer((Span(None, 2), Span(None, 3)))
    dropping = Indexer((Span(None, 2), At(None)), drops=True)
    strided = Indexer((Span(3, 2, -2), At(None)), new_axes=(1,))
    rows = Indexer((Pick(), Span(0, 5)), (4,))
    some = Indexer((Span(1, 2), Pick()), (4,), 1, drops=True)
    paired = Indexer((Lane(0), Span(None, 2)), lead=(4,))
    cases: list[Case] = [
        ("take", lambda a: t.static_slice(a, (1, 0), (4, 5), (2, 3)), (wide,)),
        ("take", _take(block), (wide, i, j)),
        ("take", _take(dropping), (wide, j, i)),
        ("take", _take(strided), (wide, j)),
        ("take", _take(rows), (wide, at)),
        ("take", _take(some), (wide, at + 2)),
        ("take", _take(paired), (wide, at)),
        ("take", lambda a, k: t.take_along(a, k, 0), (wide, at[:, None] + np.zeros(5, np.int32))),
        ("put", _put(block), (wide, floats(2, 3), np.int32(3), np.int32(-2))),
        ("put", _put(dropping), (wide, floats(2), np.int32(3), i)),
        ("put", _put(strided), (wide, floats(2, 1), j)),
        ("put", _put(paired), (wide, floats(4, 2), at)),
        ("put", _put(some, "add"), (wide, floats(2, 4), at + 2)),
        ("resolve_index", lambda i: t.resolve_index(i, 5, 2), (ints(6),)),
    ]
    for kind in ("set", "add", "mul", "max", "min"):
        unique = kind == "mul"
        where = np.array([2, 0, 3, 1], np.int32) if unique else at
        cases.append(("put", _put(rows, kind, unique), (wide, floats(4, 5), where)))
    return cases


def _take(indexer: Indexer) -> Function:
    return lambda a, *positions: t.take(a, indexer, positions)


def _put(indexer: Indexer, kind: str = "set", unique: bool = False) -> Function:
    return lambda a, v, *positions: put(a, v, indexer, positions, kind, unique=unique)


def _running() -> list[Case]:
    cases: list[Case] = []
    for fn in (c.cumsum, c.cumprod, c.cummax, c.cummin, c.cumlogsumexp):
        cases += [
            (fn.__name__, _along(fn, 1), (floats(2, 5),)),
            (fn.__name__, _along(fn, 0, reverse=True), (floats(4, 2),)),
        ]
    with_zeros = np.array([1.5, 0.0, -2.0, 0.0, 0.7])
    return [
        *cases,
        ("cumprod", c.cumprod, (with_zeros,)),
        ("cumsum", c.cumsum, (ints(5),)),
        ("linear_recurrence", c.linear_recurrence, (floats(4, 2), floats(4, 2))),
        ("linear_recurrence", _along(c.linear_recurrence, 1, reverse=True), (_A, _B)),
    ]


def _along(fn: Function, axis: int, **options: Any) -> Function:
    return lambda *args: fn(*args, axis, **options)


def _ordering() -> list[Case]:
    keys, ties = floats(3, 4), ints(3, 4, high=-4)
    words = ints(3, low=0, high=2**31, dtype=np.uint32)
    return [
        ("sort", lambda a: o.sort(a, 0), (keys,)),
        ("sort", lambda a, b: o.sort_together([a, b]), (keys, floats(3, 4))),
        ("sort", lambda a, b, v: o.sort_together([a, b, v], num_keys=2), (ties, ties * 0, keys)),
        ("sort", lambda a: o.argsort(a, 1), (ties,)),
        ("top_k", lambda a: o.top_k(a, 2), (keys,)),
        ("barrier", lambda a, b: barrier(a, e.mul(a, b)), (_A, _B)),
        ("order", lambda i, a, b: order(i, a, e.mul(a, b)), (np.int32(1), _A, _B)),
        ("to_memory", lambda a: to_memory(a, "pinned_host"), (_A,)),
        ("threefry2x32", lambda k, w: threefry2x32((k, 7), (w, k)), (np.uint32(5), words)),
    ]


def core_cases() -> list[Case]:
    """All samples: the primitive's name, a function that binds it, and arguments."""
    given = (_elementwise(), _special(), _shapes(), _dots(), _indexing(), _running(), _ordering())
    return [case for cases in given for case in cases]
