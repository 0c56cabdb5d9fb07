"""What users of the peer's loops and branches ask for and do not have, by the number of the issue or of the fact.

Above each test stands what the peer (version 0.12, on a CPU) does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import ShapeDtype, forget_traces, grad, jit, jvp, vmap
from fiveloop.core.backend import client
from fiveloop.loops import cond, fori_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import debug_callback, new_ref, pure_callback

LANES = np.array([3.0, -1.0, 2.0, -7.0], np.float32)


def assert_same(got: Any, want: Any) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


# vmap of a cond one of whose branches loops until something happens that never does for lanes that did not choose it
# (#2947, open): both branches run for all lanes, so that the program does not end.
@pytest.mark.parametrize("mode", ["select", "serial", "group"])
def test_2947_a_loop_in_a_branch_that_is_not_taken_ends(mode: Any) -> None:
    def halve(x: Any) -> Any:
        return while_loop(lambda y: y != 1.0, lambda y: fnp.floor(y / 2), x)

    def fun(x: Any) -> Any:
        return cond(x > 0, halve, lambda x: 10 * x, x, vmap=mode)

    # Of a negative number the floor of its half never becomes 1.
    assert_same(jit(vmap(fun))(LANES), [1.0, -10.0, 1.0, -70.0])
    dots = vmap(lambda x: jvp(fun, (x,), (fnp.ones(()),))[1])(LANES)
    assert_same(dots, [0.0, 10.0, 0.0, 10.0])


# Carries of Python numbers take the type that the body gives them only if that is found in one pass (PR 9046, open):
# where three hand it on to each other it is an error about their types.
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_9046_weak_carries_find_their_types(wrap: Callable[..., Any]) -> None:
    @wrap
    def run(x: Any) -> Any:
        step = lambda c, _: ((c[1], c[2], c[3], x), None)
        return scan(step, (0, 0, 0, 0), length=2)[0]

    got = run(np.float32(1.5))
    assert [v.dtype for v in got] == [np.float32] * 4
    assert_same([float(v) for v in got], [0, 0, 1.5, 1.5])


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the programs that are compiled during a test; what was traced before is forgotten."""
    forget_traces()
    texts: list[str] = []
    original = client.compile_text

    def counting(text: str, *args: Any, **kwargs: Any) -> Any:
        texts.append(text)
        return original(text, *args, **kwargs)

    monkeypatch.setattr(client, "compile_text", counting)
    return texts


# A scan outside of jit is compiled again at each call if its body is a function made anew, which every lambda is
# (#14743, open): functions are told apart by identity.
@pytest.mark.parametrize("loop", ["scan", "fori_loop", "while_loop", "gradient"])
def test_14743_functions_made_anew_are_not_compiled_again(loop: str, programs: list[str]) -> None:
    def run(a: float) -> Any:
        calls: dict[str, Callable[[], Any]] = {
            "scan": lambda: scan(lambda c, x: (c * x, c), fnp.ones(()), LANES)[0] * a,
            "fori_loop": lambda: fori_loop(0, 3, lambda i, c: c * 2.0, a),
            "while_loop": lambda: while_loop(lambda c: c < 9.0, lambda c: c * 2.0, a),
            "gradient": lambda: grad(lambda x: scan(lambda c, y: (c * y, c), x, LANES)[0])(a),
        }
        return calls[loop]()

    run(1.0)
    count = len(programs)
    assert count > 0
    run(1.5)
    run(2.5)
    assert len(programs) == count


# A debug.callback in the body of a scan is called once, instead of in each of the 5 steps, when the scan is
# differentiated (#16637, open; F10): it is moved out of the loop with what does not change.
@pytest.mark.parametrize(
    "way", ["grad", "jit of grad", "checkpointed steps", "checkpointed", "jvp"]
)
def test_16637_f10_callbacks_are_called_in_each_step(way: str) -> None:
    seen: list[float] = []

    def step(c: Any, x: Any) -> Any:
        debug_callback(lambda: seen.append(0.0))
        debug_callback(lambda x: seen.append(float(x)), x)
        return fnp.sin(c) * x, None

    def loss(c: Any, step: Any = step) -> Any:
        return scan(step, c, fnp.arange(1.0, 6.0))[0]

    ways: dict[str, Callable[[Any], Any]] = {
        "grad": grad(loss),
        "jit of grad": jit(grad(loss)),
        "checkpointed steps": jit(grad(lambda c: loss(c, checkpoint(step)))),
        "checkpointed": jit(grad(checkpoint(loss))),
        "jvp": lambda c: jvp(loss, (c,), (c,))[1],
    }
    ways[way](0.5)
    assert sorted(seen) == [0.0] * 5 + [1.0, 2.0, 3.0, 4.0, 5.0]


