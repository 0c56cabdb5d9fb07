"""The eager operations in fiveloop."""

from types import SimpleNamespace

import fiveloop.numpy as fnp
from benchmarks.core import eager
from benchmarks.model import Action, Program
from benchmarks.sides.fiveloop_side import on_device
from fiveloop import core
from fiveloop.state import new_ref

TOOLS = SimpleNamespace(
    grad=core.grad, vmap=core.vmap, make_jaxpr=core.make_jaxpr, top_k=fnp.top_k, new_ref=new_ref
)


def build(name: str, size: int) -> Action:
    """One operation."""
    return eager.action(name, size, fnp, TOOLS, on_device)


def build_program(name: str, size: int) -> Program:
    """One operation to compile."""
    return eager.program(name, size, fnp, TOOLS)
