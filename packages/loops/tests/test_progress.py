"""Bars of loops: which there are, how far they come, and that they change nothing."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fiveloop.core import disable_jit, grad, jacrev, jit, jvp, make_jaxpr, vmap
from fiveloop.loops import (
    Progress,
    accumulate_grads,
    cond,
    for_loop,
    fori_loop,
    map,
    scan,
    while_loop,
)
from fiveloop.loops.progress import bars
from fiveloop.state import callback, debug_callback
from fiveloop.testing.core.misuse import assert_misuse
from fiveloop.testing.loops.laws import check_function

X = np.arange(1, 8, dtype=np.float32)
STEPS = len(X) - 1


class Drawn:
    """A bar that only keeps what it is told."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self.desc, self.total = progress.desc, total
        self.counts: list[int] = []
        self.is_open = True

    def show(self, count: int) -> None:
        assert self.is_open
        self.counts.append(count)

    def close(self, count: int) -> None:
        self.show(count)
        self.is_open = False


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Drawn]]:
    """The bars of a test, which are all closed at its end."""
    found: list[Drawn] = []

    def new_bar(progress: Progress, total: int | None) -> Drawn:
        found.append(Drawn(progress, total))
        return found[-1]

    monkeypatch.setattr(bars, "new_bar", new_bar)
    yield found
    assert not any(bar.is_open for bar in found)


def ends(drawn: list[Drawn]) -> list[tuple[str | None, int | None, int]]:
    """The text, the number of steps and the end of each bar."""
    return [(bar.desc, bar.total, bar.counts[-1]) for bar in drawn]


def grow(i: Any, r: Any) -> None:
    r[i + 1] = r[i] * r[i + 1]


def loop(x: Any, progress: Any = "loop", **options: Any) -> Any:
    return for_loop(STEPS, grow, x, progress=progress, **options)


def walk(x: Any, progress: Any = "walk") -> Any:
    return while_loop(
        lambda c: c[0] < STEPS, lambda c: (c[0] + 1, c[1] * 1.5), (0, x), progress=progress
    )[1]


def loss(w: Any, x: Any) -> Any:
    return (w * x).sum()


