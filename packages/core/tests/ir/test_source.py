"""Lines of the user's program: code that no one has any more is not kept for them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from fiveloop.core import forget_traces, jit


def test_code_of_a_dropped_function_is_freed() -> None:
    def run() -> weakref.ref[CodeType]:
        names: dict[str, Callable[[Any], Any]] = {}
        exec(compile("def f(x): return x * 2.0 + 1.0", "<made>", "exec"), names)
        f = names.pop("f")
        np.testing.assert_array_equal(jit(f)(np.ones(3, np.float32)), 3.0)
        return weakref.ref(f.__code__)

    code = run()
    forget_traces()
    gc.collect()
    assert code() is None