# vmap of cond becomes a select: every lane pays for both branches (#8409, open), however few take the dear one,
# and there is no other choice.
@pytest.mark.parametrize(("mode", "lanes"), [("select", 64), ("group", 6), ("serial", 6)])
def test_8409_a_dear_branch_may_run_on_its_own_lanes_only(mode: Any, lanes: int) -> None:
    asked: list[int] = []

    def dear(x: Any) -> Any:
        asked.append(int(np.prod(x.shape)))
        return np.sin(x)

    def fun(x: Any) -> Any:
        run = lambda x: pure_callback(dear, ShapeDtype((), "float32"), x, vmap="stacked")
        return cond(x > 0, run, lambda x: 0 * x, x, vmap=mode)

    xs = np.linspace(-31, 3, 64, dtype=np.float32)
    assert_same(jit(vmap(fun))(xs), np.where(xs > 0, np.sin(xs), 0))
    assert sum(asked) == lanes


# The derivative that comes with the select is nan if the branch that is not taken has an infinite one, and users are
# told to write each function twice (#8409 and its kin).
@pytest.mark.parametrize("mode", ["select", "serial", "group"])
def test_8409_what_is_not_taken_has_no_derivative(mode: Any) -> None:
    def root(x: Any) -> Any:
        return cond(x > 0, fnp.sqrt, lambda x: 0 * x, x, vmap=mode)

    xs = np.array([4.0, 0.0, -1.0], np.float32)
    assert_same(jit(grad(lambda x: vmap(root)(x).sum()))(xs), [0.25, 0.0, 0.0])
    assert_same(jit(vmap(grad(root)))(xs), [0.25, 0.0, 0.0])


# The gradient of a scan whose carry has many small leaves is slow on a CPU: 28 ms with 60 of them, and 5.8 ms with the
# same numbers in one array (#40150, open).
def test_40150_many_small_leaves_keep_what_one_array_does() -> None:
    xs = np.linspace(0.1, 0.9, 500, dtype=np.float32)
    count = 20

    def leaves(c: Any) -> Any:
        step = lambda c, x: (
            [fnp.sin(a) * x + b for a, b in zip(c, c[1:] + c[:1], strict=True)],
            None,
        )
        return sum(scan(step, [c[k] for k in range(count)], xs)[0])

    def packed(c: Any) -> Any:
        return scan(lambda c, x: (fnp.sin(c) * x + fnp.roll(c, -1), None), c, xs)[0].sum()

    given = np.linspace(-1, 1, count, dtype=np.float32)
    gradients = [jit(grad(f)) for f in (leaves, packed)]
    assert_same(*[g(given) for g in gradients])
    found = [g.lower(given).compile() for g in gradients]
    assert [c.copies for c in found] == [0, 0]
    apart, together = [c.memory_analysis().temp for c in found]
    assert apart <= 1.2 * together


# vmap of a cond that touches a Ref is not implemented: "State effect not supported in vmap-of-cond" (F8), whether the
# Ref is each lane's own or one that lanes share.
@pytest.mark.parametrize("mode", ["select", "serial", "group"])
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f8_branches_that_touch_refs(wrap: Callable[..., Any], mode: Any) -> None:
    def each(x: Any) -> Any:
        ref = new_ref(fnp.zeros(3))

        def up() -> None:
            ref[1] = x * x
            ref[2] += ref[1] * x

        def down() -> None:
            ref[0] -= x

        cond(x > 0, up, down, vmap=mode)
        return ref[...]

    want = [[0, x * x, x**3] if x > 0 else [-x, 0, 0] for x in LANES]
    assert_same(wrap(vmap(each))(LANES), want)
    slopes = [2 * x + 3 * x * x if x > 0 else -1.0 for x in LANES]
    assert_same(wrap(grad(lambda xs: vmap(each)(xs).sum()))(LANES), slopes)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_f8_branches_that_add_to_a_ref_that_lanes_share(wrap: Callable[..., Any]) -> None:
    @wrap
    def total(xs: Any) -> Any:
        ref = new_ref(fnp.zeros(2))

        def add(k: int, x: Any) -> None:
            ref[k] += x

        vmap(lambda x: cond(x > 0, lambda: add(0, x), lambda: add(1, x * x)))(xs)
        return ref[...]

    assert_same(total(LANES), [5.0, 50.0])


# Three facts in one program (F10): callbacks that are lost under grad, branches whose loops do not end under vmap, and
# functions that are compiled again. The same program here:
def test_f10_a_batch_of_losses_with_a_loop_in_a_branch() -> None:
    seen: list[float] = []

    def loss(x: Any) -> Any:
        def step(c: Any, _: None) -> Any:
            debug_callback(lambda c: seen.append(round(float(c), 2)), c)
            return c * x, None

        def powers() -> Any:
            return scan(step, x, length=3)[0]

        return cond(x > 0, powers, lambda: -x)

    assert_same(jit(vmap(grad(loss)))(LANES), [4 * 27.0, -1.0, 4 * 8.0, -1.0])
    assert sorted(seen) == [2.0, 3.0, 4.0, 8.0, 9.0, 27.0]
