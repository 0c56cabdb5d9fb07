"""`scan`: a loop with a carry, inputs sliced step by step and outputs stacked, written on `for`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, overload

import numpy as np

from fiveloop.core import Value, ad, arrays, errors, ir, prims, pytree, trace, transforms, util
from fiveloop.core.api import flatten
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.loops import carry as carries
from fiveloop.loops import common, record
from fiveloop.loops.common import check_one_size
from fiveloop.loops.options import How, Scan, Unroll, as_progress, check_checkpoints, check_unroll
from fiveloop.loops.primitives.for_loop import INDEX
from fiveloop.loops.progress.api import Shown, mark
from fiveloop.loops.progress.bars import shown
from fiveloop.loops.schedules.binomial import Slots
from fiveloop.loops.tracing import Loop, TracedBody, check_steps, loop_of
from fiveloop.state import AbstractRef, predicate

Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")


@overload
def scan(
    f: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X,
    length: int | Value | None = None,
    *,
    reverse: bool = False,
    unroll: Unroll = "auto",
    checkpoints: Slots | None = None,
    progress: Shown = False,
) -> tuple[Carry, Y]: ...
@overload
def scan(
    f: Callable[[Carry, None], tuple[Carry, Y]],
    init: Carry,
    xs: None = None,
    length: int | Value | None = None,
    *,
    reverse: bool = False,
    unroll: Unroll = "auto",
    checkpoints: Slots | None = None,
    progress: Shown = False,
) -> tuple[Carry, Y]: ...
@overload
def scan(
    f: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X = ...,
    length: int | Value | None = None,
    *,
    reverse: bool = False,
    unroll: Unroll = "auto",
    until: Callable[[Carry], Any],
    checkpoints: Slots | None = None,
    progress: Shown = False,
) -> tuple[Carry, Y, Value]: ...
@trace.boundary
def scan(
    f: Callable[[Carry, Any], tuple[Carry, Y]],
    init: Carry,
    xs: Any = None,
    length: int | Value | None = None,
    *,
    reverse: bool = False,
    unroll: Unroll = "auto",
    until: Callable[[Carry], Any] | None = None,
    checkpoints: Slots | None = None,
    progress: Shown = False,
) -> tuple[Carry, Y] | tuple[Carry, Y, Value]:
    """Run `carry, y = f(carry, x)` over the leading axis of `xs`; returns the final carry and the stacked ys.

    `xs` and the ys are pytrees of arrays; without `xs`, `length` is the number of steps, and x is None. `f` must
    preserve the structure, shapes and dtypes of the carry, except that a weakly typed one (a Python scalar) takes the
    dtype that `f` returns. A Ref in the carry is written in place, and `f` must return it. If a leaf of `xs` is a Ref,
    each step gets its slice as a Ref, and a write to the slice is a write to the Ref. With `reverse` the steps go from
    the last slice to the first; each y is stacked at the index of its x. `unroll` steps are compiled into one iteration
    of the loop; all of them if True or 0. With `checkpoints=k` reverse mode saves at most k carries at a time, or those
    of a schedule, and recomputes the others; they stay in the memory of the device, also under a policy that offloads.
    Without, it saves the residuals of each step. With `progress` (True, a label, or a `Progress`) a bar shows the
    progress of the loop.

    With `until`, the loop ends after the first step for whose carry `until` is true, and the result is `(carry, ys,
    steps)` with the number of steps that were run; the ys of the other steps are zeros. The loop is differentiable
    like any other. Under `vmap` each lane ends by itself, and the loop ends with the last lane.

    `length` may be an array, traced or not, and less than the number of slices of `xs`: the loop uses the first
    `length` slices, with `reverse` from the last of these down, and the ys of the other slices are zeros. The length
    is clamped to between zero and the number of slices.

    Raises TypeError if `f` returns no pair or a carry of another type, with the leaf's path and both types, or if
    `until` returns no bool scalar; ValueError if leading axes differ.

    >>> import fiveloop.numpy as fnp
    >>> scan(lambda total, x: (total + x, total), 0.0, fnp.arange(4.0))
    (Array(6., dtype=float32), Array([0., 0., 1., 3.], dtype=float32))
    >>> scan(lambda x, _: (2 * x, x), 1, length=6, until=lambda x: x > 5)
    (Array(8, dtype=int32), Array([1, 2, 4, 0, 0, 0], dtype=int32), Array(3, dtype=int32))
    """
    flatten.check_callable("scan: f", f)
    if until is not None:
        flatten.check_callable("scan: until", until)
    slices, _ = flatten.flatten_values(xs, "scan: xs")
    count = computed_length(length, xs, until is not None)
    steps = _steps(xs, slices, length if count is None else None)
    turn = check_unroll("scan", unroll, steps)
    bar = as_progress("scan", progress)
    saved = check_checkpoints("scan", checkpoints, steps)
    how = How(common.as_flag("scan: reverse", reverse), turn, until, bar, checkpoints=saved)
    return scan_of(Scan("scan", _WithoutIndex(f), init, xs, steps, how, count))


@dataclass(frozen=True)
class _WithoutIndex:
    """A step that does not ask for the counter."""

    f: Callable[[Any, Any], tuple[Any, Any]]

    def __call__(self, i: Value, carry: Any, x: Any) -> tuple[Any, Any]:
        return flatten.call_user("scan: the function", "(carry, x)", self.f, carry, x)  # type: ignore[no-any-return]  # checked by the step

    @property
    def __wrapped__(self) -> Callable[[Any, Any], tuple[Any, Any]]:
        return self.f


def scan_of(asked: Scan) -> tuple[Any, ...]:
    """`indexed_scan` of a carry and inputs that may hold Refs: the step closes over them."""
    what, f, how = asked.what, asked.f, asked.how
    refs = common.carried_refs(f"{what}: the carry", asked.init)
    sliced = common.carried_refs(f"{what}: xs", asked.xs)
    if sliced is not None:
        if refs is not None:
            names = [*refs.names(), *sliced.names()]
            flatten.check_mutable(
                dict(names), [x for _, x in names], lambda path: f"{what}: {path[0].key}"
            )
        f = _over_slices(f, sliced)
        asked = replace(asked, f=f, xs=sliced.values)
    if refs is None:
        return indexed_scan(asked)
    given = refs.step(f, 1)

    @wraps(f)
    def step(i: Value, carry: Any, x: Any) -> Any:
        out = given(i, carry, x)
        if not carries.is_pair(out):
            return out  # which is refused
        return refs.kept(out[0], f), out[1]

    if how.until is not None:
        how = replace(how, until=refs.step(how.until, 0))
    final, *rest = indexed_scan(replace(asked, f=step, init=refs.values, how=how))
    return (refs.whole(final), *rest)


def _over_slices(f: Callable[[Value, Any, Any], Any], sliced: common.CarriedRefs) -> Any:
    """A step that takes slices of Refs, as a step that takes Refs and reads the slices."""

    @wraps(f)
    def step(i: Value, carry: Any, x: Any) -> Any:
        return f(i, carry, sliced.whole(x, i))

    return step


def _scan_as_python(asked: Scan) -> tuple[Any, ...]:
    """As `indexed_scan`; traced without steps, for the types of the outputs, and if lanes end for themselves."""
    count = asked.count
    is_known = count is None or isinstance(count, arrays.Concrete)
    is_plain = asked.how.until is None and count is None
    is_python = is_known if trace.branches_as_python() else is_plain
    taken = int(count) if isinstance(count, arrays.Concrete) else asked.steps
    return _run_steps(asked) if taken and is_python else traced_scan(asked)


def _run_steps(asked: Scan) -> tuple[Any, ...]:
    """As `indexed_scan`, step by step; of one at least."""
    what, f, how, steps, count = asked.what, asked.f, asked.how, asked.steps, asked.count
    carry, carry_tree = flatten.flatten_values(asked.init, f"{what}: {how.init}")
    slices, xs_tree = flatten.flatten_values(asked.xs, f"{what}: xs")
    rows: list[list[Value]] = []
    ys_tree: Any = None
    with shown(how.progress, steps) as step_done:
        for i in carries.counters(steps if count is None else int(count), how.reverse):
            x = pytree.tree_unflatten(xs_tree, [x[i] for x in slices])
            out = f(i, pytree.tree_unflatten(carry_tree, [flatten.as_result(c) for c in carry]), x)
            carries.check_pair(what, f, out)
            carry = carries.next_carry(what, "carry", f, carry, carry_tree, out[0])
            ys, ys_tree = flatten.flatten_values(out[1], f"{what}: y")
            common.check_values(f"{what}: y", out[1], ys)
            rows.append(ys)
            step_done()
            if how.until is not None:
                if bool(common.condition(f"{what}: until", "(carry)", how.until, out[0])):
                    break
    taken = len(rows)
    empty = [[transforms.zeros_of(y.aval) for y in rows[-1]]] * (steps - taken)
    rows = [*empty, *rows] if count is not None and how.reverse else [*rows, *empty]
    columns = [c[::-1] if how.reverse else c for c in zip(*rows, strict=True)]
    stacked = [prims.stack([common.strong(y) for y in column]) for column in columns]
    final = [common.strong(x) for x in carry]
    told = [] if how.until is None else [flatten.as_result(arrays.as_value(np.int32(taken)))]
    return pytree.tree_unflatten(carry_tree, final), pytree.tree_unflatten(ys_tree, stacked), *told


def traced_scan(asked: Scan) -> tuple[Any, ...]:
    """As `indexed_scan`, as one loop."""
    what, f, how, steps, count = asked.what, asked.f, asked.how, asked.steps, asked.count
    carry, carry_tree = flatten.flatten_values(asked.init, f"{what}: {how.init}")
    slices, xs_tree = flatten.flatten_values(asked.xs, f"{what}: xs")
    given = tuple([x.aval for x in carry])
    x_avals = tuple([x.aval.strong() for x in slices])
    step = _Step(what, f, carry_tree, xs_tree, how)
    plan = trace.traced_once(
        (what, carry_tree, xs_tree, given, x_avals, steps, count is None, replace(how, until=None)),
        [f] if how.until is None else [f, how.until],
        lambda: _plan(step, given, x_avals, steps, count is not None),
    )
    carry = [common.as_type(x, a) for x, a in zip(carry, plan.carry, strict=True)]
    stacks = [transforms.zeros_of(a) for a in plan.ys]
    stop = (
        []
        if how.until is None
        else [transforms.zeros_of(predicate.PREDICATE), transforms.zeros_of(INDEX)]
    )
    if plan.loop is not None:
        counts = [] if count is None else [count]
        finals = plan.loop.run([*carry, *slices, *stacks, *stop], *counts)
        carry, _, stacks, stop = util.split_list(finals, [len(carry), len(slices), len(stacks)])
    final = [common.strong(x) for x in carry]
    return (
        pytree.tree_unflatten(carry_tree, final),
        pytree.tree_unflatten(plan.ys_tree, stacks),
        *map(flatten.as_result, stop[1:]),
    )


indexed_scan = trace.python_form(_scan_as_python)(traced_scan)
"""The final carry and the stacked outputs; with `until` the number of steps taken, too."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A traced scan: the types of its carry and of its stacked outputs, and the loop, if there are steps."""

    carry: ir.Avals
    ys: ir.Avals
    ys_tree: Any
    loop: Loop | None


