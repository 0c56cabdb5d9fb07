"""Random loops with a few accesses to a few arrays, nested and batched, read for copies after compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np

import fiveloop.numpy as fnp
from fiveloop.core import ds, grad, jit, jvp, vmap
from fiveloop.core.backend.gate import array_copies
from fiveloop.loops import for_loop, switch, while_loop

SIZE = 96
LANES = 3
WIDTH = 5
BLOCK = 4
STARTS = SIZE - BLOCK
KINDS = (
    *("read", "take", "write", "swap", "add", "number", "copy", "carry", "carried"),
    *("window", "put", "grow", "move", "link", "follow", "branch", "loops"),
)
"""What is done: "take" reads and computes nothing that is dear, "number" writes one, "copy" an element of an array that
nothing changes, "carry" changes a whole array, and "carried" reads that. "window" reads a block, "put" writes one,
"grow" adds to one, and "move" reads one that starts where the links say, and writes it; "link" changes a link, "follow"
writes where two of them lead. "branch" writes in one of two branches, "loops" in two of three, of which one loops."""
FORMS = ("for", "for", "for", "unrolled", "while")
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
        if self.kind == "link":
            return f"link [{PLACES[self.place][0]}]"
        return f"{self.kind} {'xyz'[self.array]}[{PLACES[self.place][0]}]"


@dataclass(frozen=True)
class Loop:
    """A loop whose step carries out some accesses, within an outer loop and for several lanes if so drawn."""

    arrays: int
    accesses: tuple[Access, ...]
    nested: bool
    batched: bool
    form: str = "for"

    def __str__(self) -> str:
        where = f"{' nested' * self.nested}{' batched' * self.batched} {self.form}"
        return f"{self.arrays} arrays{where}: {', '.join(map(str, self.accesses))}"


def draw(seed: int) -> Loop:
    """The loop of a seed."""
    random = Random(seed)
    arrays = random.randint(1, 3)
    accesses = tuple(
        Access(random.choice(KINDS), random.randrange(arrays), random.randrange(len(PLACES)))
        for _ in range(random.randint(1, 5))
    )
    nested, batched = random.random() < 0.4, random.random() < 0.4
    form = random.choice(FORMS)
    # Arrays that a `while` carries are Refs after all transforms alone, so lanes index and choose them as wholes.
    return Loop(arrays, accesses, nested, batched and form != "while", form)


class Held:
    """An array that a `while` carries, with the face of a Ref."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __setitem__(self, index: Any, x: Any) -> None:
        self.array = self.array.at[index].set(x)


def choose(index: Any, branches: list[Callable[[Any], None]], ref: Any) -> None:
    """Run one of the branches on a Ref, or on an array that is carried."""
    if not isinstance(ref, Held):
        return switch(index, [partial(branch, ref) for branch in branches])

    def on_array(branch: Callable[[Any], None], array: Any) -> Any:
        held = Held(array)
        branch(held)
        return held.array

    ref.array = switch(index, [partial(on_array, branch) for branch in branches], ref.array)


def nothing(ref: Any) -> None:
    """A branch that leaves all as it is."""


def spread(ref: Any, i: Any, start: Any, value: Any) -> None:
    """A loop within a step."""

    def at(j: Any) -> Any:
        return (i + j) % SIZE

    if isinstance(ref, Held):

        def body(c: Any) -> Any:
            return c[0] + 1, c[1].at[at(c[0])].set(0.5 * c[1][start] + value)

        ref.array = while_loop(lambda c: c[0] < 3, body, (0, ref.array))[1]
    else:

        def inner(j: Any, _: Any) -> None:
            ref[at(j)] = 0.5 * ref[start] + value

        for_loop(3, inner, ())


def step(loop: Loop, i: Any, refs: Any, k: Any) -> None:
    """Carry out the accesses; what is read goes into what is written after it."""
    value: Any = 0.5
    *refs, links, carried = refs
    fixed = fnp.cos(fnp.arange(SIZE, dtype=np.float32))
    for access in loop.accesses:
        ref, at = refs[access.array], PLACES[access.place][1](i, k)
        block = ds(at % STARTS, BLOCK)
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
        elif access.kind == "window":
            value = 0.2 * ref[block].sum() + 0.5 * value
        elif access.kind == "put":
            ref[block] = fnp.full(BLOCK, value, np.float32)
        elif access.kind == "grow":
            ref[block] += 0.1 * value
        elif access.kind == "move":
            ref[block] = 0.7 * ref[ds(links[at] % STARTS, BLOCK)] + 0.1 * value
        elif access.kind == "link":
            links[at] = links[(i + 1) % SIZE]
        elif access.kind == "follow":
            to = links[links[at]]
            ref[to] = 0.5 * ref[to] + 0.1 * value
        elif access.kind == "branch":

            def write(r: Any, at: Any = at, value: Any = value) -> None:
                r[at] = 0.5 * r[i] + value

            choose(k[i] % 2, [write, nothing], ref)
        elif access.kind == "loops":

            def update(r: Any, at: Any = at) -> None:
                r[at] = 0.5 * r[i]

            def looping(r: Any, value: Any = value) -> None:
                spread(r, i, k[i], 0.1 * value)

            choose(k[i] % 3, [nothing, looping, update], ref)
        else:
            old, ref[at] = ref[at], value
            value = 0.5 * old
    refs[0][i] += 0.01 * value


