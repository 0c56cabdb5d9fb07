"""Sharing buffers with other libraries by DLPack."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .client import AvalLike, Buffer, default_client, put, rewrap
from .dlpack import as_numpy, describe
from .native import xla


class Exporter(Protocol):
    """An object that offers its memory."""

    def __dlpack__(self) -> Any:
        """A capsule with the memory."""


AvalOf = Callable[[tuple[int, ...], np.dtype], AvalLike]


def to_dlpack(buf: Buffer) -> Any:
    """A DLPack capsule that shares the buffer's memory."""
    return xla.buffer_to_dlpack_managed_tensor(buf)


def dlpack_device(buf: Buffer) -> tuple[int, int]:
    """DLPack's numbers for the device that holds the buffer."""
    return (1 if default_client().platform == "cpu" else 2, default_client().device.id)


def from_dlpack(source: Exporter, aval_of: AvalOf) -> Buffer:
    """A buffer that shares the memory of `source`; memory that is not row-major is copied."""
    capsule = source.__dlpack__()
    found = describe(capsule)
    aval = aval_of(found.shape, found.dtype)
    if not found.row_major:
        return put(as_numpy(capsule), aval)
    shared = xla.dlpack_managed_tensor_to_buffer(capsule, default_client().device, None)
    return rewrap(shared, aval)
