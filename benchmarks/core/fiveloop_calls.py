"""The calls in fiveloop."""

from benchmarks.core import calls
from benchmarks.model import Action
from benchmarks.sides.fiveloop_side import on_device
from fiveloop import core


def build(kind: str, size: int) -> Action:
    """A call of one kind."""
    return calls.action(kind, size, core.jit, on_device)
