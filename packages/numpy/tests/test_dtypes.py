"""The names of dtypes: they are dtypes wherever one is wanted, and functions that make arrays of theirs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, vmap

NAMES = (
    "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 bfloat16 float16 float32 float64 complex64 complex128"
).split()


@pytest.mark.parametrize("name", NAMES)
def test_name_is_a_dtype(name: str) -> None:
    kind = getattr(fnp, name)
    dtype = np.dtype(name.rstrip("_"))
    assert np.dtype(kind) == dtype == kind == dtype.type
    assert kind == name.rstrip("_")
    assert kind != (fnp.int8 if name != "int8" else fnp.int16)
    assert hash(kind) == hash(dtype)
    assert fnp.zeros(2, kind).dtype == kind == np.zeros(2, kind).dtype
    assert fnp.ones(2).astype(kind).dtype == kind
    assert fnp.result_type(kind) == fnp.promote_types(kind, kind) == dtype
    assert fnp.can_cast(kind, kind)
    assert fnp.issubdtype(kind, np.generic)
    assert fnp.isdtype(kind, kind) and fnp.isdtype(dtype, (kind, "bool"))
    assert fnp.isdtype(kind, ("bool", "numeric"))
    assert pickle.loads(pickle.dumps(kind)) is kind is copy.deepcopy(kind)
    assert repr(kind) == f"fiveloop.numpy.{name}"


ABSTRACT = "generic number character integer signedinteger unsignedinteger inexact floating complexfloating"


@pytest.mark.parametrize("abstract", ABSTRACT.split())
@pytest.mark.parametrize("name", NAMES)
def test_abstract_classes_are_those_of_numpy(name: str, abstract: str) -> None:
    kind = getattr(fnp, name)
    alike = np.dtype("float32" if name == "bfloat16" else kind)
    assert getattr(fnp, abstract) is getattr(np, abstract)
    for given in (kind, kind.dtype, kind.dtype.type):
        assert fnp.issubdtype(given, getattr(fnp, abstract)) == np.issubdtype(
            alike, getattr(np, abstract)
        )
    assert fnp.issubdtype(kind, kind) and not fnp.issubdtype(fnp.integer, fnp.floating)


@pytest.mark.parametrize("name", NAMES)
def test_name_is_a_function(name: str) -> None:
    kind: Any = getattr(fnp, name)
    x = np.array([0, 1, 2], np.int32)
    want = x.astype(kind.dtype)
    for way in (kind, jit(kind), vmap(kind), jit(vmap(kind)), lambda v: kind(list(v))):
        got = way(x)
        assert got.dtype == kind
        np.testing.assert_array_equal(np.asarray(got), want)
    assert kind().dtype == kind(1).dtype == kind
    assert not kind(1).weak_type


def test_functions_have_derivatives() -> None:
    assert grad(lambda x: fnp.float64(x) ** 2)(3.0).item() == 6.0
    assert grad(lambda x: fnp.bfloat16(x))(np.ones((), np.float32)).dtype == np.float32


def test_limits_of_dtypes_by_name() -> None:
    assert fnp.finfo("bfloat16").eps == fnp.finfo(fnp.bfloat16).eps == 2.0**-7
    assert fnp.finfo("float32").max == fnp.finfo(fnp.ones(2)).max == np.finfo(np.float32).max
    assert fnp.finfo(fnp.complex128).dtype == fnp.float64
    assert fnp.iinfo("int8").max == fnp.iinfo(fnp.int8).max == 127
    assert fnp.iinfo(fnp.arange(2)).bits == 32
    with pytest.raises(ValueError, match="int32"):
        fnp.finfo(fnp.int32)


def test_a_number_made_in_a_jitted_function_is_a_constant_of_its_program() -> None:
    """As an argument it costs time in each call, and XLA cannot compute with it."""

    def f(x: Any) -> Any:
        two = fnp.float32(2)
        assert float(two) == 2.0
        return vmap(lambda x: x * two + fnp.asarray(1.5))(x)

    assert str(jit(f).lower(fnp.ones(3)).as_text()).count("%arg") == 2, "its place and its use"
    outside = fnp.float32(2)
    assert "%arg1" in str(jit(lambda x: x * outside).lower(fnp.ones(3)).as_text())
    np.testing.assert_array_equal(jit(f)(fnp.ones(3)), [3.5, 3.5, 3.5])
    np.testing.assert_array_equal(jit(lambda: fnp.float32(2))(), 2.0)
