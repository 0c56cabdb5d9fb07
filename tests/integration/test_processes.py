"""Threads, processes and Ctrl-C: calls from everywhere are right, and an interrupted call leaves all usable."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, vmap
from fiveloop.loops import for_loop, fori_loop
from fiveloop.state import new_ref

THREADS = 8


def together(work: Any) -> list[Any]:
    """What `work` gives for the number of each thread; all begin at once."""
    start = threading.Barrier(THREADS)

    def run(k: int) -> Any:
        start.wait()
        return work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_threads_trace_and_call_one_function() -> None:
    traced: list[int] = []

    @jit
    def f(x: Any, y: Any) -> Any:
        traced.append(1)
        return x * 2.0 + y

    def work(k: int) -> list[Any]:
        outs = []
        for n in range(1, 6):
            for y in (float(k), np.full(n, k, "f4"), fnp.full(n, float(k))):
                outs.append(np.asarray(f(fnp.ones(n), y)))
                outs.append(np.asarray(f(np.ones(n, "f4"), y)))
        return outs

    for k, outs in enumerate(together(work)):
        assert all(np.array_equal(out, np.full(out.shape, 2.0 + k, "f4")) for out in outs)
    count = len(traced)
    together(work)
    assert len(traced) == count


# The first of jaxlib's settings takes a while to set here, and the other threads do not wait to call.
FIRST_CALLS = """
import threading, time
import fiveloop.numpy as fnp
from fiveloop.core import jit
from jaxlib import _jax

set_state = _jax.jax_jit.set_disable_jit_state
_jax.jax_jit.set_disable_jit_state = lambda state: (time.sleep(0.3), set_state(state))
x, start, outs = fnp.ones(3), threading.Barrier(4), []

def work(k):
    start.wait()
    outs.append(float(jit(lambda x: fnp.sin(x).sum() * 0 + k)(x)))

threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(outs))
"""


def test_the_first_calls_of_a_process_may_come_from_several_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "[0.0, 1.0, 2.0, 3.0]\n", done.stderr


def test_threads_trace_functions_of_their_own() -> None:
    def work(k: int) -> list[float]:
        def loss(x: Any) -> Any:
            return fori_loop(0, 3, lambda i, c: c * x + k, x)

        ref = new_ref(fnp.zeros(3))

        def body(i: Any, ref: Any) -> None:
            ref[i] = ref[i - 1] + k

        for_loop(3, body, ref)
        mapped = jit(vmap(grad(loss)))(fnp.ones(2))
        return [float(jit(loss)(1.0)), float(mapped[0]), float(ref[2]), float(loss(fnp.ones(())))]

    for k, found in enumerate(together(work)):
        assert found == [1.0 + 3 * k, 4.0 + 3 * k, 3.0 * k, 1.0 + 3 * k]


def test_threads_count_on_one_ref() -> None:
    ref = new_ref(0.0)
    add = jit(lambda ref, y: ref.__setitem__(..., ref[...] + y))
    together(lambda k: [add(ref, 1.0) for _ in range(50)])
    assert float(ref[...]) == 50.0 * THREADS


def in_a_process(k: int) -> float:
    """What a process of its own computes."""
    return float(jit(lambda x: x * 2.0 + fnp.sum(np.ones(3)))(float(k)))


def test_spawned_processes_compute() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(in_a_process, [1, 2]) == [5.0, 7.0]


# Threads that enter blocks and make functions hold locks at most times at which another thread forks.
FORKED = """
import os, signal, threading
import fiveloop.numpy as fnp
from fiveloop.core import default_matmul_precision, jit, make_jaxpr

ended = threading.Event()

def work():
    while not ended.is_set():
        with default_matmul_precision("high"):
            make_jaxpr(jit(lambda x: x + x))(1.0)

def refused():
    try:
        fnp.sin(x)
    except RuntimeError as error:
        return "forked" in str(error)

def in_a_fork(call):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(7 if call() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
try:
    for _ in range(5):
        in_a_fork(lambda: make_jaxpr(lambda x: x * 3.0)(1.0))
    x = fnp.ones(2)
    for _ in range(5):
        in_a_fork(lambda: refused() and make_jaxpr(lambda x: x * 3.0)(x) and x.tolist() == [1.0, 1.0])
finally:
    ended.set()
print("usable")
"""
INTERRUPTED = """
import signal, threading
import numpy as np
import fiveloop.numpy as fnp
from fiveloop.core import jit
from fiveloop.loops import for_loop, while_loop
from fiveloop.state import new_ref

def interrupted(work, seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return False

signal.signal(signal.SIGALRM, signal.default_int_handler)

def chain(x):
    for k in range(200):
        x = fnp.sin(x) * (1.0 + k)
    return x

f = jit(chain)
x, ref = fnp.ones(4), new_ref(fnp.zeros(4))
spin = jit(lambda x: while_loop(lambda c: c[0] < 3_000_000, lambda c: (c[0] + 1, fnp.sin(c[1])), (0, x))[1])
write = jit(lambda ref, x: ref.__setitem__(..., ref[...] + spin(x)))
write.lower(ref, x).compile()
hits = [interrupted(lambda: f(x), t) for t in (0.005, 0.02, 0.06, 0.15, 0.4)]
hits += [interrupted(lambda: spin(x).block_until_ready(), 0.02), interrupted(lambda: write(ref, x), 0.02)]
assert any(hits[:5]) and any(hits[5:]), hits
assert np.isfinite(np.asarray(f(x))).all()
assert np.allclose(np.asarray(f(x)), np.asarray(jit(lambda x: chain(x) + 0.0)(x)), atol=1e-3)
done = []
thread = threading.Thread(target=lambda: done.append(jit(lambda ref: ref[...] * 0.0 + 1.0)(ref)))
thread.start()
thread.join(100)
assert np.array_equal(np.asarray(done[0]), np.ones(4))
ref[0] = 5.0
assert float(ref[0]) == 5.0 and float(fnp.sum(x + x)) == 8.0
print("usable")
"""


@pytest.mark.parametrize("program", [FORKED, INTERRUPTED], ids=["forked", "interrupted"])
def test_forks_and_interrupted_calls_leave_everything_usable(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "usable\n"), done.stderr
