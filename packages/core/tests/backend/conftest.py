"""A fixture that writes, compiles and runs one small program."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fiveloop.core.backend import client, hlo

Write = Callable[..., Sequence[hlo.IRValue]]


def run(write: Write, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results of `write(b, *values)` on the arrays."""
    b = hlo.Builder("test")
    outs: list[hlo.IRValue] = []

    def body(args: list[hlo.IRValue]) -> list[hlo.IRValue]:
        outs.extend(write(b, *args))
        return outs

    b.function("main", [(x.shape, x.dtype) for x in arrays], public=True, body=body)
    executable = client.compile_text(b.text(), [client.Aval(o.shape, o.dtype) for o in outs])
    buffers = [client.put(x, client.Aval(x.shape, x.dtype)) for x in arrays]
    return [client.to_numpy(buf) for buf in executable.execute(buffers)]


@pytest.fixture
def program() -> Callable[..., list[np.ndarray]]:
    """Run a program written with the builder."""
    return run
