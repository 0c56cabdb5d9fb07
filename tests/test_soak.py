"""The soak session: what grows is seen, and a short soak of each kind of work leaves memory flat."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import soak


@pytest.fixture
def _old_objects_stay() -> Iterator[None]:
    """The objects of the tests before this one are left out when the memory in use is read."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("_old_objects_stay")
def test_work_that_keeps_what_it_makes_is_seen() -> None:
    kept: list[np.ndarray] = []
    outcome = soak.soak(lambda i: kept.append(np.ones(1 << 17)), 40, 60.0)  # a megabyte each
    assert outcome.times == 40
    assert outcome.grown > soak.MAY_GROW


def test_what_the_first_half_adds_is_warming() -> None:
    warming = [float(min(i, 9)) for i in range(soak.SLICES)]
    assert soak.Outcome(20, warming).grown == 0.0
    assert soak.Outcome(20, [float(i) for i in range(soak.SLICES)]).grown == 5.0


def test_work_that_runs_out_of_time_does_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "in_use", lambda: 0.0)
    outcome = soak.soak(lambda i: None, 10**9, 0.02)
    assert soak.SLICES <= outcome.times < 10**8
    assert len(outcome.in_use) == soak.SLICES


@pytest.mark.parametrize(
    ("name", "scale"),
    [("calls", 0.003), ("programs", 0.007), ("closures", 0.006), ("eager loops", 0.008)],
)
def test_a_short_soak_leaves_memory_flat(name: str, scale: float) -> None:
    command = [sys.executable, soak.__file__, "--here", name, "--scale", str(scale)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"flat: {name}: ")
