"""Calls of Python where transforms, loops, branches and rules are nested: which calls are made, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import (
    ShapeDtype,
    custom_vjp,
    grad,
    jacrev,
    jit,
    jvp,
    linearize,
    stop_gradient,
    vjp,
    vmap,
)
from fiveloop.loops import cond, fori_loop, scan, switch, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import callback, debug_callback
from fiveloop.testing.core.misuse import raised

FLOAT = ShapeDtype((), "float32")
XS = np.array([1, -2, 3], np.float32)

seen: list[Any] = []


def note(name: str, *xs: Any) -> None:
    """Note what a call is given."""
    seen.append((name, *[np.asarray(x).tolist() for x in xs]))


def tell(name: str, *xs: Any, **options: Any) -> None:
    """A call that notes."""
    debug_callback(note, name, *xs, **options)


def twice(step: Callable[[Any], Any], x: Any) -> Any:
    """Two steps of a scan."""
    return scan(lambda c, _: (step(c), None), x, None, length=2)[0]


def up(x: Any) -> Any:
    """One more, told."""
    tell("up", x)
    return x + 1


def chosen(x: Any) -> Any:
    """A loop in a branch."""
    return cond(x > 0, partial(twice, up), lambda x: x, x)


CHOSEN = [("up", 1), ("up", 3), ("up", 2), ("up", 4)]


def wave(x: Any) -> Any:
    """A sine, told."""
    tell("wave", x)
    return fnp.sin(x)


def kept(x: Any) -> Any:
    """A checkpoint of a loop."""
    return checkpoint(partial(twice, wave))(x)


KEPT = [("wave", 0), ("wave", 0), ("wave", 0), ("wave", 0)]


@custom_vjp
def square(x: Any) -> Any:
    """A square with a rule that tells."""
    tell("plain", x)
    return x * x


def _forward(x: Any) -> Any:
    tell("forward", x)
    return x * x, x


def _backward(x: Any, ct: Any) -> Any:
    tell("backward", x, ct)
    return (2 * x * ct,)


square.defvjp(_forward, _backward)
RULES = [("forward", 2), ("forward", 4), ("backward", 4, 1), ("backward", 2, 8)]


def asked(x: Any) -> Any:
    """A product with what Python gives."""

    def double(y: Any) -> Any:
        note("asked", y)
        return 2 * y

    return x * callback(double, FLOAT, stop_gradient(x))


def rises(x: Any) -> Any:
    """A `while` that tells in its condition and in its body."""

    def holds(c: Any) -> Any:
        tell("?", c)
        return c < 3

    def step(c: Any) -> Any:
        tell("!", c)
        return c + 1

    return while_loop(holds, step, x)


RISES = [("?", 1), ("!", 1), ("?", 2), ("!", 2), ("?", 3)]


def ordered(x: Any) -> Any:
    """Calls that do not need each other, before a loop and in it."""
    for k in range(3):
        tell(f"{k}", x * k if k % 2 else x, ordered=True)

    def step(i: Any, c: Any) -> Any:
        tell("first", i, ordered=True)
        tell("second", c, ordered=True)
        return c + 1

    return fori_loop(0, 2, step, x)


ORDERED = [("0", 1), ("1", 1), ("2", 1)]
ORDERED += [("first", 0), ("second", 1), ("first", 1), ("second", 2)]


@partial(jit, static_argnums=1)
def static(x: Any, name: str) -> Any:
    """A program for each name."""
    tell(name, x)
    return x


def stacked(x: Any) -> Any:
    """A call for all lanes, in a loop."""

    def step(c: Any) -> Any:
        tell("all", c, vmap="stacked")
        return c + 1

    return twice(step, x)


ZEROS = np.zeros(2, np.float32)
CASES: dict[str, tuple[Callable[[], object], list[Any]]] = {
    "a loop in a branch": (lambda: jit(vmap(chosen))(XS), CHOSEN),
    "its gradients": (lambda: jit(vmap(grad(chosen)))(XS), CHOSEN),
    "the gradient of lanes": (lambda: jit(grad(lambda x: vmap(chosen)(x).sum()))(XS), CHOSEN),
    "a checkpoint of a loop": (lambda: jit(grad(lambda x: vmap(kept)(x).sum()))(ZEROS), KEPT),
    "lanes of its gradient": (lambda: vmap(grad(kept))(ZEROS), KEPT),
    "its Jacobian": (lambda: jit(jacrev(vmap(kept)))(ZEROS), KEPT),
    "checkpoints in each other": (
        lambda: jit(grad(checkpoint(lambda x: fnp.sin(kept(x)))))(0.0),
        KEPT[:2],
    ),
    "a custom rule": (lambda: jit(grad(partial(twice, square)))(2.0), RULES),
    "a checkpointed custom rule": (
        lambda: jit(grad(partial(twice, checkpoint(square))))(2.0),
        RULES,
    ),
    "a checkpoint of custom rules": (
        lambda: jit(grad(checkpoint(partial(twice, square))))(2.0),
        RULES,
    ),
    "a custom rule that is not differentiated": (
        lambda: jit(partial(twice, square))(2.0),
        [("plain", 2), ("plain", 4)],
    ),
    "a result that a replay needs": (
        lambda: jit(grad(partial(twice, checkpoint(asked))))(1.0),
        [("asked", 1), ("asked", 2)],
    ),
    "a result that nobody needs": (
        lambda: jit(grad(checkpoint(partial(twice, lambda c: (asked(c), c + 1)[1]))))(1.0),
        [("asked", 1), ("asked", 2)],
    ),
    "a linear function called twice": (
        lambda: [f(1.0) for f in 2 * [linearize(asked, 3.0)[1]]],
        [("asked", 3)],
    ),
    "a pullback called twice": (
        lambda: [f(np.float32(1)) for f in 2 * [vjp(jit(asked), 3.0)[1]]],
        [("asked", 3)],
    ),
    "a while": (lambda: jit(rises)(1.0), RISES),
    "the derivative of a while": (lambda: jit(lambda x: jvp(rises, (x,), (x,)))(1.0), RISES),
    "static arguments": (
        lambda: [static(1.0, name) for name in "aba"],
        [("a", 1), ("b", 1), ("a", 1)],
    ),
    "in order": (lambda: jit(ordered)(1.0), ORDERED),
    "in order in a gradient": (lambda: jit(grad(checkpoint(ordered)))(1.0), ORDERED),
    "in order in a branch": (
        lambda: [jit(lambda k: switch(k, [lambda: 0.0, lambda: ordered(1.0)]))(k) for k in (0, 1)],
        ORDERED,
    ),
    "stacked in a loop": (
        lambda: jit(vmap(stacked))(XS),
        [("all", [1, -2, 3]), ("all", [2, -1, 4])],
    ),
    "stacked in two batches": (
        lambda: vmap(vmap(lambda x: tell("all", x, vmap="stacked")))(XS.reshape(3, 1)),
        [("all", [[1], [-2], [3]])],
    ),
    "lanes in series": (
        lambda: jit(vmap(lambda x: cond(x > 0, up, lambda x: x, x, vmap="serial")))(XS),
        [("up", 1), ("up", 3)],
    ),
    "a program within a call": (
        lambda: jit(lambda x: callback(lambda y: np.asarray(jit(up)(y)), FLOAT, x))(1.0),
        [("up", 1)],
    ),
    "no steps": (lambda: jit(lambda: fori_loop(0, 0, lambda i, c: up(c), 0))(), []),
}


@pytest.mark.parametrize("name", CASES)
def test_the_calls(name: str) -> None:
    run, want = CASES[name]
    seen.clear()
    run()
    assert seen == want


ERRORS = [LookupError("four"), KeyboardInterrupt("four"), SystemExit(4), StopIteration(4)]


def refuses(error: BaseException, x: Any) -> None:
    """Raise an error for three."""
    note("tried", x)
    if x >= 3:
        raise error


def attempts(error: BaseException) -> dict[str, Callable[[], object]]:
    """Programs of which a call raises: the second or the third."""

    def step(c: Any, **options: Any) -> Any:
        debug_callback(partial(refuses, error), c, **options)
        return c + 1

    def branch(x: Any) -> Any:
        return cond(x > 0, step, lambda x: x, x)

    return {
        "a loop": lambda: jit(lambda x: fori_loop(0, 9, lambda i, c: step(c), x))(1.0),
        "in order": lambda: jit(lambda x: fori_loop(0, 9, lambda i, c: step(c, ordered=True), x))(
            1.0
        ),
        "a while": lambda: jit(lambda x: while_loop(lambda c: c < 9, step, x))(1.0),
        "a gradient": lambda: jit(
            grad(lambda x: scan(lambda c, _: (checkpoint(step)(c), None), x, None, length=9)[0])
        )(1.0),
        "lanes": lambda: jit(vmap(branch))(XS),
    }


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_a_call_raises_ends_the_program(error: BaseException) -> None:
    for name, run in attempts(error).items():
        seen.clear()
        with pytest.raises(type(error)) as found:
            run()
        assert found.value is error, name
        assert seen == [("tried", k) for k in ((1, 3) if name == "lanes" else (1, 2, 3))], name
    seen.clear()
    jit(up)(1.0)
    assert seen == [("up", 1)]


def test_results_are_checked_in_loops() -> None:
    def run(out: Any) -> object:
        return jit(lambda x: twice(lambda c: c + callback(lambda: out, FLOAT), x))(1.0)

    for out, message in (
        (np.zeros(2, np.float32), "callback: expected f32[] as result, got f32[2]; convert it"),
        (np.float64(1), "callback: expected f32[] as result, got f64[]; convert it"),
        ("one", "callback: expected f32[] as result, got 'one' of type str; convert it"),
        (None, "callback: expected a result of the structure PyTreeDef(*), got PyTreeDef(None);"),
    ):
        error = raised(partial(run, out))
        assert type(error) is TypeError and str(error).startswith(message)
    assert float(run(np.float32(1))) == 3.0  # type: ignore[arg-type]  # it is an array
