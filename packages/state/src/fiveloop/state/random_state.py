"""Random state: `KeyStream`, and its primitive `next_key`, a new key from a Ref with a key and a count.

state : u32[3], the two words of the key, and how many keys have been made of it

Key number n is the key with n folded in. The count of a Ref that the lanes of a batch share goes up once, and its next
key is split among the lanes; a lane with a Ref of its own takes the next key of that Ref. A second operand says whether
the count goes up: if it does not, the key that the primitive returns has no meaning.
"""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

import numpy as np

from fiveloop.core import ad, arrays, ir, prims, pytree, rules, trace, transforms
from fiveloop.core import keys as core_keys
from fiveloop.core.arrays import ArrayLike, Value
from fiveloop.core.dataclass import dataclass
from fiveloop.core.ir import indexer
from fiveloop.state import api, discharge, predicate, primitives, refs

KEY = ir.ShapedArray((2,), np.uint32)
STATE = ir.ShapedArray((3,), np.uint32)


@dataclass(frozen=True)
class KeyEffect(ir.PositionalEffect):
    """The next key is taken from the Ref at a position: by each lane one of its own."""

    mutates: ClassVar[bool] = True
    each_lane: ClassVar[bool] = True
    lanes_differ: ClassVar[bool] = True


next_key_p: ir.Primitive[ir.NoParams] = ir.Primitive("next_key")


def next_key_abstract_eval(avals: ir.Avals, p: ir.NoParams) -> ir.Typing:
    """A key; the Ref is counted up."""
    ref, *condition = avals
    if ref is not refs.AbstractRef(STATE) or condition not in ([], [predicate.PREDICATE]):
        raise TypeError(
            f"next_key: expected a Ref of type {refs.AbstractRef(STATE)} and perhaps "
            f"{predicate.PREDICATE}, got {list(avals)}"
        )
    return [KEY], frozenset([KeyEffect(0)])


def next_key_batch(
    size: int, operands: ad.Values, dims: ad.BatchAxes, p: ir.NoParams
) -> ad.Batched:
    """Split the next key among lanes that share the Ref; let lanes with Refs of their own take each its next."""
    (ref, *condition), (dim, *condition_dim) = operands, dims
    if dim is None:
        anywhere = [
            c if d is None else c.any() for c, d in zip(condition, condition_dim, strict=True)
        ]
        return [core_keys.split(trace.bind1(next_key_p, ref, *anywhere), size)], [0]
    before = primitives.read(ref)
    (keys, after), (key_dim, after_dim) = transforms.batch_flat(
        _advanced, size, [before, *condition], [dim, *condition_dim]
    )
    after = transforms.move_batch(after, size, after_dim, dim)
    primitives.write(ref, after)
    return [keys], [key_dim]


def _advanced(state: Value, *condition: Value) -> list[Value]:
    """The next key of a state, and the state after it."""
    key, count = state[:2], state[2]
    after = prims.concatenate([key, (count + np.uint32(1)).reshape(1)], 0)
    return [
        core_keys.fold_in(key, count),
        *([prims.select(c, after, state) for c in condition] or [after]),
    ]


def next_key_discharge(
    ctx: discharge.DischargeContext, operands: discharge.Operands, p: ir.NoParams
) -> list[Value]:
    """Read the state, and write the one after it."""
    cell, *condition = operands
    whole = indexer.whole_indexer(STATE.shape)
    key, after = _advanced(ctx.read(cell, whole, []), *condition)  # type: ignore[arg-type]  # the first operand is the Ref
    ctx.write(cell, whole, [], after)  # type: ignore[arg-type]
    return [key]


rules.define(
    next_key_p,
    abstract_eval=next_key_abstract_eval,
    lower=rules.Refusal("it changes a Ref; discharge it first (`discharge_state`)"),
    jvp=lambda primals, tangents, p: (trace.bind(next_key_p, *primals), [ad.Zero(KEY.tangent())]),
    batch=next_key_batch,
)
discharge.define_discharge(next_key_p, next_key_discharge)
# It counts up where the condition holds.
predicate.define_predicate(
    next_key_p,
    lambda pred, xs, guard, p: trace.bind(
        next_key_p, xs[0], reduce(prims.bitwise_and, xs[1:], pred)
    ),
)


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
        key = core_keys.as_key("KeyStream", given) if given.ndim else core_keys.key(seed)
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
        """A stream for each of `num` lanes, in one object for `vmap`; each starts from a key of its own."""
        keys = self.keys(num)
        counts = arrays.as_value(np.zeros((num, 1), np.uint32))
        return _of_state(api.new_ref(prims.concatenate([keys, counts], 1)))

    def _check(self) -> None:
        """Refuse anything but the state of a stream."""
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
        prims.bad_type(f"KeyStream: expected one stream to take a key from, got {given}; {advice}")

    def __repr__(self) -> str:
        return f"KeyStream({self.state!r})"


def _of_state(state: refs.Ref) -> KeyStream:
    stream = object.__new__(KeyStream)
    stream.state = state
    return stream


pytree.register_node(
    KeyStream, lambda stream: ((stream.state,), None), lambda _, state: _of_state(*state), ["state"]
)
