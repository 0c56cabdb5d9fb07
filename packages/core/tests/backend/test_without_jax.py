"""What a process of its own shows: jax is not imported, nothing is printed, a fork does not hang."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_backend_never_imports_jax() -> None:
    script = Path(__file__).with_name("no_jax_program.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "attempts: [] loaded: []"


def test_start_up_prints_nothing() -> None:
    code = "from fiveloop.core.backend import client; client.default_client()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("jax", ["None", "types.ModuleType('jax')", "types.SimpleNamespace()"])
@pytest.mark.parametrize("part", ["jax", "jax._src.config"])
def test_a_module_called_jax_may_be_none(part: str, jax: str) -> None:
    code = (
        f"import sys, types; sys.modules['jax'] = sys.modules['{part}'] = {jax}; from fiveloop.core import jit; "
        "print(jit(lambda x: x + 1.0)(1.0), jit(lambda xs: xs[0])([2.0] * 9))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == ["2.0", "2.0"]


FORK = """
import os, signal, sys
import numpy as np
from fiveloop.core import jit
from fiveloop.core.extend import as_value, to_array

def forked(work):
    sys.stdout.flush()
    if os.fork() == 0:
        signal.alarm(100)
        try:
            print(np.asarray(work()), flush=True)
        except RuntimeError as error:
            print(str(error)[:60], flush=True)
        os._exit(0)
    assert os.wait()[1] == 0

double = jit(lambda x: x * 2.0)
forked(lambda: double(1.0))
x = to_array(as_value(np.ones(2, np.float32)))
many = jit(lambda xs: xs[0])
halve = jit(lambda x: x / 2.0)
compiled = many.lower([x]).compile()
for _ in range(3):
    double(x), x + x, many([x] * 9), x[0], halve(np.ones(2)), halve(3.0), compiled([x])
forked(lambda: x)
for work in (lambda: double(x), lambda: x + x, lambda: many([x] * 9), lambda: x[0], lambda: jit(lambda x: x - 3.0)(x)):
    forked(work)
for work in (lambda: halve(np.ones(2)), lambda: halve(3.0), lambda: halve(x), lambda: compiled([x])):
    forked(work)
print(double(x))
"""


def test_a_forked_process_does_not_hang() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    refused = "this process was forked after fiveloop had compiled or run s"
    assert done.stdout.splitlines() == ["2.0", "[1. 1.]", *[refused] * 9, "[2. 2.]"]


DONATED = """
from fiveloop.core import jit
from fiveloop.core.extend import as_value, to_array
import numpy as np
import sys, traceback
x = to_array(as_value(np.ones(2, np.float32)))
add, many = jit(lambda x: x + 1.0), jit(lambda xs: xs[0])
for _ in range(2):
    y = add(x), many([x] * 9)
jit(lambda x: x * 2.0, donate_argnums=0)(x)
for use in (lambda: add(x), lambda: many([x] * 9), lambda: x + x, lambda: x[0], lambda: add.lower(x).compile()(x)):
    try:
        use()
    except RuntimeError as error:
        print(type(error).__name__, "XLA" in traceback.format_exc(), "direct cause" in traceback.format_exc())
"""


def test_a_donated_array_is_told_of_by_one_error_alone() -> None:
    env = {k: x for k, x in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", DONATED],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=env,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["DonatedError False False"] * 5