def _plan(step: _Step, given: ir.Avals, x_avals: ir.Avals, steps: int, counted: bool) -> _Plan:
    staged, carry, ys_tree = _trace(step, given, [a.unbatched(0) for a in x_avals])
    num_outs = len(staged.jaxpr.outvars) - step.has_end
    ys = [a.strong().batched(steps) for a in staged.jaxpr.out_avals[len(carry) : num_outs]]
    if not steps:
        return _Plan(carry, ys, ys_tree, None)
    body = _as_for_body(step, staged, carry, x_avals, ys, step.has_end)
    flag = -2 if step.has_end else None
    loop = loop_of(steps, body, step.how, _state_names(step), flag=flag, counted=counted)
    return _Plan(carry, ys, ys_tree, loop)


def _state_names(step: _Step) -> list[str]:
    """What the states of the loop are called: those of the carry, the inputs and the outputs."""
    trees = (("carry", step.carry_tree), ("xs", step.xs_tree), ("ys", step.ys_tree))
    names = [f"{name}{path}" for name, tree in trees for path in pytree.leaf_paths(tree)]
    return [*names, *["ended", "steps taken"] * step.has_end]


def _as_for_body(
    step: _Step, staged: trace.Staged, carry: ir.Avals, xs: ir.Avals, ys: ir.Avals, has_end: bool
) -> TracedBody:
    """The body of the loop: read the carry and the slices, run the step, write the carry and the outputs.

    jaxpr  : [*consts, i, *carry, *x, *refs]                                    -> [*carry, *y, *end]
    body   : [i, *consts, *refs, *carry refs, *xs refs, *ys refs, *end refs]    -> []

    The end refs are those of the flag and of the number of steps taken.
    """
    closures = common.share_captured([staged])
    (jaxpr,), num_consts, num_carry = closures.jaxprs, len(closures.consts), len(carry)
    sizes = [num_consts, len(closures.refs), num_carry, len(xs), len(ys)]
    handed = enumerate(common.handed_through(jaxpr)[:num_carry], 1 + num_consts)
    same = [k == n for n, k in handed]

    def run(i: Value, *args: Value) -> list[Value]:
        consts, refs, carried, inputs, outputs, end = util.split_list(args, sizes)
        given = [*[ref[...] for ref in carried], *[ref[i] for ref in inputs]]
        outs = transforms.eval_jaxpr(jaxpr, [*consts, i, *given, *refs])
        for ref, x, is_same in zip(carried, outs[:num_carry], same, strict=True):
            if not is_same:
                ref[...] = x
        for ref, y in zip(outputs, outs[num_carry : num_carry + len(ys)], strict=True):
            ref[i] = y
        if end:
            flag, count = end
            flag[...] = outs[-1]
            count[...] = count[...] + 1
        return []

    avals = [
        *[x.aval for x in (*closures.consts, *closures.refs)],
        *map(AbstractRef, [*carry, *xs, *ys, *[predicate.PREDICATE, INDEX] * has_end]),
    ]
    body = trace.stage_closed(run, [INDEX, *avals], jaxpr.name)
    return TracedBody(body, closures.consts, closures.refs, step.f, record.Called(step.what))


