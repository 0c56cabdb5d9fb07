"""`explain`: what each loop is called, also those that the library makes by itself; `while_loop`s; sizes not known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from fiveloop.core import ShapeDtype, grad, jvp, make_jaxpr, vmap
from fiveloop.core.ir.avals import SymbolicDim
from fiveloop.core.primitives.special import cos, sin
from fiveloop.loops import (
    LoopReport,
    accumulate_grads,
    associative_scan,
    cond,
    explain,
    for_loop,
    fori_loop,
    map,
    scan,
    switch,
    while_loop,
)
from fiveloop.loops.primitives.for_loop import for_p
from fiveloop.loops.primitives.while_loop import while_p
from fiveloop.loops.record import EMPTY
from fiveloop.state import check, new_ref

N = 40
X = np.ones(N, np.float32)
ROWS = np.ones((12, N), np.float32)


def first(fun: Callable[..., Any], *args: Any) -> LoopReport:
    found = explain(fun, *args)
    json.dumps(found.to_dict())
    return found.loops[0]


def double(*args: Any) -> Any:
    return args[-1] * 2.0


def twice(carry: Any, x: Any) -> Any:
    return carry + x, None


def halved(carry: Any, x: Any) -> Any:
    return carry / 2.0, None


def product(a: Any, b: Any) -> Any:
    return a * b


def loss(w: Any, x: Any) -> Any:
    return ((x * w) ** 2).mean()


def written(i: Any, ref: Any) -> None:
    ref[i] = 1.0


def less(x: Any) -> Any:
    return x[0] < 9.0


def in_groups(x: Any) -> Any:
    return cond(x[0] > 0, sin, cos, x, vmap="group")


def in_series(x: Any) -> Any:
    return cond(x[0] > 0, sin, cos, x, vmap="serial")


def one_of_three(x: Any) -> Any:
    branches: list[Callable[[Any], Any]] = [sin, cos, double]
    return switch(x[0].astype(np.int32), branches, x, vmap="serial")


def until_large(x: Any) -> Any:
    return while_loop(less, double, x)


TITLES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "for_loop of `written`, {}, 3 steps": (lambda x: for_loop(3, written, x), (X,)),
    "scan of `twice`, {}, 12 steps, counting down": (
        lambda x: scan(twice, X, x, reverse=True),
        (ROWS,),
    ),
    "fori_loop of `double`, {}, 3 steps": (lambda x: fori_loop(0, 3, double, x), (X,)),
    "fori_loop of `double`, {}, 4 steps": (lambda x: fori_loop(0, 4, partial(double, 1), x), (X,)),
    "map of `sin`, {}, 12 steps": (lambda x: map(sin, x), (ROWS,)),
    "map of `sin`, {}, 2 steps": (lambda x: map(sin, x, batch_size=5), (ROWS,)),
    "associative_scan of `product`, {}, 7 steps": (
        lambda x: associative_scan(product, x, block=8),
        (X,),
    ),
    "accumulate_grads of `loss`, {}, 3 steps": (accumulate_grads(loss, 3), (X, ROWS)),
    "cond of `sin` or `cos`, lanes in groups, {}, at most 2 steps": (
        vmap(in_groups),
        (ROWS,),
    ),
    "cond of `sin` or `cos`, lanes one after the other, {}, 12 steps": (
        vmap(in_series),
        (ROWS,),
    ),
    "cond of `sin` or `cos` or `double`, lanes one after the other, {}, 12 steps": (
        vmap(one_of_three),
        (ROWS,),
    ),
    "scan of `halved`, {}, at most 20 steps": (
        lambda x: scan(halved, x, length=20, until=less),
        (X,),
    ),
    "while_loop of `double`, {}, a number of steps known only at run time": (
        until_large,
        (X,),
    ),
    "fori_loop of `double`, {}, a number of steps known only at run time": (
        lambda x, n: fori_loop(0, n, double, x),
        (X, 5),
    ),
    "for_loop of `written`, {}, a number of steps known only at run time": (
        lambda x, n: for_loop(n, written, x),
        (X, 5),
    ),
}


@pytest.mark.parametrize("title", TITLES)
def test_titles(title: str) -> None:
    fun, args = TITLES[title]
    got = str(first(fun, *args)).splitlines()[0]
    assert re.sub(r"test_explain_titles.py:\d+", "{}", got) == f"loop 1: {title}"


@pytest.mark.parametrize("mode", ["group", "serial"])
def test_lanes_of_a_cond_have_the_line_of_the_cond(mode: Any) -> None:
    def chooses(x: Any, shared: Any) -> Any:
        y = x * 2.0
        return cond(y[0] > 0, lambda v, s: sin(v) + s, lambda v, s: v * s, y, shared, vmap=mode)

    line = f"test_explain_titles.py:{chooses.__code__.co_firstlineno + 2}"
    lanes = "lanes in groups" if mode == "group" else "lanes one after the other"
    loop = first(vmap(chooses, in_axes=(0, None)), ROWS, X)
    assert (loop.call, loop.role, loop.line) == ("cond", lanes, line)
    assert {"operands[0]", "operands[1]", "result[0]"} <= {o.name for o in loop.operands}
    total = lambda rows: vmap(lambda x: chooses(x, X))(rows).sum()
    halves = explain(grad(total), ROWS).loops
    assert [loop.role for loop in halves] == [
        f"{lanes}, forward half of a derivative",
        f"{lanes}, backward half of a derivative",
    ]
    assert {loop.line for loop in halves} == {line}


def test_values_and_tangents_of_a_derivative() -> None:
    def total(x: Any) -> Any:
        return fori_loop(0, 9, lambda i, y: sin(y) * x, x).sum()

    halves = explain(lambda x: jvp(grad(total), (x,), (x,)), X).loops
    assert [loop.role for loop in halves] == [
        f"{half} half of a derivative, values and tangents" for half in ("forward", "backward")
    ]
    pushed = lambda x: jvp(lambda x: fori_loop(0, 9, double, x), (x,), (x,))[1]
    assert first(lambda x: jvp(pushed, (x,), (x,)), X).role == "values and tangents"


def test_a_while_loop() -> None:
    ref_of = new_ref

    def run(x: Any, scale: Any) -> Any:
        table = ref_of(x)

        def step(val: Any) -> Any:
            table[val["i"]] = val["y"][0]
            return {"i": val["i"] + 1, "y": val["y"] * scale}

        out = while_loop(lambda val: val["i"] < 9, step, {"i": 0, "y": x})
        return out["y"], table[...]

    loop = first(run, X, 2.0)
    assert [(o.name, o.use) for o in loop.operands] == [
        ("scale", "value, the same in all steps"),
        ("val['i']", "carried as a value"),
        ("val['y']", "carried as a value"),
        ("table", "Ref, at indices"),
    ]
    plan = loop.decision("plan")
    assert not plan.done
    assert "`scan(until=)` has one and may end early" in plan.reason
    assert "no order is needed" in loop.in_place
    dots = first(lambda x, s: jvp(lambda s: run(x, s), (s,), (s,)), X, 2.0)
    assert dots.role == "values and tangents"
    assert [o.name for o in dots.operands] == [
        *["scale", "tangent of scale"],
        *["val['i']", "val['y']", "tangent of val['y']"],
        *["table", "tangent of table"],
    ]
    lanes = first(vmap(until_large), ROWS)
    assert [o.name for o in lanes.operands] == ["going on", "val"]


def test_loops_in_the_branches_of_lanes() -> None:
    def chooses(x: Any) -> Any:
        filled = lambda: for_loop(5, lambda i, ref: ref.__setitem__(i + 1, ref[i]), x)
        return cond(x[0] > 0, filled, lambda: until_large(x))

    found = explain(vmap(chooses), ROWS)
    assert [loop.call for loop in found.loops] == ["while_loop", "for_loop"]
    assert [o.name for o in found.loops[0].operands] == ["branch taken", "going on", "val"]
    assert found.loops[1].decision("carry", "state").done


def test_names_where_a_loop_checks() -> None:
    def step(i: Any, y: Any) -> Any:
        check(y[i] > 0, "not positive")
        return y.at[i].set(y[i - 1])

    loop = first(lambda x: fori_loop(1, N, step, x), X)
    assert loop.decision("ranges", "carry").done
    assert {d.subject for d in loop.decisions} == {"carry", ""}


def test_loops_of_a_computed_number_of_steps() -> None:
    bounds = first(lambda x, n: fori_loop(0, n, double, x), X, 5)
    assert [o.name for o in bounds.operands] == ["high", "counter", "carry"]
    assert "give bounds that are Python numbers" in bounds.decision("plan").reason
    steps = first(lambda x, n: for_loop(n, written, x), X, 5)
    assert [(o.name, o.use) for o in steps.operands] == [
        ("steps", "value, the same in all steps"),
        ("counter", "carried as a value"),
        ("state", "Ref, at indices"),
    ]


def test_refs_that_a_loop_carries_have_their_names() -> None:
    def run(x: Any) -> Any:
        ref = new_ref(x)

        def step(i: Any, carry: Any) -> Any:
            held, total = carry
            held[i] = total
            return held, total + held[i + 1]

        return fori_loop(0, 3, step, (ref, 0.0))[1], for_loop(3, written, ref)[...]

    one, two = explain(run, X).loops
    assert [o.name for o in one.operands] == ["carry[0]", "carry[1]"]
    assert [o.name for o in two.operands] == ["state"]


class Size(SymbolicDim):
    """A size that is not known, or an expression of one."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text

    def __mul__(self, other: Any) -> Size:
        return self if isinstance(other, int) and other == 1 else Size(f"{self}*{other}")

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Size:
        return self if isinstance(other, int) and other == 0 else Size(f"{self}+{other}")

    __radd__ = __add__

    def __bool__(self) -> bool:
        raise TypeError("a size that is not known was asked for a bool")

    def __index__(self) -> int:
        raise TypeError("a size that is not known was asked for a number")


