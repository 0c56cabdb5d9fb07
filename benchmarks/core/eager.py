"""Eager operations: the cases, as functions of a NumPy-like module, and the arrays that both sides get."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.core.calls import PROCESSES
from benchmarks.model import Action, Case, Contender, RatioLimit

HERE = "benchmarks.core"


def operands(size: int, on_device: Callable[..., Any]) -> SimpleNamespace:
    """A vector of so many elements, a matrix, places in the vector, a mask, and a sorted vector."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.5, 2.0, size, dtype=np.float32)
    return SimpleNamespace(
        x=on_device(x),
        m=on_device(rng.random((64, 64), dtype=np.float32)),
        at=on_device(np.array([2, 0], np.int32)),
        mask=on_device(x > 1.0),
        drawn=on_device(rng.random(size, dtype=np.float32)),
    )


def ten_operations(lib: Any, x: Any) -> Any:
    """What is differentiated: five times a sine and a product."""
    for _ in range(5):
        x = lib.sin(x) * x
    return x.sum()


Operation = Callable[[Any, SimpleNamespace, SimpleNamespace], Any]

BINARY: dict[str, Operation] = {
    "x + x": lambda lib, a, tools: a.x + a.x,
    "x + 1.0": lambda lib, a, tools: a.x + 1.0,
    "2 * x": lambda lib, a, tools: 2 * a.x,
}
OTHERS: dict[str, Operation] = {
    "-x": lambda lib, a, tools: -a.x,
    "x < x": lambda lib, a, tools: a.x < a.x,
    "x % x": lambda lib, a, tools: a.x % a.x,
    "x // x": lambda lib, a, tools: a.x // a.x,
    "x / x": lambda lib, a, tools: a.x / a.x,
    "m @ m": lambda lib, a, tools: a.m @ a.m,
    "sin": lambda lib, a, tools: lib.sin(a.x),
    "sum": lambda lib, a, tools: lib.sum(a.x),
    "sum method": lambda lib, a, tools: a.x.sum(),
    "max": lambda lib, a, tools: lib.max(a.x),
    "mean": lambda lib, a, tools: lib.mean(a.x),
    "norm": lambda lib, a, tools: lib.linalg.norm(a.x),
    "var": lambda lib, a, tools: lib.var(a.x),
    "std": lambda lib, a, tools: lib.std(a.x),
    "take": lambda lib, a, tools: lib.take(a.x, a.at),
    "diff": lambda lib, a, tools: lib.diff(a.x),
    "linspace": lambda lib, a, tools: lib.linspace(0.0, 1.0, 50),
    "allclose": lambda lib, a, tools: lib.allclose(a.x, a.x),
    "where": lambda lib, a, tools: lib.where(a.mask, a.x, 0.0),
    "clip": lambda lib, a, tools: lib.clip(a.x, 0.6, 1.0),
    "sort": lambda lib, a, tools: lib.sort(a.x),
    "stack": lambda lib, a, tools: lib.stack([a.x, a.x]),
    "concatenate": lambda lib, a, tools: lib.concatenate([a.x, a.x]),
}
TRANSFORMS: dict[str, Operation] = {
    "grad of ten operations": lambda lib, a, tools: tools.grad(lambda x: ten_operations(lib, x))(
        a.x
    ),
    "vmap": lambda lib, a, tools: tools.vmap(lambda x: lib.sin(x) * x + x)(a.m),
}
ON_THE_HOST: dict[str, Operation] = {"np.asarray": lambda lib, a, tools: np.asarray(a.x)}
SEARCHES: dict[str, Operation] = {
    "searchsorted": lambda lib, a, tools: lib.searchsorted(a.x, a.drawn)
}
GREATEST: dict[str, Operation] = {"top_k": lambda lib, a, tools: tools.top_k(a.drawn, 10)[0]}
OPERATIONS = BINARY | OTHERS | TRANSFORMS | ON_THE_HOST | SEARCHES | GREATEST


def action(
    name: str, size: int, lib: Any, tools: SimpleNamespace, on_device: Callable[..., Any]
) -> Action:
    """One operation of a NumPy-like module; `tools` has what lies elsewhere in each library."""
    run, given = OPERATIONS[name], operands(size, on_device)
    return Action(lambda: {"y": run(lib, given, tools)}, times=20 if name in TRANSFORMS else 100)


def case(name: str, at_most: float, row: str, sizes: tuple[int, ...] = (10,)) -> Case:
    """One operation, and the ratio to jax that it may have."""
    options: Mapping[str, Any] = {"name": name}
    return Case(
        f"eager/{name}",
        sizes,
        Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_eager:build", options),
        (Contender("jax", "jax", f"{HERE}.jax_eager:build", options),),
        limits=tuple(RatioLimit("run", "jax", at_most, row, size) for size in sizes),
        seconds=4.0,
        processes=PROCESSES,
    )


COMPOSITE = "eager binary op; unary; matrix product; a composite (mean, var, norm)"
DERIVED = "eager `grad` of ten ops; eager `vmap`"
CASES = (
    *(case(name, 0.8, COMPOSITE) for name in BINARY),
    *(case(name, 1.0, COMPOSITE) for name in OTHERS),
    *(case(name, 0.3, DERIVED) for name in TRANSFORMS),
    case("np.asarray", 2.5, "`np.asarray(x)`"),
    case("searchsorted", 1.0, "`searchsorted`", (20_000,)),
    case("top_k", 1.1, "`top_k`", (160, 5_000)),
)
