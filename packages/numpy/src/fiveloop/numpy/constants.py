"""Constants, dtypes, and predicates of dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from fiveloop.core import ArrayLike, Value, arrays
from fiveloop.numpy.creation import asarray

pi = math.pi
e = math.e
euler_gamma = 0.5772156649015329
inf = math.inf
nan = math.nan
newaxis = None


class ScalarType:
    """A dtype, to be given wherever a dtype is expected; a call makes an array of its argument in that dtype.

    >>> fnp.float32(2), fnp.ones(1, fnp.int8).dtype == fnp.int8
    (Array(2., dtype=float32), True)
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.__name__ = {"bool": "bool_"}.get(dtype, dtype)

    def __call__(self, x: ArrayLike | Sequence[Any] = 0) -> Value:
        return asarray(x, self.dtype)

    def __eq__(self, other: object) -> bool:
        return self.dtype == other

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"fiveloop.numpy.{self.__name__}"

    def __reduce__(self) -> str:
        return self.__name__


bool_ = ScalarType("bool")
int8, int16, int32, int64 = map(ScalarType, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(ScalarType, ("uint8", "uint16", "uint32", "uint64"))
float16, float32, float64 = map(ScalarType, ("float16", "float32", "float64"))
complex64, complex128 = map(ScalarType, ("complex64", "complex128"))
bfloat16 = ScalarType("bfloat16")

dtype = np.dtype
generic, number, character = np.generic, np.number, np.character
integer, signedinteger, unsignedinteger = np.integer, np.signedinteger, np.unsignedinteger
inexact, floating, complexfloating = np.inexact, np.floating, np.complexfloating
ndarray = Value


def finfo(dtype: Any) -> np.finfo[Any]:
    """The limits of a dtype of floats, or of an array's: its greatest number, its precision.

    >>> fnp.finfo("bfloat16").eps, fnp.finfo(fnp.float16).max
    (0.0078125, np.float16(65500.0))
    """
    return arrays.float_limits(_typed(dtype).dtype)


def iinfo(int_type: Any) -> np.iinfo[Any]:
    """The limits of a dtype of integers, or of an array's.

    >>> fnp.iinfo("int8").max
    127
    """
    return np.iinfo(_typed(int_type).dtype)


def result_type(*xs: Any) -> np.dtype[Any]:
    """The dtype that operands are brought to: arrays, dtypes or Python numbers, which yield to the others.

    >>> fnp.result_type(np.float32, 1.5), fnp.result_type(np.int32, np.float16)
    (dtype('float32'), dtype('float16'))
    """
    return arrays.join(tuple(_typed(x) for x in xs)).dtype


def promote_types(x: Any, y: Any) -> np.dtype[Any]:
    """The dtype that arrays of two dtypes are brought to.

    >>> fnp.promote_types("int32", "float32")
    dtype('float32')
    """
    return arrays.join((arrays.Typed(np.dtype(x)), arrays.Typed(np.dtype(y)))).dtype


def can_cast(x: Any, to: Any, casting: Any = "safe") -> bool:
    """Whether a dtype, or that of an array, can become another one under NumPy's casting rule.

    >>> fnp.can_cast(np.int32, np.float64)
    True
    """
    return bool(np.can_cast(x.dtype if isinstance(x, Value) else x, to, casting))


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a dtype is another one, or of an abstract class such as `floating`, to which bfloat16 belongs, too.

    >>> fnp.issubdtype(fnp.bfloat16, fnp.floating), fnp.issubdtype(np.int8, fnp.inexact)
    (True, False)
    """
    if np.issubdtype(arg1, arg2):
        return True
    small = not (isinstance(arg1, type) and arg1.__module__ == "numpy")
    return small and arg2 in (number, inexact, floating) and _known(arg1).kind == "f"


def _known(dtype: Any) -> np.dtype[Any]:
    """A dtype, but float32 in place of bfloat16 and its kin, whose kind NumPy does not know."""
    found = np.dtype(dtype)
    return np.dtype(np.float32) if arrays.dtype_kind(found) == "f" else found


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name of the Array API standard, a dtype, or a tuple of those.

    >>> fnp.isdtype(np.float32, "real floating"), fnp.isdtype(np.int8, ("bool", "integral"))
    (True, True)
    """
    found, kinds = np.dtype(dtype), kind if isinstance(kind, tuple) else (kind,)
    return any(
        np.isdtype(_known(found), k) if isinstance(k, str) else found == np.dtype(k) for k in kinds
    )


def _typed(x: Any) -> arrays.Typed:
    if isinstance(x, Value):
        return arrays.Typed(x.dtype, x.weak_type)
    if arrays.is_python_number(x):
        return arrays.python_typed(x)
    return arrays.Typed(x.dtype if isinstance(x, (np.ndarray, np.generic)) else np.dtype(x))
