"""Eager operations: the cases, as functions of a NumPy-like module, and the arrays that both sides get."""

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.core.calls import PROCESSES
from benchmarks.model import Action, Case, Contender, Program, RatioLimit
from benchmarks.sides.base import fresh

HERE = "benchmarks.core"


def operands(
    size: int, on_device: Callable[..., Any], new_ref: Callable[..., Any]
) -> SimpleNamespace:
    """A sorted vector of so many elements, a Ref of it, a matrix, places, a mask, random numbers alone and in rows."""
    rng = np.random.default_rng(0)
    x = np.linspace(0.5, 2.0, size, dtype=np.float32)
    return SimpleNamespace(
        x=on_device(x),
        m=on_device(rng.random((64, 64), dtype=np.float32)),
        at=on_device(np.array([2, 0], np.int32)),
        mask=on_device(x > 1.0),
        drawn=on_device(rng.random(size, dtype=np.float32)),
        rows=on_device(rng.random((32, 1000), dtype=np.float32)),
        ref=new_ref(on_device(x)),
    )


def ten_operations(lib: Any, x: Any) -> Any:
    """What is differentiated: five times a sine and a product."""
    for _ in range(5):
        x = lib.sin(x) * x
    return x.sum()


def traced(lib: Any, x: Any, tools: SimpleNamespace) -> Any:
    """Trace the gradient of a chain of as many operations as `x` has elements; gives `x`."""

    def chain(y: Any) -> Any:
        for _ in range(x.shape[0] // 2):
            y = lib.sin(y) * 1.5
        return y.sum()

    tools.make_jaxpr(tools.grad(fresh(chain)))(x)
    return x


def write(ref: Any, x: Any) -> Any:
    """Write one element of a Ref; gives `x`, which takes no time."""
    ref[2] = 1.5
    return x


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
GREATEST: dict[str, Operation] = {
    "top_k": lambda lib, a, tools: tools.top_k(a.drawn, 10)[0],
    "top_k of rows": lambda lib, a, tools: tools.top_k(a.rows, 10)[0],
}
INDEXED: dict[str, Operation] = {
    "x[2]": lambda lib, a, tools: a.x[2],
    "x[1:3]": lambda lib, a, tools: a.x[1:3],
    "x[at]": lambda lib, a, tools: a.x[a.at],
}
UPDATED: dict[str, Operation] = {
    ".at[].set": lambda lib, a, tools: a.x.at[2].set(1.5),
    "Ref read": lambda lib, a, tools: a.ref[2],
    "Ref write": lambda lib, a, tools: write(a.ref, a.x),
}
TRACED: dict[str, Operation] = {
    "trace of a gradient": lambda lib, a, tools: traced(lib, a.x, tools)
}
HANDED_ON = ("m @ m",)
"""What XLA runs in a thread of its own, in the same time for both: the time is that of the calling thread."""

STAGED = BINARY | OTHERS | SEARCHES | GREATEST | INDEXED
OPERATIONS = STAGED | TRANSFORMS | ON_THE_HOST | UPDATED | TRACED


def action(
    name: str, size: int, lib: Any, tools: SimpleNamespace, on_device: Callable[..., Any]
) -> Action:
    """One operation of a NumPy-like module; `tools` has what lies elsewhere in each library."""
    run, given = OPERATIONS[name], operands(size, on_device, tools.new_ref)
    times = 1 if name in TRACED else 20 if name in TRANSFORMS else 100
    clock = time.thread_time if name in HANDED_ON else time.process_time
    return Action(lambda: {"y": run(lib, given, tools)}, times, clock=clock)


def program(name: str, size: int, lib: Any, tools: SimpleNamespace) -> Program:
    """One operation as a program of its own."""
    given = vars(operands(size, np.asarray, np.asarray))
    return Program(lambda a: {"y": OPERATIONS[name](lib, SimpleNamespace(**a), tools)}, (given,))


def case(name: str, at_most: float, row: str, sizes: tuple[int, ...] = (10,)) -> Case:
    """One operation, and the ratio to jax that it may have."""
    options: Mapping[str, Any] = {"name": name}
    return Case(
        f"eager/{name}",
        sizes,
        Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_eager:build", options),
        (Contender("jax", "jax", f"{HERE}.jax_eager:build", options),),
        limits=tuple(RatioLimit("run", "jax", at_most, row, size) for size in sizes),
        seconds=2.0,
        processes=PROCESSES,
    )


def staging_case(name: str, size: int = 10) -> Case:
    """One operation, traced, lowered and compiled as a function not seen before."""
    options: Mapping[str, Any] = {"name": name}
    return Case(
        f"staging/{name}",
        (size,),
        Contender("fiveloop", "fiveloop", f"{HERE}.fiveloop_eager:build_program", options),
        (Contender("jax", "jax", f"{HERE}.jax_eager:build_program", options),),
        limits=(RatioLimit("staging", "jax", 1.0, "trace, lower and compile"),),
        seconds=0.5,
        compiles=True,
    )


INDEX = "eager index; `.at[].set`; Ref read and write"
COMPOSITE = "eager binary op; unary; matrix product; a composite (mean, var, norm)"
DERIVED = "eager `grad` of ten ops; eager `vmap`"
CASES = (
    *(case(name, 0.8, COMPOSITE) for name in BINARY),
    *(case(name, 1.0, COMPOSITE) for name in OTHERS),
    *(case(name, 0.3, DERIVED) for name in TRANSFORMS),
    case("np.asarray", 2.5, "`np.asarray(x)`"),
    case("searchsorted", 1.0, "`searchsorted`", (20_000,)),
    case("top_k", 1.1, "`top_k`", (160, 5_000)),
    case("top_k of rows", 1.1, "`top_k`"),
    *(case(name, 0.3, INDEX) for name in INDEXED),
    *(case(name, 0.1, INDEX) for name in UPDATED),
    *(case(name, 0.4, "trace of the gradient of a chain", (2_000,)) for name in TRACED),
    *(staging_case(name, 20_000 if name in SEARCHES else 160) for name in STAGED),
)