@dataclass(slots=True)
class _Step:
    """The user's function on leaves; what it returned last."""

    what: str
    f: Callable[[Value, Any, Any], Any]
    carry_tree: pytree.TreeDef
    xs_tree: pytree.TreeDef
    how: How
    ys_tree: Any = None

    @property
    def has_end(self) -> bool:
        """Whether a condition ends the loop; it is the last result."""
        return self.how.until is not None

    def __call__(self, i: Value, *leaves: Value) -> list[Any]:
        num_carry = self.carry_tree.num_leaves
        carry, x = (
            pytree.tree_unflatten(self.carry_tree, leaves[:num_carry]),
            pytree.tree_unflatten(self.xs_tree, leaves[num_carry:]),
        )
        if self.how.progress is not None:
            mark(self.how.progress)
        out = self.f(i, carry, x)
        carries.check_pair(self.what, self.f, out)
        out_carry, ys = out
        carry_leaves, tree = flatten.flatten_values(out_carry, f"{self.what}: the carry returned")
        common.check_values(f"{self.what}: the carry returned", out_carry, carry_leaves)
        if tree != self.carry_tree:
            given = leaves[:num_carry]
            raise carries.changed_structure(self.what, self.f, self.carry_tree, given, out_carry)
        y_leaves, self.ys_tree = flatten.flatten_values(ys, f"{self.what}: y")
        common.check_values(f"{self.what}: y", ys, y_leaves)
        kept = [_weak_as(x, c.aval) for x, c in zip(carry_leaves, leaves[:num_carry], strict=True)]
        until = self.how.until
        end = [] if until is None else self._end(until, carry_leaves)
        return [*kept, *y_leaves, *end]

    def _end(self, until: Callable[[Any], Any], carry: ad.Values) -> list[Value]:
        """Whether a carry ends the loop."""
        what, avals = f"{self.what}: until", [x.aval for x in carry]
        test = common.staged_condition(what, "(carry)", until, self.carry_tree, avals)
        return transforms.eval_jaxpr(test.jaxpr, [*test.captured, *carry])


