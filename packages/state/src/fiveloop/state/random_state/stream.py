"""`KeyStream`: the user's object that returns keys."""

from __future__ import annotations

import numpy as np

from fiveloop.core import ArrayLike, Value, arrays, errors, prims, pytree, trace
from fiveloop.core import keys as core_keys
from fiveloop.core.keys import as_key
from fiveloop.state import api, refs
from fiveloop.state.random_state.primitive import STATE, next_key_p


class KeyStream:
    """Random keys, a new one at each call of `key()`: a Ref with a key and a count.

    Made from a seed or from a key. It can be closed over and passed wherever a Ref can: in loops, branches, `jit`,
    `vmap`, `grad` and `checkpoint`. Key number n is `fold_in(key, n)`; a recomputation uses the same keys, bit for
    bit. Under `vmap`, lanes that share a stream split each key: lane i has `split(key, size)[i]`.
    If each lane has a stream of its own, made by `fork(size)`, it takes keys from that.

    >>> stream = KeyStream(0)
    >>> a, b = stream.key(), stream.key()
    >>> bool((a == b).all())
    False
    """

    __slots__ = ("state",)

    state: refs.Ref

    def __init__(self, seed: ArrayLike) -> None:
        given = arrays.as_value(seed, "KeyStream: seed")
        key = as_key("KeyStream", given) if given.ndim else core_keys.key(seed)
        counted = arrays.as_value(np.zeros(1, np.uint32))
        self.state = api.new_ref(prims.concatenate([key, counted], 0))

    def key(self) -> Value:
        """The next key."""
        self._check()
        return trace.bind1(next_key_p, self.state)

    def keys(self, num: int | tuple[int, ...]) -> Value:
        """An array of new keys, of one count."""
        return core_keys.split(self.key(), num)

    def fork(self, num: int) -> KeyStream:
        """The streams of `num` lanes, to be passed to `vmap`, in one object: each starts from a key of its own."""
        keys = self.keys(num)
        counts = arrays.as_value(np.zeros((num, 1), np.uint32))
        return _of_state(api.new_ref(prims.concatenate([keys, counts], 1)))

    def _check(self) -> None:
        """Refuse what is not the state of one stream."""
        shape = self.state.shape
        if shape == STATE.shape:
            return
        if shape[1:] == STATE.shape:
            given = f"{shape[0]} streams that `fork` has made"
            advice = "pass them to `vmap`, with in_axes=0, so that each lane has one"
        else:
            given = f"a part of one, of type {self.state.aval}"
            advice = (
                "under `vmap` give each lane a stream of its own, `stream.fork(size)` with in_axes=0, or let the lanes "
                "share one, with in_axes=None or closed over"
            )
        raise TypeError(
            f"KeyStream: expected one stream to take a key from, got {given}; {advice}"
            f"{errors.at_source(trace.current_source())}"
        )

    def __repr__(self) -> str:
        return f"KeyStream({self.state!r})"


def _of_state(state: refs.Ref) -> KeyStream:
    stream = object.__new__(KeyStream)
    stream.state = state
    return stream


pytree.register_node(
    KeyStream, lambda stream: ((stream.state,), None), lambda _, state: _of_state(*state), ["state"]
)
