"""Methods of values equal NumPy's, traced or not; those that NumPy alone has say what to use."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core import ConcretizationError, Scalar, Value, grad, jit, vmap
from fiveloop.core.arrays.array import Array
from fiveloop.core.arrays.methods import ABSENT, METHODS, Methods
from fiveloop.core.extend import Concrete, as_value, to_array
from fiveloop.testing.core.misuse import assert_misuse

X = np.array([[3.0, -1.5, 2.25], [0.5, 7.0, -4.0]])
Z = np.array([[1 + 2j, 3 - 1j]])
I = np.array([[5, 0, 2], [7, 7, 1]], np.int32)

CALLS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "T": (X, lambda x: x.T),
    "mT": (np.ones((2, 3, 4)), lambda x: x.mT),
    "real": (Z, lambda x: x.real),
    "real of real": (X, lambda x: x.real),
    "imag": (Z, lambda x: x.imag),
    "imag of real": (X, lambda x: x.imag),
    "conj": (Z, lambda x: x.conj()),
    "conjugate of real": (X, lambda x: x.conjugate()),
    "astype": (X, lambda x: x.astype(np.float32)),
    "astype bool": (I, lambda x: x.astype(bool)),
    "view, narrower": (X, lambda x: x.view(np.int32)),
    "view, wider": (X.astype(np.float32)[:, :2], lambda x: x.view(np.int64)),
    "view, as wide": (X, lambda x: x.view(np.int64)),
    "copy": (X, lambda x: x.copy()),
    "reshape": (X, lambda x: x.reshape(3, -1)),
    "reshape to a tuple": (X, lambda x: x.reshape((3, 2))),
    "ravel": (X, lambda x: x.ravel()),
    "flatten": (X, lambda x: x.flatten()),
    "transpose": (np.ones((2, 3, 4)), lambda x: x.transpose(1, 2, 0)),
    "swapaxes": (np.ones((2, 3, 4)), lambda x: x.swapaxes(0, -1)),
    "squeeze": (np.ones((1, 3, 1)), lambda x: x.squeeze()),
    "squeeze of one": (np.ones((1, 3, 1)), lambda x: x.squeeze(0)),
    "diagonal": (X, lambda x: x.diagonal(1)),
    "trace": (X, lambda x: x.trace()),
    "repeat": (X, lambda x: x.repeat(2)),
    "repeat along": (X, lambda x: x.repeat([1, 0, 2], 1)),
    "take": (X, lambda x: x.take(np.array([4, 0]))),
    "take along": (X, lambda x: x.take(np.array([2, 0]), axis=1)),
    "clip": (X, lambda x: x.clip(-1, 2)),
    "clip below": (X, lambda x: x.clip(min=0)),
    "round": (X, lambda x: x.round()),
    "round to places": (X, lambda x: x.round(1)),
    "dot": (X, lambda x: x.dot(X.T)),
    "sum": (X, lambda x: x.sum(1, keepdims=True)),
    "prod": (X, lambda x: x.prod(axis=0)),
    "mean": (X, lambda x: x.mean(axis=(0, 1))),
    "var": (X, lambda x: x.var(0, ddof=1)),
    "std": (X, lambda x: x.std(axis=1, keepdims=True)),
    "max": (X, lambda x: x.max(1)),
    "min": (X, lambda x: x.min()),
    "all": (I, lambda x: x.all(0)),
    "any": (I, lambda x: x.any()),
    "argmax": (I, lambda x: x.argmax(1).astype(np.int64)),
    "argmin": (I, lambda x: x.argmin().astype(np.int64)),
    "cumsum": (X, lambda x: x.cumsum()),
    "cumsum along": (X, lambda x: x.cumsum(1)),
    "cumprod": (X, lambda x: x.cumprod(0)),
    "argsort": (I, lambda x: x.argsort(1).astype(np.int64)),
    "divmod": (I, lambda x: np.stack(divmod(x, 2)) if isinstance(x, np.ndarray) else _both(x)),
}


def _both(x: Any) -> Any:
    q, r = divmod(x, 2)
    return to_array(as_value(np.stack([np.asarray(q), np.asarray(r)]))) if _known(x) else (q, r)


def _known(x: Any) -> bool:
    return isinstance(x, Array)


@pytest.mark.parametrize(("x", "call"), CALLS.values(), ids=CALLS)
def test_methods_equal_those_of_numpy(x: Any, call: Callable[[Any], Any]) -> None:
    expected = call(x)
    for given in (call(as_value(x)), jit(call)(x)):
        got = np.stack([np.asarray(g) for g in given]) if isinstance(given, tuple) else given
        assert got.dtype == expected.dtype and got.shape == expected.shape
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12)


def test_sort_gives_a_new_array() -> None:
    x = as_value(X)
    np.testing.assert_array_equal(np.asarray(x.sort(1)), np.sort(X, 1))
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(np.asarray(x.sort(None, descending=True)), np.sort(X, None)[::-1])


def test_nonzero() -> None:
    rows, columns = as_value(I).nonzero()
    for got, expected in zip((rows, columns), I.nonzero(), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)


def test_numpy_functions_that_call_methods_give_our_arrays() -> None:
    x = as_value(X)
    functions: list[Callable[[Any], Any]] = [np.sum, np.mean, np.std, np.var, np.cumsum, np.argmax]
    functions += [np.max, np.prod, np.squeeze, np.all, np.round, lambda v: np.swapaxes(v, 0, 1)]
    functions += [lambda v: np.clip(v, 0, 1), lambda v: np.take(v, np.array([1, 0])), np.transpose]
    for f in functions:
        assert isinstance(f(x), Value)
        np.testing.assert_allclose(np.asarray(f(x)), f(X), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(jit(f)(X)), f(X), rtol=1e-12)


def test_methods_are_differentiated_and_batched() -> None:
    slope: Any = grad(lambda x: x.std() * x.clip(0, 5).cumsum()[-1])(X)
    h = 1e-6

    def f(x: np.ndarray[Any, Any]) -> float:
        return float(x.std() * x.clip(0, 5).cumsum()[-1])

    for k in ((0, 0), (1, 1), (1, 2)):
        step = np.zeros_like(X)
        step[k] = h
        np.testing.assert_allclose(
            float(slope[k]), (f(X + step) - f(X - step)) / (2 * h), rtol=1e-6, atol=1e-8
        )
    np.testing.assert_allclose(np.asarray(vmap(lambda r: r.sort())(X)), np.sort(X, 1))


def test_sizes() -> None:
    x = as_value(X)
    assert (x.size, x.nbytes, x.itemsize, x.ndim, len(x)) == (6, 48, 8, 2, 2)
    assert [np.asarray(r).tolist() for r in x] == X.tolist() == x.tolist()
    assert x.item(4) == 7.0 and as_value(X[:1, :1]).item() == 3.0


def test_python_protocols() -> None:
    x = to_array(as_value(X))
    assert 7.0 in x and 8.0 not in x
    assert bool(x[:1, :1]) is True
    assert f"{x[0, 0]:.2f}" == "3.00" and f"{x}" == str(X) and format(x[0, 0], "") == "3.0"
    np.testing.assert_array_equal(np.asarray(round(x)), X.round())
    np.testing.assert_array_equal(np.asarray(round(x, 1)), X.round(1))
    assert copy.copy(x) is x and copy.deepcopy([x])[0] is x
    back = pickle.loads(pickle.dumps({"x": x, "n": as_value(3)}))
    np.testing.assert_array_equal(np.asarray(back["x"]), X)
    assert back["n"].item() == 3 and back["n"].weak_type


def test_a_number_that_stays_as_it_is_serves_as_an_array() -> None:
    x = as_value(2.5)
    assert isinstance(x, Scalar)
    assert repr(x) == repr(to_array(x)) == "Array(2.5, dtype=float32, weak_type=True)"
    assert x.block_until_ready() == np.from_dlpack(x) == 2.5
    assert pickle.loads(pickle.dumps(x)).aval is x.aval


def test_one_list_of_methods() -> None:
    listed = {name for name in vars(Methods) if not name.startswith("_")}
    numpy = {name for name in dir(np.ndarray) if not name.startswith("_")}
    assert numpy <= listed | set(ABSENT) | set(dir(Array)), "each is there, or said to be absent"
    assert not listed & set(ABSENT)
    aliases = {"T": "transpose", "mT": "matrix_transpose", "conjugate": "conj"}
    aliases |= {"ravel": "reshape"}
    assert {aliases.get(name, name) for name in listed} == METHODS.keys()


def _made_from(kind: type, name: str) -> object:
    """The function that a method is, or a fused call of which it is, or a property."""
    found: Any = vars(kind)[name]
    function: Any = found.fget if isinstance(found, property) else found
    return inspect.unwrap(function)


def test_numpy_reads_the_memory_of_an_array_and_keeps_it() -> None:
    for dtype in (np.bool_, np.int8, np.float16, np.float32, np.complex128, ml_dtypes.bfloat16):
        for shape in ((), (0,), (2, 3)):
            x: Any = to_array(as_value(np.ones(shape, dtype)))
            host = np.asarray(x)
            assert (host.dtype, host.shape, host.flags.writeable) == (dtype, shape, False)
            assert np.array(x).flags.writeable
            assert hasattr(x, "__array_struct__") == (dtype != ml_dtypes.bfloat16)
    x = to_array(as_value(np.arange(4.0)))
    host = np.asarray(x)
    # What NumPy read the memory by holds it, also when the array and its buffer are gone.
    assert any("capsule" in str(part) for part in host.base or ())
    del x
    gc.collect()
    assert host.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_traced_values_have_the_same_methods() -> None:
    listed = {name for name in vars(Methods) if not name.startswith("_")}
    kinds, pending = set(), [Value]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        kinds.add(kind.__name__)
        if kind not in (Value, Concrete):
            own = listed & (vars(kind).keys() - {"item", "tolist"})
            assert all(_made_from(kind, name) is _made_from(Methods, name) for name in own), kind
    assert {"StageTracer", "JvpTracer", "BatchTracer"} <= kinds


A = to_array(as_value(X))
CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "bool": (
        lambda: bool(A),
        ValueError,
        "bool: expected a value of one element, got f64[2,3]; reduce it with `x.any()` or `x.all()`",
    ),
    "float": (
        lambda: float(A),
        TypeError,
        "float: expected a real number without axes, got f64[2,3]",
    ),
    "int of one element with axes": (
        lambda: int(A[:1, :1]),
        TypeError,
        "int: expected a real number without axes, got f64[1,1]",
    ),
    "float of a complex number": (
        lambda: float(as_value(1j)),
        TypeError,
        "float: expected a real number without axes, got c64*[]",
    ),
    "index": (
        lambda: [0, 1][A[0, 0]],
        TypeError,
        "index: expected an integer without axes, got f64[]",
    ),
    "item": (
        lambda: A.item(),
        ValueError,
        "item: expected a value of one element, got f64[2,3]; give an index, or use `x.tolist()`",
    ),
    "hash": (
        lambda: {A: 1},
        TypeError,
        "a value of type f64[2,3] has no hash, as its elements are what is compared; as a key use `x.item()`, "
        "`np.asarray(x).tobytes()` or `id(x)`",
    ),
    "format": (
        lambda: f"{A:.2f}",
        TypeError,
        "format: expected a value without axes for the format '.2f', got f64[2,3]; format its elements, "
        "`x.tolist()`, or use np.array2string",
    ),
    "out": (
        lambda: A.sum(out=X),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "sum: expected no `out`, got one of type ndarray; results are new arrays, to be copied by the caller: "
        "`out[...] = x.sum()`",
    ),
    "fill": (
        lambda: A.fill(0.0),  # type: ignore[attr-defined]  # that is the point
        AttributeError,
        "a value of type f64[2,3] has no attribute 'fill': arrays are immutable: use `full_like(x, v)` of "
        "fiveloop.numpy, or `ref[...] = v` on a Ref",
    ),
    "an unknown name": (
        lambda: A.nope,  # type: ignore[attr-defined]  # that is the point
        AttributeError,
        "a value of type f64[2,3] has no attribute 'nope'",
    ),
    "view": (
        lambda: A.astype("float32").view("float64"),
        ValueError,
        "view: expected a last axis whose bytes are a multiple of 8, those of float64, got f32[2,3]",
    ),
    "repeat": (
        lambda: A.repeat([1, 2], 1),
        ValueError,
        "repeat: expected `repeats` to be a number of at least 0, or one for each of 3 elements, got "
        "array([1, 2])",
    ),
    "traced repeat": (
        lambda: jit(lambda n: A.repeat(n))(2),
        ConcretizationError,
        "repeat: expected `repeats` to be known while tracing, got Traced<i32*[]>; if it comes from an argument, "
        "name that one in static_argnums",
    ),
    "axis": (
        lambda: A.cumsum(2),
        ValueError,
        "cumsum: expected `axis` in [-2, 2) for 2 axes, got 2",
    ),
    "diagonal of a vector": (
        lambda: A[0].trace(),
        ValueError,
        "diagonal: expected at least two axes, got f64[3]",
    ),
    "an attribute of a traced value": (
        lambda: jit(lambda x: setattr(x, "scale", 2.0))(A),
        AttributeError,
        "a value of type f64[2,3] has no attribute 'scale' that can be set",
    ),
    "the shape of a lane": (
        lambda: vmap(lambda x: setattr(x, "shape", (1, 3)))(A),
        AttributeError,
        "a value of type f64[3] has no attribute 'shape' that can be set",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


def test_private_names_are_refused_in_few_words() -> None:
    with pytest.raises(AttributeError, match=r"^__array_interface__$"):
        getattr(A, "__array_interface__")  # noqa: B009
