"""DLPack capsules: reading one, and a NumPy view of it for every dtype.

NumPy refuses bfloat16 and 8-bit floats; their bits are shown to it as unsigned integers instead.
"""

import ctypes
from typing import Any

import ml_dtypes
import numpy as np


class _Tensor(ctypes.Structure):
    """The start of DLPack's managed tensor, as its C header lays it out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_UINT_CODE = 1
_CPU_DEVICE = (1, 0)

_DTYPES: dict[tuple[int, int], np.dtype] = {
    (code, np.dtype(dtype).itemsize * 8): np.dtype(dtype)
    for code, dtypes in {
        0: (np.int8, np.int16, np.int32, np.int64),
        1: (np.uint8, np.uint16, np.uint32, np.uint64),
        2: (np.float16, np.float32, np.float64),
        4: (ml_dtypes.bfloat16,),
        5: (np.complex64, np.complex128),
        6: (np.bool_,),
        9: (ml_dtypes.float8_e4m3b11fnuz,),
        10: (ml_dtypes.float8_e4m3fn,),
        11: (ml_dtypes.float8_e4m3fnuz,),
        12: (ml_dtypes.float8_e5m2,),
        13: (ml_dtypes.float8_e5m2fnuz,),
    }.items()
    for dtype in dtypes
}


class _Offer:
    """A capsule dressed up as an array, which is how NumPy takes it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU_DEVICE


def as_numpy(capsule: Any) -> np.ndarray:
    """A read-only NumPy view of a capsule, which it uses up; the view keeps the memory alive."""
    tensor = _tensor(capsule)
    if tensor.device_type != _CPU_DEVICE[0]:
        where = f"one on a device of kind {tensor.device_type}; copy it to the host first"
        raise TypeError(f"expected a DLPack tensor in host memory, got {where}")
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        kind = f"type code {tensor.code} of {tensor.bits} bits"
        raise TypeError(f"expected a DLPack tensor of a dtype that XLA can hold, got {kind}")
    if dtype.isbuiltin != 1:
        tensor.code = _UINT_CODE
    view = np.from_dlpack(_Offer(capsule)).view(dtype)
    view.flags.writeable = False
    return view


def _tensor(capsule: Any) -> _Tensor:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = get(capsule, b"dltensor")
    return _Tensor.from_address(address)
