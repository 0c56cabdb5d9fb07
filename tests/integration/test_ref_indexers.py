"""Every kind of index of a Ref, read, written, swapped and added to, everywhere; NumPy is the judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import closed_call, eval_shape, grad, jit, vmap
from fiveloop.core.extend import as_value, to_array
from fiveloop.loops import cond, for_loop
from fiveloop.remat import checkpoint
from fiveloop.state import Ref, addupdate, ds, freeze, get, new_ref, swap
from fiveloop.state import set as put

HostArray = np.ndarray[Any, Any]
BASE: HostArray = np.arange(24.0).reshape(4, 3, 2) / 8
PICKS: HostArray = np.array([3, 0, 3], np.int32)
MASK: HostArray = np.array([True, False, True, True])
WIDE: HostArray = BASE[..., 0] * 8 % 3 != 0
ONE = to_array(as_value(np.int32(1)))
Run = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """An index of a run-time integer and an array of them, as the library takes it and as NumPy does."""

    library: Callable[[Any, Any], Any]
    twin: Callable[[int, HostArray], Any]
    is_outside: bool = False


def same(index: Any) -> Case:
    """An index that is known."""
    return Case(lambda i, k: index, lambda i, k: index)


CASES = {
    "integer": same(2),
    "negative": same((-1, slice(None), -2)),
    "slice": same(slice(1, 3)),
    "stride": same((slice(None, None, 2), slice(1, None))),
    "negative stride": same((slice(None, None, -1), slice(2, 0, -2))),
    "nothing": same(slice(2, 2)),
    "ellipsis": same((..., 1)),
    "all": same(...),
    "new axes": same((None, 1, None)),
    "known array": same(PICKS),
    "known arrays": same((np.array([[0], [3]]), slice(None), np.array([1, 0]))),
    "mask": same(MASK),
    "wide mask": same(WIDE),
    "mask in the middle": same((slice(1, 3), np.array([True, False, True]))),
    "integer at run time": Case(lambda i, k: i, lambda i, k: i),
    "negative at run time": Case(lambda i, k: (0, i - 3), lambda i, k: (0, i - 3)),
    "too far at run time": Case(lambda i, k: i + 9, lambda i, k: 3, is_outside=True),
    "span": Case(lambda i, k: ds(i, 2), lambda i, k: slice(i, i + 2)),
    "span that is moved": Case(
        lambda i, k: ds(i + 9, 2), lambda i, k: slice(2, 4), is_outside=True
    ),
    "span with a stride": Case(lambda i, k: (0, ds(i * 0, 2, 2)), lambda i, k: (0, [0, 2])),
    "array": Case(lambda i, k: k, lambda i, k: k),
    "array and integer": Case(lambda i, k: (k, i), lambda i, k: (k, i)),
    "array, slice and integer": Case(
        lambda i, k: (k, slice(None, None, -1), i - 1),
        lambda i, k: (k, slice(None, None, -1), i - 1),
    ),
    "span, new axis and array": Case(
        lambda i, k: (ds(i, 2), None, k // 3), lambda i, k: (slice(i, i + 2), None, k // 3)
    ),
}


def look(ref: Any, index: Any, x: Any) -> Any:
    return ref[index]


def write(ref: Any, index: Any, x: Any) -> None:
    ref[index] = x


def trade(ref: Any, index: Any, x: Any) -> Any:
    return swap(ref, index, x)


def add(ref: Any, index: Any, x: Any) -> None:
    ref[index] += x


def through_a_part(ref: Any, index: Any, x: Any) -> Any:
    """The same as `trade`, in two steps: to all of a part of a Ref."""
    part = ref.at[index]
    assert isinstance(part, Ref)
    return swap(part.at[...], ..., x)


def add_to_a_part(ref: Any, index: Any, x: Any) -> None:
    """The same as `add`."""
    part = ref.at[index]
    part[...] += x


ACTIONS = [look, write, trade, add, through_a_part, add_to_a_part]


def twin(
    action: Run, case: Case, i: int, k: HostArray, base: HostArray, x: HostArray
) -> tuple[Any, HostArray]:
    """What NumPy reads, if anything, and what its array holds in the end; a write outside is left out."""
    out, index = base.copy(), case.twin(i, k)
    old = out[index].copy()
    if case.is_outside:
        pass
    elif action in (write, trade, through_a_part):
        out[index] = x
    elif action in (add, add_to_a_part):
        np.add.at(out, index, x)
    return (old if action in (look, trade, through_a_part) else np.zeros(())), out


def value_for(case: Case) -> HostArray:
    """Something to write: equal for equal places, since which of several writes stays is not told."""
    return np.asarray(np.sin(BASE[case.twin(1, PICKS)] + 0.5))


def acted(case: Case, refs: Any, x: Any, i: Any, k: Any) -> list[Any]:
    """What each action reads, on a Ref of its own; zero if it reads nothing."""
    outs = [action(ref, case.library(i, k), x) for action, ref in zip(ACTIONS, refs, strict=True)]
    return [fnp.zeros((), np.float64) if out is None else out for out in outs]


def contents(refs: Any) -> list[Any]:
    return [ref[...] for ref in refs]


def eagerly(run: Run, bases: Any, x: Any) -> Any:
    refs = new_ref(bases)
    return run(refs, x, ONE, fnp.asarray(PICKS)), contents(refs)


def jitted(run: Run, bases: Any, x: Any) -> Any:
    refs = new_ref(bases)
    return jit(run)(refs, x, 1, PICKS), contents(refs)


def made_inside(run: Run, bases: Any, x: Any) -> Any:
    def made(bases: Any, x: Any, i: Any, k: Any) -> Any:
        refs = new_ref(bases)
        return run(refs, x, i, k), freeze(refs)

    return jit(made)(bases, x, 1, PICKS)


def in_parts(run: Run, bases: Any, x: Any) -> Any:
    """On parts of one larger Ref, passed to one jitted function."""
    large = new_ref(np.stack([np.zeros_like(BASE), *bases], axis=1))
    parts = [large.at[:, k + 1] for k in range(len(bases))]
    outs = jit(run)(parts, x, 1, PICKS)
    assert not np.any(large[:, 0])
    return outs, contents(parts)


def called(run: Run, bases: Any, x: Any) -> Any:
    refs = new_ref(bases)
    return closed_call(run)(refs, x, ONE, PICKS), contents(refs)


def checkpointed(run: Run, bases: Any, x: Any) -> Any:
    refs = new_ref(bases)
    return checkpoint(run)(refs, x, ONE, PICKS), contents(refs)


def branched(run: Run, bases: Any, x: Any) -> Any:
    refs = new_ref(bases)
    yes = lambda: run(refs, x, ONE, PICKS)
    no = lambda: run([ref.at[::-1] for ref in refs], x, ONE, PICKS)
    return jit(lambda p: cond(p, yes, no))(True), contents(refs)


def looped(run: Run, bases: Any, x: Any) -> Any:
    known = eval_shape(lambda x: run(new_ref([BASE] * len(ACTIONS)), x, ONE, fnp.asarray(PICKS)), x)

    def body(i: Any, state: Any) -> None:
        refs, outs = state
        for out, found in zip(outs, run(refs, x, i + 1, fnp.asarray(PICKS)), strict=True):
            out[...] = found

    final, outs = for_loop(1, body, (bases, [np.zeros(out.shape) for out in known]))
    return outs, final


ALWAYS = [eagerly, jitted, looped]
IN_TURN = [made_inside, in_parts, called, checkpointed, branched]
"""Contexts that only every third index is tried in: which one, differs from context to context."""

TRIED = [
    (name, context)
    for k, name in enumerate(CASES)
    for context in [*ALWAYS, *[c for j, c in enumerate(IN_TURN) if (k + j) % 3 == 0]]
]


def assert_same(got: Any, want: Any) -> None:
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-12, atol=1e-12)


def wanted(case: Case, i: int, base: HostArray, x: HostArray) -> tuple[list[Any], list[HostArray]]:
    """What NumPy reads by each action, and what its arrays hold in the end."""
    pairs = [twin(action, case, i, PICKS, base, x) for action in ACTIONS]
    return [out for out, _ in pairs], [final for _, final in pairs]


@pytest.mark.parametrize(("name", "context"), TRIED)
def test_an_index_means_what_it_means_to_numpy(name: str, context: Run) -> None:
    case = CASES[name]
    x = value_for(case)
    outs, finals = context(lambda *args: acted(case, *args), [BASE] * len(ACTIONS), x)
    want_outs, want_finals = wanted(case, 1, BASE, x)
    assert_same(outs, want_outs)
    assert_same(finals, want_finals)


@pytest.mark.parametrize(("name", "axis"), [(name, k % 3 - 1) for k, name in enumerate(CASES)])
def test_lanes_with_a_ref_each(name: str, axis: int) -> None:
    case = CASES[name]
    x = value_for(case)
    bases = [BASE, BASE + 7]
    refs = new_ref([np.stack(bases, axis)] * len(ACTIONS))
    run = vmap(lambda *args: acted(case, *args), in_axes=(axis, None, 0, 0))
    outs = jit(run)(refs, x, np.array([1, 2], np.int32), np.stack([PICKS, PICKS]))
    for lane, base in enumerate(bases):
        want_outs, want_finals = wanted(case, lane + 1, base, x)
        assert_same([out[lane] for out in outs], want_outs)
        assert_same([np.take(np.asarray(ref[...]), lane, axis) for ref in refs], want_finals)


@pytest.mark.parametrize("name", CASES)
def test_lanes_that_share_a_ref(name: str) -> None:
    case = CASES[name]
    x = value_for(case)
    refs = new_ref([BASE, BASE, BASE])
    actions = [look, add, add_to_a_part]
    places = np.array([1, 2], np.int32)

    def run(i: Any, x: Any) -> Any:
        index = case.library(i, fnp.asarray(PICKS))
        outs = [action(ref, index, x) for action, ref in zip(actions, refs, strict=True)]
        return outs[0]

    outs = vmap(run)(places, np.stack([x, x + 1]))
    final = BASE
    for lane, i in enumerate(places):
        old, _ = twin(look, case, int(i), PICKS, BASE, x)
        np.testing.assert_allclose(np.asarray(outs[lane]), old)
        _, final = twin(add, case, int(i), PICKS, final, x + lane)
    assert_same(contents(refs), [BASE, final, final])


def weighed(outs: Any) -> Any:
    """The sum of all elements, each with a weight of its own."""
    return sum(
        (out * np.cos(np.arange(float(np.prod(out.shape))) + k).reshape(out.shape)).sum()
        for k, out in enumerate(outs)
    )


def slopes(total: Callable[[HostArray], Any], at: HostArray) -> HostArray:
    """The gradient of a linear function."""
    units = np.eye(at.size).reshape(at.size, *at.shape)
    return np.array([total(at + unit) - total(at) for unit in units]).reshape(at.shape)


@pytest.mark.parametrize("context", [eagerly, made_inside, checkpointed, looped])
@pytest.mark.parametrize("name", ["stride", "new axes", "mask", "span", "array and integer"])
def test_gradients(name: str, context: Run) -> None:
    case = CASES[name]
    given = value_for(case)
    picks = (
        PICKS[:2] if name.startswith("array") else PICKS
    )  # which of two writes stays is not told

    def total(base: Any, x: Any) -> Any:
        run = lambda refs, x, i, k: acted(case, refs, x, i, k[: len(picks)])
        outs, finals = context(run, [base] * len(ACTIONS), x)
        return weighed([*outs, *finals])

    def host_total(base: HostArray, x: HostArray) -> Any:
        pairs = [twin(action, case, 1, picks, base, x) for action in ACTIONS]
        return weighed([*[out for out, _ in pairs], *[final for _, final in pairs]])

    x = given[: len(picks)] if name.startswith("array") else given
    both: Run = grad(total, (0, 1))
    got = both(BASE, x)
    want = slopes(lambda at: host_total(at, x), BASE), slopes(lambda at: host_total(BASE, at), x)
    assert_same(got, want)


@pytest.mark.parametrize("transform", [lambda f: f, jit, closed_call, checkpoint])
def test_masks_that_are_arguments(transform: Run) -> None:
    def run(ref: Any, m: Any, x: Any) -> None:
        ref[m] = 1.0
        ref[m] += x
        ref[m, 1] = x[:, 1]
        ref[m, 0] *= 3.0
        ref[m, -1] -= 0.5
        put(ref.at[1:], m[1:], 2 * x[1:])
        addupdate(ref, m, 0.25)

    ref = new_ref(BASE)
    transform(run)(ref, MASK, BASE)
    want = BASE.copy()
    want[MASK] = 1.0 + BASE[MASK]
    want[MASK, 1] = BASE[MASK, 1]
    want[MASK, 0] *= 3.0
    want[MASK, -1] -= 0.5
    want[1:][MASK[1:]] = 2 * BASE[1:][MASK[1:]]
    want[MASK] += 0.25
    np.testing.assert_allclose(np.asarray(ref[...]), want)


def test_masks_that_differ_by_lane_and_in_derivatives() -> None:
    masks = np.stack([MASK, ~MASK])

    def total(x: Any, m: Any) -> Any:
        ref = new_ref(x)
        ref[m] = ref[...] * x
        ref[m] += x
        return (ref[...] ** 2).sum()

    got = vmap(grad(total), in_axes=(None, 0))(BASE, masks)
    for lane, m in zip(got, masks, strict=True):
        y = BASE**2 + BASE
        wide = m[:, None, None]
        want = np.where(wide, 2 * y * (2 * BASE + 1), 2 * BASE)
        np.testing.assert_allclose(np.asarray(lane), want)


def test_reading_at_a_known_mask() -> None:
    ref = new_ref(BASE)
    np.testing.assert_array_equal(np.asarray(get(ref, WIDE)), BASE[WIDE])
    np.testing.assert_array_equal(np.asarray(jit(lambda: ref.at[MASK][1])()), BASE[MASK][1])
