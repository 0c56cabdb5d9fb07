"""The steps of random programs that draw random numbers: make a stream of keys, take a number from one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fiveloop.state.random_state import KeyStream
from fiveloop.testing.core.programs import Draw, Env, Kinds, Scope, Step, define_operation
from fiveloop.testing.core.reference_running import cipher


class HostStream:
    """A stream of keys in plain Python."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.count = 0

    def key(self) -> Any:
        """The next key."""
        self.count += 1
        return np.array(cipher(0, self.seed, 0, self.count - 1), np.uint32)


def _number(stream: Any, like: Any) -> Any:
    """A number between -1 and 1, exact in any dtype of floats that programs have."""
    word = stream.key()[0] & np.uint32(255)
    return word.astype(like.dtype) / like.dtype.type(128) - like.dtype.type(1)


define_operation("stream", KeyStream, HostStream)
define_operation("noise", _number, _number)


@dataclass(frozen=True)
class NewStream:
    """A stream from a seed."""

    seed: int

    def run(self, env: Env) -> None:
        """Append the stream."""
        env.streams.append(env.ops["stream"](self.seed))


@dataclass(frozen=True)
class Noise:
    """A number that a stream gives."""

    stream: int

    def run(self, env: Env) -> None:
        """Append the number."""
        env.floats.append(env.ops["noise"](env.streams[self.stream], env.floats[0]))


def draw_noise(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A number of some stream; the stream is made first if there is none."""
    if not scope.streams:
        scope.streams += 1
        return NewStream(draw(st.integers(0, 9)))
    scope.floats.append(())
    return Noise(draw(st.integers(0, scope.streams - 1)))


def with_noise(kinds: Kinds) -> Kinds:
    """Programs that draw random numbers, too."""
    return kinds.plus(*[draw_noise] * 4)
