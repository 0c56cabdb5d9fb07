"""Constants as StableHLO text, exact to the bit."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .hlo_builder import FLOAT_DTYPES, Builder, IRValue, tensor_type

_HEX_ABOVE = 64  # arrays with more elements than this are written as one string of bytes


def constant(
    b: Builder,
    value: ArrayLike,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> IRValue:
    """A constant: a scalar repeated over `shape`, or an array of exactly that shape."""
    array = np.asarray(value) if dtype is None else np.asarray(value).astype(np.dtype(dtype))
    out_shape = array.shape if shape is None else tuple(shape)
    if array.shape not in ((), out_shape):
        raise ValueError(f"expected a scalar or an array of shape {out_shape}, got {array.shape}")
    scalar = _splat(array)
    if scalar is None:
        return _emit(b, _dense_text(array), out_shape, array.dtype)
    bits, out_dtype = scalar.tobytes(), array.dtype
    return b.remembered(
        (bits, out_dtype, out_shape),
        lambda: _emit(b, _splat_text(bits, out_dtype), out_shape, out_dtype),
    )


@lru_cache(maxsize=4096)
def _splat_text(bits: bytes, dtype: np.dtype) -> str:
    # Programs say 0 and 1 over and over, and printing a float exactly is slow.
    return element_text(np.frombuffer(bits, dtype).reshape(()))


def element_text(x: np.ndarray) -> str:
    """One element, a 0-d array, as an MLIR literal that reads back to the same bits."""
    if x.dtype == np.bool_:
        return "true" if x else "false"
    if x.dtype.kind == "c":
        return f"({element_text(x.real)}, {element_text(x.imag)})"
    return _float_text(x) if x.dtype in FLOAT_DTYPES else str(int(x))


def _emit(b: Builder, text: str, shape: tuple[int, ...], dtype: np.dtype) -> IRValue:
    return b.emit(f"stablehlo.constant dense<{text}> : {tensor_type(shape, dtype)}", shape, dtype)


def _splat(array: np.ndarray) -> np.ndarray | None:
    """The one element of the array if all its elements have the same bits."""
    if array.shape == ():
        return array
    if array.size == 0:
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    # Bits are compared, not values: 0.0 equals -0.0, and a NaN does not equal itself.
    rows = flat.view(np.uint8).reshape(array.size, -1)
    return flat[:1].reshape(()) if bool((rows == rows[0]).all()) else None


def _dense_text(array: np.ndarray) -> str:
    if array.size == 0:
        return ""
    # Bytes of i1 are packed differently by different MLIR versions, so bools are always listed.
    if array.size > _HEX_ABOVE and array.dtype != np.bool_:
        return f'"0x{np.ascontiguousarray(array).tobytes().hex().upper()}"'
    if array.ndim == 1:
        return f"[{', '.join([element_text(x) for x in _scalars(array)])}]"
    return f"[{', '.join([_dense_text(np.asarray(row)) for row in array])}]"


def _scalars(array: np.ndarray) -> list[np.ndarray]:
    return [array[i : i + 1].reshape(()) for i in range(array.size)]


def _float_text(x: np.ndarray) -> str:
    """A decimal where it reads back to the same bits through a double, else the bits in hex."""
    bits = x.tobytes()
    with np.errstate(invalid="ignore"):  # a signalling NaN is a constant like any other
        finite = bool(np.isfinite(x))
    if finite:
        for decimal in (str(x), repr(float(x))):
            text = _with_point(decimal)
            if text is not None and np.asarray(float(text)).astype(x.dtype).tobytes() == bits:
                return text
    return f"0x{bits[::-1].hex().upper()}"


def _with_point(decimal: str) -> str | None:
    """MLIR wants a point before an exponent: `1e-05` becomes `1.0e-05`."""
    mantissa, e, exponent = decimal.partition("e")
    if not mantissa.lstrip("-").replace(".", "", 1).isdigit():
        return None
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    mantissa = f"{mantissa}0" if mantissa.endswith(".") else mantissa
    return f"{mantissa}{e}{exponent}"
