"""Constants, dtypes, and questions about dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fiveloop.core import Value
from fiveloop.core.promotion import Typed, is_python_number, join, python_typed

pi = math.pi
e = math.e
euler_gamma = 0.5772156649015329
inf = math.inf
nan = math.nan
newaxis = None

bool_ = np.bool_
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float16, float32, float64 = np.float16, np.float32, np.float64
complex64, complex128 = np.complex64, np.complex128
bfloat16: Any = np.dtype("bfloat16").type  # core has taught NumPy the name

dtype = np.dtype
finfo = np.finfo
iinfo = np.iinfo
issubdtype = np.issubdtype
ndarray = Value


def result_type(*xs: Any) -> np.dtype[Any]:
    """The dtype that operands are brought to: arrays, dtypes or Python numbers, which yield to the others.

    >>> fnp.result_type(np.float32, 1.5), fnp.result_type(np.int32, np.float16)
    (dtype('float32'), dtype('float16'))
    """
    return join(tuple(_typed(x) for x in xs)).dtype


def promote_types(x: Any, y: Any) -> np.dtype[Any]:
    """The dtype that arrays of two dtypes are brought to.

    >>> fnp.promote_types("int32", "float32")
    dtype('float32')
    """
    return join((Typed(np.dtype(x)), Typed(np.dtype(y)))).dtype


def can_cast(x: Any, to: Any, casting: Any = "safe") -> bool:
    """Whether a dtype, or that of an array, can become another one under NumPy's casting rule.

    >>> fnp.can_cast(np.int32, np.float64)
    True
    """
    return bool(np.can_cast(x.dtype if isinstance(x, Value) else x, to, casting))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name of the Array API standard, a dtype, or a tuple of those.

    >>> fnp.isdtype(np.float32, "real floating"), fnp.isdtype(np.int8, ("bool", "integral"))
    (True, True)
    """
    return bool(np.isdtype(np.dtype(dtype), kind))


def _typed(x: Any) -> Typed:
    if isinstance(x, Value):
        return Typed(x.dtype, x.weak_type)
    if is_python_number(x):
        return python_typed(x)
    return Typed(x.dtype if isinstance(x, (np.ndarray, np.generic)) else np.dtype(x))
