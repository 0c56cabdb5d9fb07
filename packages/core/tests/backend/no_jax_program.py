"""Runs the whole backend with an import hook that reports every attempt to import jax."""

import contextlib
import sys
from importlib.abc import MetaPathFinder
from typing import Any

attempts: list[str] = []


class Watch(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "jax" or name.startswith("jax."):
            attempts.append(name)
            raise ImportError(f"nothing of fiveloop imports {name}")


sys.meta_path.insert(0, Watch())

import ml_dtypes  # noqa: E402  (the hook comes first)
import numpy as np  # noqa: E402

from fiveloop.core.backend import call, client, hlo, lazy  # noqa: E402
from fiveloop.core.backend.client import Aval, Buffer  # noqa: E402
from fiveloop.core.backend.tree import CALL, LEAF, TREE  # noqa: E402


class Box:
    __slots__ = ("_a",)

    def __init__(self, buf: Buffer) -> None:
        self._a = buf


def program(n: int) -> client.Executable:
    b = hlo.Builder()
    spec = [((3,), "f4")] * n
    b.function("main", spec, public=True, body=lambda xs: [hlo.add(b, x, x) for x in xs])
    return client.compile_text(b.text(), [Aval((3,), np.dtype("f4"))] * n)


def main() -> None:
    if call.array_class() is None:
        call.register_array_class(Box, Box)
    box = call.array_class()
    for dtype in ("?", "f4", "f8", "c8", "i8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        x = np.ones((2, 3), dtype)
        buf = client.put(x, Aval(x.shape, x.dtype))
        assert (client.to_numpy(buf) == x).all()

    def miss(*args: Any) -> tuple[Any, call.Fast]:
        leaves, tree = CALL.flatten(args[0])
        tree = TREE.flatten(args[0])[1]
        executable = program(len(leaves))
        outs = executable.execute(leaves)
        return call.wrap_outputs(tree, outs), call.make_fast(executable, len(leaves), tree)

    x = client.put(np.ones(3, np.float32), Aval((3,), np.dtype("f4")))
    executable = program(1)
    executable.memory_analysis(), executable.cost_analysis(), executable.optimized_text()
    boxed = call.wrap_outputs(LEAF, [x])
    fast, by_dict = call.fast_function("f", miss, miss), call.DictCall(miss)
    for _ in range(3):
        assert client.to_numpy(executable.run([x])[0])[0] == 2
        for function in (fast, by_dict):
            tree = function({"x": boxed, "y": [boxed, None]})
            assert client.to_numpy(tree["y"][0]._a)[0] == 2
    assert isinstance(fast(boxed), box)
    assert TREE.flatten(0)[1] == LEAF
    shared = client.from_dlpack(np.ones(3, np.float32), Aval)
    client.to_dlpack(shared), client.dlpack_device(shared)
    shared.delete()
    with contextlib.suppress(RuntimeError):
        client.to_numpy(shared)
        raise AssertionError("a deleted array was read")
    lazy.mlir(), lazy.mlir_dialects()


main()
print("attempts:", attempts, "loaded:", [m for m in sys.modules if m.split(".")[0] == "jax"])
