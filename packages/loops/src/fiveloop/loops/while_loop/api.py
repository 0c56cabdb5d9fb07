"""The public function `while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from fiveloop.core import Jaxpr, TreeDef, Value, ad, arrays, ir, pytree, trace
from fiveloop.core.api import flatten
from fiveloop.core.closed_call import ClosedCallParams, closed_call_p
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.util import T
from fiveloop.loops import common, names, options
from fiveloop.loops.carry import changed_structure, next_carry, to_keep_types
from fiveloop.loops.options import Limits, as_progress, check_checkpoints
from fiveloop.loops.primitives.while_loop import WhileParams, while_p
from fiveloop.loops.progress.api import Progress, Shown, mark
from fiveloop.loops.progress.bars import shown
from fiveloop.loops.record import EMPTY, MACHINERY, Called, Decision, Record
from fiveloop.loops.schedules.binomial import Slots
from fiveloop.loops.tracing import Loop, check_steps
from fiveloop.loops.while_loop import bounded
from fiveloop.loops.while_loop.handler import asking_last

STEP = "plan"


@dataclass(frozen=True, slots=True)
class Written:
    """How a user has written a `while`: as which loop, and the names of what it carries, and of some of what it holds.

    `advice` says what would be planned in its place.
    """

    call: str
    carry: Callable[[TreeDef], Sequence[str]]
    advice: str
    held: Callable[[], object] | None = None

    def record(
        self, funs: Sequence[object], tree: TreeDef, closures: common.Closures, body: Jaxpr
    ) -> Record:
        """The record of the loop, if it is asked for; the inputs of the body get names."""
        if not self.call:
            return MACHINERY
        if not options.current_planning().tell:
            return EMPTY
        holding = [self.held, *funs] if self.held is not None else funs
        first, last = (names.closure_names(holding, xs) for xs in (closures.consts, closures.refs))
        told = Decision(STEP, "", False, f"{UNKNOWN}; {self.advice}", trace.current_source())
        names.name_inputs(body.invars, [*first, *self.carry(tree), *last])
        return Record(Called(self.call), tells=True, decisions=(told,))


UNKNOWN = "only `promote` needs no number of steps"
AS_WHILE = Written(
    "while_loop",
    lambda tree: [f"val{path}" for path in pytree.leaf_paths(tree)],
    "`scan(until=)` has one and may end early",
)
UNTOLD = Written("", lambda tree: (), "")
"""A loop that the library makes for itself."""


@dataclass(frozen=True, slots=True)
class While:
    """What a `while` runs, of a value without Refs; `written` is how the user has written it."""

    cond: Callable[[Any], Any]
    body: Callable[[Any], Any]
    init: Any
    bar: Progress | None = None
    written: Written = AS_WHILE
    limits: Limits = Limits()


def _while_as_python(asked: While) -> Any:
    """As `while_loop`, on a condition that is known; where lanes may differ, it is traced."""
    if not trace.branches_as_python():
        return traced_while(asked)
    leaves, tree = flatten.flatten_values(asked.init, "while_loop: init_val")
    with shown(asked.bar) as step_done:
        for k in count():
            val = pytree.tree_unflatten(tree, [flatten.as_result(x) for x in leaves])
            if not bool(common.condition("while_loop: cond_fun", "(val)", asked.cond, val)):
                break
            if k == asked.limits.steps:
                bounded.tell_of_bound(arrays.as_value(np.bool_(False)), k)
                break
            out = flatten.call_user("while_loop: body_fun", "(val)", asked.body, val)
            leaves = next_carry("while_loop", "val", asked.body, leaves, tree, out)
            step_done()
    return val


@trace.boundary
def while_loop(
    cond_fun: Callable[[T], Any],
    body_fun: Callable[[T], T],
    init_val: T,
    *,
    max_steps: int | None = None,
    checkpoints: Slots | None = None,
    progress: Shown = False,
) -> T:
    """Run `val = body_fun(val)` as long as `cond_fun(val)` is true, and return the final `val`.

    The value is a pytree of arrays. `body_fun` must preserve its structure, shapes and dtypes, except that a weakly
    typed leaf (a Python number) takes the dtype that `body_fun` returns. `cond_fun` must return a bool scalar. Refs
    may be closed over or part of the value: `body_fun` may read and write them, and `cond_fun` may read them. Under
    `vmap` the loop runs until the last lane has ended; a lane that has ended keeps its value, and changes no Ref.

    Forward and reverse mode work, to any order. Reverse mode saves a few states and recomputes the others: at most
    `checkpoints` states, or those of a schedule, or as many as fit into a default amount of memory, which the logger
    `fiveloop` reports once; they stay in the memory of the device, also under a policy that offloads. With `max_steps`
    the loop stops after at most `max_steps` steps; if the condition is still true then, the logger `fiveloop` warns,
    and in a checked program (`checked`, `checkify`) that is an error. Reverse mode then saves the residuals of each
    step, in arrays for `max_steps` steps, unless `checkpoints` is given.

    With `progress` (True, a label, or a `Progress`) a counter shows the number of steps.

    Raises TypeError if `cond_fun` returns no bool scalar or writes to a Ref, or if `body_fun` changes a type, with
    the leaf's path and both types; ValueError if `max_steps` is negative, or `checkpoints` is not positive.

    >>> while_loop(lambda x: x < 100, lambda x: x * 2, 3)
    Array(192, dtype=int32, weak_type=True)
    >>> from fiveloop.core import grad
    >>> grad(lambda x: while_loop(lambda x: x < 100, lambda x: x * x, x, max_steps=10))(2.0)
    Array(1024., dtype=float32)
    """
    flatten.check_callable("while_loop: cond_fun", cond_fun)
    flatten.check_callable("while_loop: body_fun", body_fun)
    bar = as_progress("while_loop", progress)
    most = None if max_steps is None else check_steps("while_loop: max_steps", max_steps)
    limits = Limits(most, check_checkpoints("while_loop", checkpoints, most))
    refs = common.carried_refs("while_loop: val", init_val)
    if refs is None:
        return while_of(While(cond_fun, body_fun, init_val, bar, limits=limits))  # type: ignore[no-any-return]
    cond, step = refs.step(cond_fun, 0), refs.carrying(body_fun, 0)
    return refs.whole(while_of(While(cond, step, refs.values, bar, limits=limits)))  # type: ignore[no-any-return]


def traced_while(asked: While) -> Any:
    """As `while_loop`, of a value without Refs, as one loop."""
    limits, written = asked.limits, asked.written
    init, tree = flatten.flatten_values(asked.init, "while_loop: init_val")
    given = tuple([x.aval for x in init])
    plan = trace.traced_once(
        (written.call, tree, given, asked.bar, limits),
        [asked.cond, asked.body],
        lambda: _plan(asked, _Body(asked.body, tree, asked.bar), given),
    )
    carry = [common.as_type(x, a) for x, a in zip(init, plan.avals, strict=True)]
    if limits.steps is not None:
        outs = bounded.run_bounded(plan.loop, plan.closures, carry, limits.steps, plan.counter)
    else:
        _, body = plan.closures.jaxprs
        record = written.record([asked.body, asked.cond], tree, plan.closures, body)
        outs = _bind(plan.closures, carry, limits, record)
    first = len(plan.closures.consts)
    handed = enumerate(common.handed_through(plan.closures.jaxprs[1]), first)
    outs = [
        flatten.as_result(x) if k == n else y
        for x, y, (n, k) in zip(carry, outs, handed, strict=True)
    ]
    return pytree.tree_unflatten(tree, outs)


while_of = trace.python_form(_while_as_python)(traced_while)
"""As `while_loop`, of a value without Refs."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A traced loop: the condition and the body : [*consts, *carry, *refs], and the types of the carry.

    `loop` is what takes its place if it has a bound, and is not bounded by zero; the `counter` tells how many steps
    that takes, if it is known before.
    """

    closures: common.Closures
    avals: ir.Avals
    loop: Loop | None
    counter: bounded.Counter | None


def _plan(asked: While, body_fun: _Body, given: ir.Avals) -> _Plan:
    staged, avals = body_fun.trace(given)
    test = common.staged_condition(
        "while_loop: cond_fun", "(val)", asked.cond, body_fun.tree, avals
    )
    closures = common.share_captured([test, staged])
    cond, traced = closures.jaxprs
    closures.jaxprs[1] = body = common.with_results(traced, avals)
    limits, loop, counter = asked.limits, None, None
    if limits.steps:
        counter = bounded.counter_of(cond, body, len(closures.consts))
        names = asked.written.carry(body_fun.tree)
        loop = bounded.bounded_loop(closures, limits, asked.body, names, counter)
    return _Plan(closures, avals, loop, counter)


def _bind(
    closures: common.Closures, carry: ad.Values, limits: Limits, record: Record
) -> list[Value]:
    """The loop; a condition that calls Python is called before it and after each step."""
    cond, body = closures.jaxprs
    how = (options.current_planning().promote, limits.slots, limits.counted)
    params = WhileParams(cond, body, len(closures.consts), *how, record=record)
    operands = [*closures.consts, *carry, *closures.refs]
    if all(e.droppable for e in cond.effects):
        return trace.bind(while_p, *operands, params=params)
    (pred,) = trace.bind(closed_call_p, *operands, params=ClosedCallParams(cond))
    operands.insert(params.num_consts, pred)
    params = replace(asking_last(params), record=record)  # each call has its own
    return trace.bind(while_p, *operands, params=params)[1:]


class _Body:
    """The user's body on leaves."""

    def __init__(self, fun: Callable[[Any], Any], tree: TreeDef, bar: Progress | None) -> None:
        self.fun = fun
        self.tree = tree
        self.bar = bar

    def trace(self, avals: ir.Avals) -> tuple[trace.Staged, list[ir.Aval]]:
        """Trace it, again until weak leaves have found the types that they keep; with the types of the leaves."""
        while True:
            staged = trace.stage(self._run, avals, common.body_name(self.fun), self.fun)
            outs = staged.jaxpr.out_avals
            if not all(map(common.keeps_type, avals, outs)):
                raise self._mismatch(avals, outs, common.made_in(staged.jaxpr))
            grown = list(map(common.grown, avals, outs))
            if all(g is a for g, a in zip(grown, avals, strict=True)):
                return staged, grown
            avals = grown

    def _run(self, *leaves: Value) -> list[Value]:
        if self.bar is not None:
            mark(self.bar)
        val = pytree.tree_unflatten(self.tree, leaves)
        out = flatten.call_user("while_loop: body_fun", "(val)", self.fun, val)
        where = f"while_loop: the result of {ir.function_source(self.fun)}, at val"
        outs, tree = flatten.flatten_values(out, where)
        common.check_values(where, out, outs)
        if tree != self.tree:
            raise changed_structure("while_loop", self.fun, self.tree, leaves, out, "val")
        return outs

    def _mismatch(self, given: ir.Avals, outs: ir.Avals, made: Sequence[str]) -> TypeError:
        paths = pytree.leaf_paths(self.tree)
        wrong = [
            f"val{path} goes in as {a} and comes out as {b}{where}"
            for path, a, b, where in zip(paths, given, outs, made, strict=True)
            if not common.keeps_type(a, b)
        ]
        return TypeError(
            f"while_loop: the body must keep the types of the value, but in `{ir.function_source(self.fun)}` "
            f"{'; '.join(wrong)}; {to_keep_types(given, outs, 'init_val', 'body')}"
        )
