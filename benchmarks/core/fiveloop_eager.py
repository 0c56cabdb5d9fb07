"""The eager operations in fiveloop."""

from types import SimpleNamespace

import fiveloop.numpy as fnp
from benchmarks.core import eager
from benchmarks.model import Action
from benchmarks.sides.fiveloop_side import on_device
from fiveloop import core

TOOLS = SimpleNamespace(grad=core.grad, vmap=core.vmap, top_k=fnp.top_k)


def build(name: str, size: int) -> Action:
    """One operation."""
    return eager.action(name, size, fnp, TOOLS, on_device)