def _weak_as(x: Value, aval: ir.Aval) -> Value:
    """A weak number in the type of the carry that it replaces, if it yields to that type."""
    yields = x.aval.weak_type and common.grown(x.aval, aval).strong() is aval.strong()
    return prims.convert(x, aval.dtype, aval.weak_type) if yields else x


def _trace(
    step: _Step, given: ir.Avals, x_avals: ir.Avals
) -> tuple[trace.Staged, list[ir.Aval], Any]:
    """Trace a step until weakly typed carries have found their types."""
    avals = list(given)
    name = common.body_name(step.f)
    while True:
        staged = trace.stage(step, [INDEX, *avals, *x_avals], name, step.f)
        outs = staged.jaxpr.out_avals[: len(avals)]
        if all(a.strong() is out.strong() for a, out in zip(avals, outs, strict=True)):
            return staged, avals, step.ys_tree
        grown = list(map(common.grown, avals, outs))
        if all(a is g for a, g in zip(avals, grown, strict=True)):
            made = common.made_in(staged.jaxpr)
            tree, init = step.carry_tree, step.how.init
            raise carries.changed_types(step.what, step.f, tree, avals, outs, made, init)
        avals = grown


def _steps(xs: Any, slices: ad.Values, length: Any) -> int:
    sizes = leading_axes("scan", xs, slices)
    if length is not None:
        sizes["length"] = check_steps("scan: length", length)
    if not sizes:
        raise ValueError("scan: without xs, length must say how many steps there are")
    return common_length("scan", sizes)