LOOPS: dict[str, tuple[Callable[[Any, Any], Any], int | None, int]] = {
    "for_loop": (loop, STEPS, STEPS),
    "for_loop, computed": (lambda x, p: for_loop(x.astype("int32")[5], grow, x, progress=p), 6, 6),
    "reverse": (lambda x, p: loop(x, p, reverse=True), STEPS, STEPS),
    "unroll": (lambda x, p: loop(x, p, unroll=4), STEPS, STEPS),
    "scan": (lambda x, p: scan(lambda c, y: (c * y, c), 1.0, x, progress=p), 7, 7),
    "scan, until": (
        lambda x, p: scan(lambda c, y: (c * y, c), 1.0, x, until=lambda c: c > 5, progress=p),
        7,
        3,
    ),
    "fori_loop": (lambda x, p: fori_loop(2, 6, lambda i, c: c + i, x, progress=p), 4, 4),
    "fori_loop, computed": (
        lambda x, p: fori_loop(2, x.astype("int32")[5], lambda i, c: c + i, x, progress=p),
        4,
        4,
    ),
    "map": (lambda x, p: map(lambda y: y * y, x, progress=p), 7, 7),
    "map, in batches": (lambda x, p: map(lambda y: y * y, x, batch_size=2, progress=p), 3, 3),
    "while_loop": (walk, None, STEPS),
    "accumulate_grads": (
        lambda x, p: accumulate_grads(loss, 3, progress=p)(2.0, x[1:]),
        3,
        3,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_every_loop_shows_its_progress(name: str, drawn: list[Drawn]) -> None:
    run, total, end = LOOPS[name]
    jit(lambda x: run(x, "label"))(X)
    assert ends(drawn) == [("label", total, end)]
    assert drawn[0].counts == sorted(drawn[0].counts)


def of_first(result: Any) -> Any:
    return np.asarray(result[0] if isinstance(result, tuple) else result)


@pytest.mark.parametrize("name", ["for_loop", "scan, until", "while_loop", "map"])
def test_bodies_that_run_as_python_show_it_too(name: str, drawn: list[Drawn]) -> None:
    run, total, end = LOOPS[name]
    with disable_jit():
        want = run(X, True)
    got = run(X, True)
    assert ends(drawn) == [(None, total, end)] * 2
    np.testing.assert_allclose(of_first(got), of_first(want))


def test_there_is_no_bar_unless_one_is_asked_for(drawn: list[Drawn]) -> None:
    for run, _, _ in LOOPS.values():
        jit(lambda x, run=run: run(x, False))(X)
    assert drawn == []


def test_a_bar_is_brought_up_to_date_after_so_many_steps(drawn: list[Drawn]) -> None:
    jit(lambda x: fori_loop(0, 10, lambda i, c: c + i, x, progress=Progress("ten", every=4)))(0)
    assert drawn[0].counts == [4, 8, 10, 10]


def test_a_slow_loop_is_looked_at_in_every_step(
    drawn: list[Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that says that every look at it comes a second after the last.
    clock = itertools.count().__next__
    monkeypatch.setattr(bars, "time", SimpleNamespace(perf_counter=clock))
    fori_loop(0, 5, lambda i, c: c + i, 0, progress=True)
    assert drawn[0].counts == [1, 2, 3, 4, 5, 5]


def test_a_fast_loop_is_looked_at_seldom(drawn: list[Drawn]) -> None:
    fori_loop(0, 10**6, lambda i, c: c + i, 0, progress=True)
    assert len(drawn[0].counts) < 100


CALLS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda f: jit(grad(lambda x: f(x).sum()))(X),
    "eager grad": lambda f: grad(lambda x: f(x).sum())(X),
    "jacrev": lambda f: jit(jacrev(f))(X),
    "jvp": lambda f: jit(lambda x: jvp(f, (x,), (x,))[1])(X),
    "jvp of grad": lambda f: jit(lambda x: jvp(grad(lambda x: f(x).sum()), (x,), (x,))[1])(X),
    "vmap": lambda f: jit(vmap(f))(np.stack([X, 2 * X])),
    "vmap of grad": lambda f: vmap(grad(lambda x: f(x).sum()))(np.stack([X, 2 * X])),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(x).sum())(np.stack([X, 2 * X])),
    "two vmaps": lambda f: vmap(vmap(f))(np.stack([X, 2 * X])[None]),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_bar_for_the_steps_of_the_primal_loop(name: str, drawn: list[Drawn]) -> None:
    got = CALLS[name](loop)
    assert ends(drawn) == [("loop", STEPS, STEPS)]
    want = CALLS[name](lambda x: loop(x, progress=None))
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


@pytest.mark.parametrize("name", ["jvp", "vmap", "two vmaps"])
def test_one_bar_for_a_while_loop(name: str, drawn: list[Drawn]) -> None:
    CALLS[name](walk)
    assert ends(drawn) == [("walk", None, STEPS)]


def test_lanes_of_different_lengths_share_a_bar_as_long_as_the_longest(drawn: list[Drawn]) -> None:
    run = lambda n, x: for_loop(n, grow, x, progress="lanes")
    got = vmap(run, in_axes=(0, None))(np.array([2, 5, 0]), X)
    assert ends(drawn) == [("lanes", 5, 5)]
    np.testing.assert_allclose(
        np.asarray(got), [np.asarray(for_loop(n, grow, X)) for n in (2, 5, 0)]
    )
    vmap(
        lambda a: scan(
            lambda c, _: (a * c, None), 1.0, length=9, until=lambda c: c > 5, progress=True
        )
    )(np.array([2.0, 9.0, 3.0], np.float32))
    assert ends(drawn)[1:] == [(None, 9, 3)]


def test_the_bar_of_a_gradient_counts_the_steps_taken(drawn: list[Drawn]) -> None:
    def total(a: Any) -> Any:
        step = lambda c, _: (a * c, c)
        end, ys, _ = scan(step, 1.0, length=9, until=lambda c: c > 5, progress=True)
        return end + ys.sum()

    jit(grad(total))(2.0)
    assert ends(drawn) == [(None, 9, 3)]


def test_loops_in_loops_have_a_bar_each_time_they_run(drawn: list[Drawn]) -> None:
    def outer(i: Any, c: Any) -> Any:
        return fori_loop(0, 4, lambda j, c: c + i * j, c, progress="inner")

    jit(lambda c: fori_loop(0, 3, outer, c, progress="outer"))(0)
    assert sorted(ends(drawn), key=str) == [*[("inner", 4, 4)] * 3, ("outer", 3, 3)]
    drawn.clear()
    jit(lambda c: fori_loop(0, 3, outer, c))(0)
    assert ends(drawn) == [("inner", 4, 4)] * 3


def test_a_loop_in_a_branch_has_a_bar_where_the_branch_is_taken(drawn: list[Drawn]) -> None:
    run = jit(lambda p, x: cond(p, loop, lambda x: x, x))
    run(False, X)
    assert drawn == []
    run(True, X)
    assert ends(drawn) == [("loop", STEPS, STEPS)]


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_no_bar_for_no_steps(wrap: Callable[..., Any], drawn: list[Drawn]) -> None:
    wrap(lambda x: for_loop(0, grow, x, progress=True))(X)
    wrap(lambda x: scan(lambda c, y: (c, y), 0.0, x[:0], progress=True))(X)
    assert drawn == []


def test_a_bar_closes_where_the_loop_fails(drawn: list[Drawn]) -> None:
    limit = [3]

    def check(i: Any) -> None:
        if i == limit[0]:
            raise ValueError("stop here")

    @jit
    def run(x: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            debug_callback(check, i)
            return c + i

        return fori_loop(0, 6, body, x, progress=Progress(every=1))

    with pytest.raises(ValueError, match="stop here"):
        run(0)
    assert drawn[0].counts == [1, 2, 3, 3]
    assert not drawn[0].is_open
    limit[0] = -1
    assert int(run(0)) == 15
    assert drawn[1].counts[-1] == 6
    limit[0] = 2
    with pytest.raises(ValueError, match="stop here"), disable_jit():
        run(0)
    assert drawn[2].counts[-1] == 2


def test_what_a_bar_raises_comes_out_of_the_call(
    drawn: list[Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Drawn, count: int) -> None:
        self.is_open = False
        raise KeyboardInterrupt

    monkeypatch.setattr(Drawn, "show", interrupt)
    monkeypatch.setattr(Drawn, "close", lambda self, count: None)
    with pytest.raises(KeyboardInterrupt):
        jit(loop)(X)


def test_calls_of_python_and_bars_go_together(drawn: list[Drawn]) -> None:
    def body(i: Any, c: Any) -> Any:
        return c + callback(lambda i: np.float32(i), np.float32(0), i, ordered=True)

    assert float(jit(lambda c: fori_loop(0, 5, body, c, progress=True))(0.0)) == 10.0
    assert ends(drawn) == [(None, 5, 5)]


def test_arrays_stay_in_place() -> None:
    gradient = jit(grad(lambda x: loop(x)[-1]))
    assert gradient.lower(X).compile().copies == 0


def test_the_type_says_so() -> None:
    jaxpr = make_jaxpr(loop)(X)
    assert [type(e).__name__ for e in jaxpr.effects] == ["ProgressEffect"]


@pytest.mark.parametrize(
    "run", [loop, lambda x: scan(lambda c, y: (c * y, c), 1.0, x, progress=True)]
)
def test_the_laws_hold(run: Callable[..., Any]) -> None:
    assert check_function(run, X.astype(np.float64)).jaxpr.effects


def test_tqdm_draws_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    made: list[Any] = []

    class Tqdm:
        def __init__(self, **options: Any) -> None:
            self.options, self.n, self.is_closed = options, 0, False
            made.append(self)

        def update(self, more: int) -> None:
            self.n += more

        def close(self) -> None:
            self.is_closed = True

    monkeypatch.setattr(bars, "optional_module", lambda name: SimpleNamespace(tqdm=Tqdm))
    loop(X)
    (bar,) = made
    assert bar.options == {"total": STEPS, "desc": "loop", "leave": None}
    assert (bar.n, bar.is_closed) == (STEPS, True)


def test_text_is_drawn_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(bars, "optional_module", lambda name: None)
    loop(X)
    while_loop(lambda x: x < 5, lambda x: x + 1, 0, progress=True)
    first, second, rest = [line.split("\r")[-1] for line in capsys.readouterr().err.split("\n")]
    assert first.startswith("loop: 6/6, 100%, 0.")
    assert second.startswith("5 steps, 0.")
    assert rest == ""


def test_progress_of_another_kind_is_refused() -> None:
    for what, call in {
        "for_loop": lambda: loop(X, 3),
        "scan": lambda: scan(lambda c, y: (c, y), 0.0, X, progress=3),  # type: ignore[call-overload]  # that is the point
        "fori_loop": lambda: fori_loop(0, 3, lambda i, c: c, 0, progress=3),  # type: ignore[arg-type]  # that is the point
        "map": lambda: map(lambda y: y, X, progress=3),  # type: ignore[arg-type]  # that is the point
        "while_loop": lambda: walk(X, 3),
        "accumulate_grads": lambda: accumulate_grads(loss, 3, progress=3),  # type: ignore[call-overload]  # that is the point
    }.items():
        assert_misuse(
            call,
            TypeError,
            f"{what}: progress must be True, False, a label or a Progress, got 3 of type int",
            within={"for_loop": loop, "while_loop": walk}.get(what),
        )
    assert_misuse(
        lambda: Progress(every=0),
        ValueError,
        "Progress: every must be an integer of at least 1, or None for a few times a second, got 0",
    )
    assert_misuse(
        lambda: Progress(3),  # type: ignore[arg-type]  # that is the point
        TypeError,
        'Progress: desc must be a string, got 3 of type int; write `Progress("label")`',
    )


STOPPED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the shell has it ignored
import numpy as np
from fiveloop.core import jit
from fiveloop.loops import fori_loop
from fiveloop.loops.progress import bars
from fiveloop.state import debug_callback

class Drawn:
    def __init__(self, progress, total):
        pass
    def show(self, count):
        os.kill(os.getpid(), signal.SIGINT)
    def close(self, count):
        print("closed", count < 10**9)

bars.new_bar = Drawn
size, shown = int(sys.argv[1]), sys.argv[2] == "bar"

def step(i, x):
    if not shown:
        debug_callback(lambda i: i < 3 or Drawn(None, 0).show(i), i)
    return x + 1.0

f = jit(lambda x: fori_loop(0, 10**9, step, x, progress=shown))
try:
    f(np.zeros(size, np.float32)).block_until_ready()
except KeyboardInterrupt as error:
    print("stopped", error.__cause__)
print(jit(lambda x: x + 1.0)(1.0))
"""


@pytest.mark.parametrize("size", ["1", "100000"])  # the longer program runs in several threads
@pytest.mark.parametrize("shown", ["bar", "calls"])
def test_ctrl_c_stops_a_compiled_loop_at_its_next_call(size: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, size, shown],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stdout.splitlines() == ["closed True"] * (shown == "bar") + ["stopped None", "2.0"]
