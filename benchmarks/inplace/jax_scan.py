"""The loops that have a natural spelling with `jax.lax.scan`: no array is carried."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.inplace.inputs import DECAY, DOWN, RIGHT
from benchmarks.inplace.transforms import Data


def recurrence(step: Any, x: Any, xs: Any) -> Any:
    """Scan a step that carries the last value, and put zero in front."""
    first = jnp.zeros_like(x[:1])

    def body(last: Any, inputs: Any) -> tuple[Any, Any]:
        value = step(last, inputs)
        return value, value

    return jnp.concatenate([first, jax.lax.scan(body, first[0], xs)[1]])


def prefix(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i]."""
    return recurrence(lambda y, xi: DECAY * y + xi, x, x[1:])


def two_refs(x: Any, data: Data) -> Any:
    """y[i] = a y[i-1] + x[i] x[i-1]."""
    return recurrence(lambda y, pair: DECAY * y + pair[0] * pair[1], x, (x[1:], x[:-1]))


def rows(x: Any, data: Data) -> Any:
    """y[i, :] = tanh(a y[i-1, :] + x[i, :])."""
    return recurrence(lambda y, xi: jnp.tanh(DECAY * y + xi), x, x[1:])


def nested(x: Any, data: Data) -> Any:
    """By rows: a row passes itself down once it has passed itself along to the right."""

    def along(row: Any) -> Any:
        def body(t: Any, cell: Any) -> tuple[Any, Any]:
            t = cell + RIGHT * t
            return t, t

        return jnp.concatenate([row[:1], jax.lax.scan(body, row[0], row[1:])[1]])

    def down(above: Any, row: Any) -> tuple[Any, Any]:
        # The last cell of a row passes nothing down.
        row = along(row + DOWN * above)
        return row.at[-1].set(0.0), row

    first = along(x[0])
    last, done = jax.lax.scan(down, first.at[-1].set(0.0), x[1:-1])
    return jnp.concatenate([first[None], done, (x[-1] + DOWN * last)[None]])


LOOPS = {"prefix": prefix, "two_refs": two_refs, "nested": nested, "rows": rows}
