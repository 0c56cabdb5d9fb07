"""torch as the library of the models: its own NumPy over tensors, and loops that are written out."""

from collections.abc import Callable
from typing import Any

import torch
import torch._numpy as tnp
from torch.nn import functional

from benchmarks.remat.models.base import Library, written_out


def on_arrays(fun: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function of a tensor as one of an array of torch's NumPy."""
    return lambda x, **how: tnp.asarray(fun(x.tensor, **how))


class Functions:
    """The functions of neural networks that the models use."""

    gelu = staticmethod(on_arrays(lambda x: functional.gelu(x, approximate="tanh")))
    relu = staticmethod(on_arrays(functional.relu))
    silu = staticmethod(on_arrays(functional.silu))
    softmax = staticmethod(on_arrays(lambda x, axis: functional.softmax(x, axis)))
    log_softmax = staticmethod(on_arrays(lambda x, axis: functional.log_softmax(x, axis)))


LIBRARY = Library(tnp, Functions, written_out)
