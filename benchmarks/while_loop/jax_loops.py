"""The loops as jax writes them: `while_loop` forward; with a gradient by Equinox, by hand, or as a counted loop."""

from functools import partial
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.lax import fori_loop, scan, while_loop

from benchmarks.model import Program
from benchmarks.while_loop import steps as bodies
from benchmarks.while_loop.inputs import PERIOD
from benchmarks.while_loop.programs import Data, Library, program

LIBRARY = Library(jax.value_and_grad, jax.vmap, jnp.sum)


def open_ended(loop: str, data: Data, run: Any = while_loop) -> Any:
    """As many steps as the state asks for."""

    def body(val: Any) -> Any:
        i, x = val
        return i + 1, bodies.STEPS[loop](jnp, data["p"], x)

    start = (jnp.zeros((), data["limit"].dtype), data["x"])
    return run(lambda val: val[0] < data["limit"], body, start)[1]


def equinox(loop: str, data: Data, **options: Any) -> Any:
    """The same through Equinox, which differentiates it in reverse."""
    return open_ended(loop, data, partial(eqxi.while_loop, **options))


def by_hand(loop: str, data: Data, count: int) -> Any:
    """Two loops of which the outer saves its states and the inner runs again."""

    def step(x: Any, _: None) -> tuple[Any, None]:
        return bodies.STEPS[loop](jnp, data["p"], x), None

    @jax.checkpoint
    def period(x: Any, _: None) -> tuple[Any, None]:
        return scan(step, x, None, length=PERIOD)[0], None

    return scan(period, data["x"], None, length=count // PERIOD)[0]


def chase(data: Data) -> Any:
    """Follow links through an array that is carried, for as many steps as it has places."""
    x, links = data["x"], data["links"]

    def body(_: Any, val: Any) -> Any:
        at, y = val
        to = links[at]
        return to, y.at[to].set(jnp.tanh(data["p"] * y[at] + x[to]))

    first = jnp.zeros_like(x).at[0].set(jnp.tanh(x[0]))
    return fori_loop(0, x.shape[0] - 1, body, (0, first))[1]


def build(
    spelling: str,
    loop: str,
    transform: str,
    size: int,
    steps: int | None = None,
    saved: int | None = None,
) -> Program:
    """One transform of one loop; the size is the number of steps, or of saved states where that is given."""
    count = steps or size
    kinds: dict[str, Any] = {
        "": partial(open_ended, loop),
        "by hand": partial(by_hand, loop, count=count),
        "at_set": chase,
        "equinox": partial(equinox, loop, kind="checkpointed", checkpoints=saved or size),
        "equinox bounded": partial(equinox, loop, kind="bounded", max_steps=count),
    }
    return program(LIBRARY, kinds[spelling], loop, transform, count)