def test_sizes_that_are_not_known() -> None:
    shape: Any = (Size("n"), 3)
    described = ShapeDtype(shape, np.float32)
    found = explain(grad(lambda x: fori_loop(0, 5, lambda i, y: sin(y) * 2.0, x).sum()), described)
    data = json.loads(json.dumps(found.to_dict()))
    forward, _ = data["loops"]
    assert forward["operands"][0] == {
        "name": "carry",
        "type": "f32[n,3]",
        "use": "carried as a value",
    }
    assert forward["residual_bytes"] == forward["saved"][0]["bytes"] == "n*3*4*5"
    assert (data["emission"], data["copies"]) == (None, None)
    assert str(found).endswith("sizes are not known, so the program is not compiled")
    updated = explain(lambda x: fori_loop(0, 2, lambda i, y: y.at[:, i].add(1.0), x), described)
    promoted = updated.loops[0].decision("promote", "carry")
    assert (promoted.done, promoted.reason) == (False, "it stays a value: its size is not known")


def test_nothing_is_kept_where_nobody_asks() -> None:
    def run(x: Any, n: Any) -> Any:
        y = scan(twice, X, x)[0]
        lanes = vmap(in_groups)(x)
        return fori_loop(0, n, double, y), lanes

    eqns = make_jaxpr(run)(ROWS, 3).eqns
    loops = [eqn for eqn in eqns if eqn.primitive in (for_p, while_p)]
    assert len(loops) == 3
    assert all(eqn.params.record == EMPTY for eqn in loops)
