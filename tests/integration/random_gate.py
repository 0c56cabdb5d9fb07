"""Random loops with a few accesses to a few arrays, nested and batched, read for copies after compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import grad, jit, jvp, vmap
from fiveloop.core.backend.gate import array_copies
from fiveloop.loops import for_loop

SIZE = 96
LANES = 3
WIDTH = 5
KINDS = ("read", "take", "write", "swap", "add", "number", "copy", "carry", "carried")
"""What is done: "take" reads and computes nothing that is dear, "number" writes one, "copy" an element of an array that
nothing changes, "carry" changes a whole array, and "carried" reads that."""
PLACES: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("i", lambda i, k: i),
    ("i + 1", lambda i, k: i + 1),
    ("k[i]", lambda i, k: k[i]),
    ("7 * i % SIZE", lambda i, k: 7 * i % SIZE),
    ("-i - 1", lambda i, k: -i - 1),
    ("k[k[i]]", lambda i, k: k[k[i]]),
)


@dataclass(frozen=True)
class Access:
    """One access in a step: what is done, to which array, and where."""

    kind: str
    array: int
    place: int

    def __str__(self) -> str:
        if self.kind in ("carry", "carried"):
            return self.kind
        return f"{self.kind} {'xyz'[self.array]}[{PLACES[self.place][0]}]"


@dataclass(frozen=True)
class Loop:
    """A loop whose step carries out some accesses, within an outer loop and for several lanes if so drawn."""

    arrays: int
    accesses: tuple[Access, ...]
    nested: bool
    batched: bool

    def __str__(self) -> str:
        where = f"{' nested' * self.nested}{' batched' * self.batched}"
        return f"{self.arrays} arrays{where}: {', '.join(map(str, self.accesses))}"


def draw(seed: int) -> Loop:
    """The loop of a seed."""
    random = Random(seed)
    arrays = random.randint(1, 3)
    accesses = tuple(
        Access(random.choice(KINDS), random.randrange(arrays), random.randrange(len(PLACES)))
        for _ in range(random.randint(1, 5))
    )
    return Loop(arrays, accesses, random.random() < 0.4, random.random() < 0.4)


def step(loop: Loop, i: Any, refs: Any, k: Any) -> None:
    """Carry out the accesses; what is read goes into what is written after it."""
    value: Any = 0.5
    *refs, carried = refs
    fixed = fnp.cos(fnp.arange(SIZE, dtype=np.float32))
    for access in loop.accesses:
        ref, at = refs[access.array], PLACES[access.place][1](i, k)
        if access.kind == "read":
            value = fnp.sin(ref[at]) + 0.5 * value
        elif access.kind == "take":
            value = 0.5 * ref[at]
        elif access.kind == "write":
            ref[at] = value
        elif access.kind == "add":
            ref[at] += 0.1 * value
        elif access.kind == "number":
            ref[at] = 1.0
        elif access.kind == "copy":
            ref[at] = fixed[i]
        elif access.kind == "carry":
            carried[...] = 0.5 * carried[...] + value
        elif access.kind == "carried":
            value = 0.1 * carried[...].sum() + 0.5 * value
        else:
            old, ref[at] = ref[at], value
            value = 0.5 * old
    refs[0][i] += 0.01 * value


def run(loop: Loop, xs: Any, k: Any) -> Any:
    """The arrays after the loop."""

    def body(i: Any, refs: Any) -> None:
        step(loop, i, refs, k)

    def outer(i: Any, refs: Any) -> None:
        def inner(j: Any, _: Any) -> None:
            step(loop, i * 8 + j, refs, k)

        for_loop(8, inner, ())

    init = (*xs, fnp.zeros(WIDTH, np.float32))
    out = for_loop(SIZE // 8, outer, init) if loop.nested else for_loop(SIZE - 1, body, init)
    return (*out[:-1], 0.1 * out[-1])


def by_hand(loop: Loop, xs: Any, k: Any) -> list[Any]:
    """The same in NumPy, for one lane."""
    arrays = [np.array(x, np.float64) for x in xs]
    carried, fixed = np.zeros(WIDTH), np.cos(np.arange(SIZE))
    for i in range(SIZE if loop.nested else SIZE - 1):
        value = 0.5
        for access in loop.accesses:
            a = arrays[access.array]
            at = int(np.clip(PLACES[access.place][1](i, k), -SIZE, SIZE - 1))
            old = a[at]
            if access.kind == "read":
                value = np.sin(old) + 0.5 * value
            elif access.kind == "take":
                value = 0.5 * old
            elif access.kind == "write":
                a[at] = value
            elif access.kind == "add":
                a[at] += 0.1 * value
            elif access.kind == "number":
                a[at] = 1.0
            elif access.kind == "copy":
                a[at] = fixed[i]
            elif access.kind == "carry":
                carried = 0.5 * carried + value
            elif access.kind == "carried":
                value = 0.1 * carried.sum() + 0.5 * value
            else:
                a[at], value = value, 0.5 * old
        arrays[0][i] += 0.01 * value
    return [*arrays, 0.1 * carried]


def arguments(loop: Loop, seed: int) -> tuple[Any, Any]:
    """Arrays, with an axis of lanes in front if the loop is batched, and indices."""
    draws = np.random.default_rng(seed)
    shape = (LANES, SIZE) if loop.batched else (SIZE,)
    xs = tuple(draws.normal(size=shape).astype(np.float32) for _ in range(loop.arrays))
    return xs, draws.integers(0, SIZE, shape).astype(np.int32)


def forms(loop: Loop, k: Any) -> dict[str, Callable[[Any], Any]]:
    """The primal, its gradient, and the jvp of that, of the arrays."""
    k, one = fnp.asarray(k), partial(run, loop)

    def primal(xs: Any) -> Any:
        return vmap(one)(xs, k) if loop.batched else one(xs, k)

    def gradient(xs: Any) -> Any:
        return grad(lambda xs: sum((y * y).sum() for y in primal(xs)))(xs)

    def jvp_of_gradient(xs: Any) -> Any:
        return jvp(gradient, (xs,), (xs,))[1]

    return {"primal": primal, "gradient": gradient, "jvp of gradient": jvp_of_gradient}


def assert_in_place(loop: Loop, seed: int = 0) -> None:
    """A loop gives what NumPy gives, and no form of it copies an array in a step; `seed` is for the numbers."""
    xs, k = arguments(loop, seed)
    compiled = {name: jit(form).lower(xs).compile() for name, form in forms(loop, k).items()}
    # What needs no order is read, too.
    copies = {name: found for name, c in compiled.items() if (found := array_copies(c.as_text()))}
    assert not copies, f"seed {seed}, {loop}: copies in {copies}"
    got = [np.asarray(y) for y in jit(forms(loop, k)["primal"])(xs)]
    lanes = range(LANES) if loop.batched else [slice(None)]
    for lane in lanes:
        want = by_hand(loop, [x[lane] for x in xs], k[lane])
        for y, w in zip(got, want, strict=True):
            np.testing.assert_allclose(
                y[lane], w, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}, {loop}"
            )
