"""Small programs that the tests of the bench runner build in worker processes."""

from __future__ import annotations

import itertools
import os
import time

import numpy as np
from benchmarks.model import Action, Program


def build_squares(size: int) -> Program:
    return Program(lambda x: {"y": x * x}, (np.arange(float(size)),))


def build_cubes(size: int) -> Program:
    return Program(lambda x: {"y": x**3}, (np.arange(float(size)),))


def build_error(size: int) -> Program:
    raise ValueError(f"no program of size {size}")


def build_exit(size: int) -> Program:
    os._exit(3)


def build_sleep(size: int) -> Program:
    time.sleep(60.0)
    return build_squares(size)


class Awaited(np.ndarray):
    def block_until_ready(self) -> None:
        """Nothing is on its way."""


def build_count(size: int) -> Action:
    counted = np.zeros((), int).view(Awaited)
    return Action(lambda: {"calls": np.add(counted, 1, out=counted)}, times=size)


def build_host_action(size: int) -> Action:
    return Action(lambda: {"y": np.arange(size)}, times=2, memory=lambda: 8 * size)


def build_clocked(size: int) -> Action:
    ticks = itertools.count()
    return Action(
        lambda: {"y": [np.arange(3), np.arange(size)]}, 5, clock=lambda: 10.0 * next(ticks)
    )
