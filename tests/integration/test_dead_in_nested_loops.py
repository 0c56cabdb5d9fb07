"""A carry that only feeds itself leaves a loop, also where the loop stands in another loop, a branch or a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import Jaxpr, forget_traces, grad, ir, jit, make_jaxpr, transforms
from fiveloop.loops import cond, for_loop, scan, while_loop
from fiveloop.remat import checkpoint
from fiveloop.state import debug_callback, freeze, new_ref

X = np.linspace(0.1, 0.9, 4).astype(np.float32)


def heavy_in(jaxpr: Jaxpr) -> set[str]:
    return {p.name for p in ir.primitives_in(jaxpr)} & {"exp", "tanh"}


def step(c: Any, _: None) -> tuple[Any, None]:
    """Of three carries, the first uses only itself, and the others each other."""
    return (fnp.sin(c[0]), fnp.tanh(fnp.exp(c[1])) * c[2], fnp.cos(c[2] + fnp.exp(c[1]))), None


def steps(c: Any) -> Any:
    return scan(step, c, None, length=2)[0]


def write(r: Any) -> None:
    for ref, new in zip(r, step([ref[...] for ref in r], None)[0], strict=True):
        ref[...] = new


def of_scan(inner: Callable[[Any], Any], **options: Any) -> Callable[[Any], Any]:
    outer = lambda c, _: (inner(c), None)
    return lambda x: scan(outer, (x, x, x), None, length=3, **options)[0][0].sum()


def of_refs(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: for_loop(3, lambda i, r: inner(r), (x, x, x))[0].sum()


def in_while(r: Any) -> None:
    def body(k: Any) -> Any:
        write(r)
        return k + 1

    while_loop(lambda k: k < 2, body, 0, max_steps=2)


def carried_beside(r: Any) -> None:
    """A carry and a Ref that use only each other, in a loop that also changes another Ref."""

    def body(c: Any, _: None) -> tuple[Any, None]:
        r[0][...] = fnp.sin(r[0][...])
        c = fnp.exp(r[1][...]) * c
        r[1][...] = fnp.tanh(c)
        return c, None

    scan(body, X, None, length=2)


def refs_in_while(x: Any) -> Any:
    r = [new_ref(x) for _ in range(3)]

    def body(k: Any) -> Any:
        in_for(r)
        return k + 1

    while_loop(lambda k: k < 2, body, 0, max_steps=2)
    return freeze(r[0]).sum()


def refs_alone(x: Any) -> Any:
    r = [new_ref(x) for _ in range(3)]
    in_for(r)
    return freeze(r[0]).sum()


def in_for(r: Any) -> None:
    for_loop(2, lambda i, _: write(r), ())


def in_branch(r: Any) -> None:
    for_loop(2, lambda i, _: cond(r[0][0] > 0, lambda: write(r), lambda: None), ())


NESTED = {
    "scan": of_scan(steps),
    "three deep": of_scan(lambda c: scan(lambda c, _: (steps(c), None), c, None, length=2)[0]),
    "branch": of_scan(lambda c: cond(c[0][0] > 0, steps, lambda c: c, c)),
    "checkpoints": of_scan(lambda c: scan(step, c, None, length=4, checkpoints=2)[0]),
    "checkpoints around": of_scan(steps, checkpoints=2),
    "end": of_scan(
        lambda c: scan(step, c, None, length=3, until=lambda c: c[0].sum() > 99)[0]  # never
    ),
    "refs": of_refs(in_for),
    "refs in a branch": of_refs(in_branch),
    "refs in a while": of_refs(in_while),
    "refs in a checkpoint": of_refs(lambda r: checkpoint(lambda: in_for(r))()),
    "a carry beside refs": of_refs(carried_beside),
    "while around": refs_in_while,
    "no loop around": refs_alone,
}


@pytest.mark.parametrize("name", NESTED)
def test_a_carry_that_only_feeds_itself_leaves_a_loop_within(name: str) -> None:
    f = NESTED[name]
    for derivative in grad(f), grad(checkpoint(f)):
        assert not heavy_in(make_jaxpr(derivative)(X))


@pytest.mark.parametrize("name", ["three deep", "refs in a branch", "while around"])
def test_the_derivative_is_that_without_the_carry(name: str) -> None:
    alone = {"three deep": 12, "refs in a branch": 6, "while around": 4}[name]

    def sines(x: Any) -> Any:
        for _ in range(alone):
            x = fnp.sin(x)
        return x.sum()

    np.testing.assert_allclose(jit(grad(NESTED[name]))(X), jit(grad(sines))(X), rtol=1e-5)


def test_the_program_itself_computes_no_dead_carry() -> None:
    jaxpr = make_jaxpr(refs_in_while)(X)
    assert heavy_in(jaxpr) and not heavy_in(transforms.dce(jaxpr, (True,))[0])


@pytest.mark.parametrize("later", [False, True])
def test_what_a_later_step_uses_stays(later: bool) -> None:
    def outer(i: Any, r: Any) -> None:
        if later:
            in_for(r)
        r[0][...] += r[1][...]
        if not later:
            in_for(r)

    def plain(x: Any) -> Any:
        c = x, x, x
        for _ in range(3):
            for part in range(2):
                if part == later:
                    c = c[0] + c[1], *c[1:]
                else:
                    c = step(step(c, None)[0], None)[0]
        return c[0].sum()

    f = lambda x: for_loop(3, outer, (x, x, x))[0].sum()
    np.testing.assert_allclose(jit(f)(X), jit(plain)(X), rtol=1e-5)
    for derivative in grad(f), grad(checkpoint(f)):
        np.testing.assert_allclose(jit(derivative)(X), jit(grad(plain))(X), rtol=1e-4)


def test_effects_within_stay() -> None:
    seen: list[float] = []
    kept = new_ref(np.zeros(4, np.float32))

    def inner(c: Any, _: None) -> tuple[Any, None]:
        debug_callback(lambda v: seen.append(float(v)), c[1][0])
        kept[...] += c[1]
        return step(c, None)

    outer = lambda c, _: (scan(inner, c, None, length=2)[0], None)
    jit(lambda x: scan(outer, (x, x, x), None, length=3)[0][0].sum())(X)
    assert len(seen) == 6
    np.testing.assert_allclose(kept[...][0], sum(seen), rtol=1e-5)


def test_the_search_grows_with_the_depth() -> None:
    """Each loop around another one adds as many jaxprs as the one before, and not twice as many."""

    def nested(depth: int, r: Any) -> None:
        if depth:
            for_loop(2, lambda i, _: nested(depth - 1, r), ())
        else:
            write(r)

    def made(depth: int) -> int:
        found: list[Jaxpr] = []
        init = Jaxpr.__init__

        def counted(self: Jaxpr, *args: Any, **kwargs: Any) -> None:
            found.append(self)
            init(self, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Jaxpr, "__init__", counted)
            forget_traces()
            make_jaxpr(grad(of_refs(lambda r: nested(depth, r))))(X)
        return len(found)

    counts = [made(depth) for depth in (2, 3, 4, 5)]
    assert max(np.diff(counts)) <= 2 * min(np.diff(counts))