def computed_length(length: Any, xs: Any, ends: bool) -> Value | None:
    """The number of steps if it is computed, None if it is known; it is at most as many as there are slices.

    `ends` says that the loop has a condition that ends it.
    """
    sizes = [x.shape[0] for x in pytree.tree_leaves(xs) if getattr(x, "shape", ())]
    if not isinstance(length, Value) or not (sizes or isinstance(length, trace.Tracer)):
        return None
    if length.ndim or length.dtype.kind not in "iu":
        raise TypeError(f"scan: length must be an integer scalar, got {length.aval}")
    if ends:
        raise TypeError(
            f"scan: length must be an integer known while tracing where `until` is given, got {length!r}; "
            f"{errors.STATIC}"
        )
    if not sizes:
        raise TypeError(
            f"scan: without xs, length must be an integer known while tracing, which says how long the ys are, got "
            f"{length!r}; {errors.STATIC}, or use `fori_loop`"
        )
    return prims.convert(prims.clamp(0, prims.convert(length, np.int64), min(sizes)), np.int32)


def leading_axes(what: str, xs: Any, leaves: ad.Values) -> dict[str, int]:
    """The length of the first axis of each leaf, by its name; one without axes is refused."""
    sizes: dict[str, int] = {}
    for x, (path, _) in zip(leaves, pytree.tree_flatten_with_path(xs)[0], strict=True):
        if not x.ndim:
            raise ValueError(
                f"{what}: xs{pytree.keystr(path)} has no axis to {what} over, its type is {x.aval}"
            )
        sizes[f"xs{pytree.keystr(path)}"] = x.shape[0]
    return sizes


def common_length(what: str, sizes: Mapping[str, int]) -> int:
    """The number that all of them name."""
    check_one_size(f"{what}: leading axes", sizes)
    return check_steps(f"{what}: the number of steps", next(iter(sizes.values())))