NESTED = SIZE // 8 - 1
STEPS = SIZE - 3
"""The turns of an outer loop, of which each has eight steps, and the steps of a single one: whole turns, if it is
unrolled. No step goes out of bounds."""


def run(loop: Loop, xs: Any, k: Any) -> Any:
    """The arrays after the loop."""
    init = (*xs, k, fnp.zeros(WIDTH, np.float32))
    run = run_while if loop.form == "while" else run_for
    *out, _, carried = run(loop, init, k)
    return (*out, 0.1 * carried)


def run_for(loop: Loop, init: Any, k: Any) -> Any:
    """A loop over Refs."""
    unroll: Any = 3 if loop.form == "unrolled" else "auto"

    def body(i: Any, refs: Any) -> None:
        step(loop, i, refs, k)

    def outer(i: Any, refs: Any) -> None:
        def inner(j: Any, _: Any) -> None:
            step(loop, i * 8 + j, refs, k)

        for_loop(8, inner, ())

    if loop.nested:
        return for_loop(NESTED, outer, init)
    return for_loop(STEPS, body, init, unroll=unroll)


def run_while(loop: Loop, init: Any, k: Any) -> Any:
    """The same as a `while` that carries the arrays, whose condition reads one."""

    def body(c: Any) -> Any:
        i, *arrays = c
        held = [Held(x) for x in arrays]
        step(loop, i, held, k)
        return (i + 1, *[h.array for h in held])

    def rows(c: Any) -> Any:
        n, *arrays = c
        more = lambda c: (c[0] < n * 8 + 8) & (c[1][0] < 1e9)
        return (n + 1, *while_loop(more, body, (n * 8, *arrays))[1:])

    if loop.nested:
        return while_loop(lambda c: c[0] < NESTED, rows, (0, *init))[1:]
    return while_loop(lambda c: c[0] < STEPS, body, (0, *init))[1:]


def by_hand(loop: Loop, xs: Any, k: Any) -> list[Any]:
    """The same in NumPy, for one lane."""
    arrays = [np.array(x, np.float64) for x in xs]
    carried, fixed, links = np.zeros(WIDTH), np.cos(np.arange(SIZE)), np.array(k)
    for i in range(NESTED * 8 if loop.nested else STEPS):
        value = 0.5
        for access in loop.accesses:
            a = arrays[access.array]
            at = int(PLACES[access.place][1](i, k))
            old, block = a[at], slice(at % STARTS, at % STARTS + BLOCK)
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
            elif access.kind == "window":
                value = 0.2 * a[block].sum() + 0.5 * value
            elif access.kind == "put":
                a[block] = value
            elif access.kind == "grow":
                a[block] += 0.1 * value
            elif access.kind == "move":
                start = links[at] % STARTS
                a[block] = 0.7 * a[start : start + BLOCK] + 0.1 * value
            elif access.kind == "link":
                links[at] = links[(i + 1) % SIZE]
            elif access.kind == "follow":
                to = links[links[at]]
                a[to] = 0.5 * a[to] + 0.1 * value
            elif access.kind == "branch":
                a[at] = 0.5 * a[i] + value if k[i] % 2 == 0 else a[at]
            elif access.kind == "loops":
                if k[i] % 3 == 1:
                    for j in range(3):
                        a[(i + j) % SIZE] = 0.5 * a[k[i]] + 0.1 * value
                a[at] = 0.5 * a[i] if k[i] % 3 == 2 else a[at]
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
    """The primal, its gradient, and the jvp of that, of the arrays; a `while` has a jvp in their place."""
    k, one = fnp.asarray(k), partial(run, loop)

    def primal(xs: Any) -> Any:
        return vmap(one)(xs, k) if loop.batched else one(xs, k)

    def gradient(xs: Any) -> Any:
        return grad(lambda xs: sum((y * y).sum() for y in primal(xs)))(xs)

    def jvp_of_gradient(xs: Any) -> Any:
        return jvp(gradient, (xs,), (xs,))[1]

    if loop.form == "while":
        return {"primal": primal, "jvp": lambda xs: jvp(primal, (xs,), (xs,))[1]}
    return {"primal": primal, "gradient": gradient, "jvp of gradient": jvp_of_gradient}


def assert_in_place(loop: Loop, seed: int = 0) -> None:
    """A loop gives what NumPy gives, and no form of it copies an array in a step; `seed` is for the numbers."""
    xs, k = arguments(loop, seed)
    compiled = {name: jit(form).lower(xs).compile() for name, form in forms(loop, k).items()}
    # What needs no order is read, too.
    copies = {name: found for name, c in compiled.items() if (found := array_copies(c.as_text()))}
    assert not copies, f"seed {seed}, {loop}: copies in {copies}"
    got = [np.asarray(y) for y in compiled["primal"](xs)]
    lanes = range(LANES) if loop.batched else [slice(None)]
    for lane in lanes:
        want = by_hand(loop, [x[lane] for x in xs], k[lane])
        for y, w in zip(got, want, strict=True):
            np.testing.assert_allclose(
                y[lane], w, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}, {loop}"
            )
