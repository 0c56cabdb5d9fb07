"""Batching: a trace of values with one more axis, and the batched jaxpr.

Where the axis is that of directions of a derivative, the primal computation and its effects run once for all of them.
An equation that has such an effect, and of which only some operands depend on the direction, is cut in two by its own
split rule: what does not depend on it runs once, with the effects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, ClassVar

from fiveloop.core import ad, arrays, ir, prims, rules, util
from fiveloop.core.arrays import Value
from fiveloop.core.trace import modes, stage_closed, tracer
from fiveloop.core.transforms import policies
from fiveloop.core.transforms.eval import eval_jaxpr, run_halves

BatchDim = int | None


class Same(int):
    """The place of a batch axis along which all lanes are known to hold the same."""


SAME = Same(0)


class BatchTracer(tracer.Tracer):
    """A value whose axis `dim` is the batch."""

    __slots__ = ("_aval", "dim", "value")
    value: Value
    dim: int
    _aval: ir.Aval | None

    def __init__(
        self, trace: tracer.Trace, value: Value, dim: int, source: tracer.Origin = None
    ) -> None:
        super().__init__(trace, source)
        _set_value(self, value)
        _set_dim(self, dim)
        _set_aval(self, None)

    @property
    def aval(self) -> ir.Aval:
        known = self._aval
        if known is None:
            known = self.value.aval.unbatched(self.dim)
            _set_aval(self, known)
        return known


_set_value, _set_dim, _set_aval = (
    arrays.setter(BatchTracer, name) for name in ("value", "dim", "_aval")
)


class BatchTrace(tracer.Trace):
    """Computes a whole batch at once, by the batch rules, under the parent trace.

    It may bind a named axis of the user's, and `batch_axis`. What goes over one of them is for the batch rules even
    if no operand is batched. They find it in the params as `batch_axis(size)`, whatever its name, and `batch_jaxpr`
    finds it in the jaxprs that they hand on.

    What is done once for each lane (`Effect.each_lane`) is for the batch rules too, unless it is done to a Ref of
    which each lane has its own: one with a batch axis, or one of `own`, whose contents are the same in all lanes.
    """

    parent: tracer.Trace
    decides: ClassVar[bool] = False

    def __init__(
        self,
        parent: tracer.Trace,
        size: int,
        fun: object = None,
        axis: ir.NamedAxis | None = None,
        *,
        binds_batch: bool = False,
        kin: BatchTrace | None = None,
    ) -> None:
        super().__init__(parent, fun)
        self.size = size
        self.axis = axis
        self.own: frozenset[int] = frozenset()
        self._batch_axis = ir.batch_axis(size)
        bound = [axis] if axis is not None else []
        self._bound = frozenset([*bound, self._batch_axis] if binds_batch else bound)
        # Traces of one tag are one batch: a rule runs under a kin of the trace that called it, and may close
        # over values of that one.
        self.tag: object = self if kin is None else kin.tag
        self.split: frozenset[int] = frozenset()

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        values: list[Value] = []
        places: list[BatchDim] = []
        for x in args:
            value, dim = self.pair(x)
            values.append(value)
            places.append(dim)
        given = dims = tuple(places)
        over = self._bound and self._bound & ir.axes_in(params)
        if prim.holds_functions:
            params = params.under(self)
        if some_same := Same in map(type, dims):
            dims = tuple([d if d is None else int(d) for d in dims])
        shared = not over and dims.count(None) == len(dims)
        if shared and not self._once_a_lane(prim, values, params):
            return self.hand_on(prim, values, params)
        source = tracer.current_source()
        with tracer.use_trace(self.parent, source):
            if over:
                params = ir.params_with_axes(params, dict.fromkeys(over, self._batch_axis))
            elif self.size == 0 and rules.is_pure(prim):
                return self._of_no_lanes(prim, values, dims, params)
            outs, out_dims = rules.batch_rules[prim](self.size, values, dims, params)
        if over or some_same:
            out_dims = self._marked(prim, args, given, params, out_dims)
        return [self.wrap(x, d, source) for x, d in zip(outs, out_dims, strict=True)]

    def _marked(
        self,
        prim: ir.Primitive[Any],
        args: ad.Values,
        dims: Sequence[BatchDim],
        params: Any,
        out_dims: list[BatchDim],
    ) -> list[BatchDim]:
        """The batch axes of results, those marked along which all lanes hold the same."""
        if not rules.plain_bodies(prim, params):
            # What goes over the axis is known from the batch rule, and what functions give when they have run.
            if prim.holds_functions or self._batch_axis in ir.axes_in(params):
                return out_dims
        ins = [ir.Var(x.aval) for x in args]
        eqn = rules.new_eqn(prim, ins, params)
        seeds = [v for v, d in zip(ins, dims, strict=True) if type(d) is int]
        differ = differing_vars(ir.Jaxpr(ins, [eqn], eqn.outvars), self.size, seeds)
        return [
            d if d is None or v in differ or v.aval.accumulates else Same(d)
            for v, d in zip(eqn.outvars, out_dims, strict=True)
        ]

    def _of_no_lanes(
        self, prim: ir.Primitive[Any], values: ad.Values, dims: Sequence[BatchDim], params: Any
    ) -> list[Value]:
        """The results of no lanes, whose types are all that there is to know of them."""
        pairs = zip(values, dims, strict=True)
        avals = [x.aval if d is None else x.aval.unbatched(d) for x, d in pairs]
        outs, _ = rules.abstract_eval_rules[prim](avals, params)
        return [self.wrap(prims.zeros_of(a.batched(0)), 0, tracer.current_source()) for a in outs]

    def _once_a_lane(self, prim: ir.Primitive[Any], values: ad.Values, params: Any) -> bool:
        """Whether an operation on what the lanes share is for the batch rules nevertheless."""
        if prim.creates_state or (prim.holds_functions and params.may_hold_traced):
            return True
        if rules.is_pure(prim):
            return False
        effects = rules.abstract_eval_rules[prim]([x.aval for x in values], params)[1]
        return any(
            not isinstance(e, ir.PositionalEffect) or id(values[e.position]) not in self.own
            for e in effects
            if e.each_lane
        )

    def pair(self, x: Value) -> tuple[Value, BatchDim]:
        """The value and batch axis; one that is not of this trace is the same for the whole batch."""
        if isinstance(x, BatchTracer) and (x._trace is self or self.knows(x._trace)):
            return x.value, x.dim
        if id(x) in self.split:
            prims.bad_value(
                f"vmap of {ir.function_source(self.fun)}: it closes over {x.aval}, which is also "
                f"an argument, an element "
                "for each lane; pass it, or close over it"
            )
        return x, None

    def knows(self, owner: tracer.Trace) -> bool:
        """Its own values, and those of its kin."""
        return owner is self or (isinstance(owner, BatchTrace) and owner.tag is self.tag)

    def wrap(self, value: Value, dim: BatchDim, source: tracer.Origin = tracer.ARGUMENT) -> Value:
        """A value of this trace; an unbatched value stays as it is."""
        return value if dim is None else BatchTracer(self, value, dim, source)


@tracer.leak_checked
def batch_flat(
    fun: ad.Function,
    size: int,
    values: ad.Values,
    dims: Sequence[BatchDim],
    user_fun: object = None,
    axis: ir.NamedAxis | None = None,
    kin: BatchTrace | None = None,
    *,
    for_rule: bool = True,
) -> tuple[list[Value], list[BatchDim]]:
    """The outputs of a flat function over a batch, and their batch axes.

    What the function does over `axis` is done over this batch; for batch rules (`for_rule`), so is what it does over
    `batch_axis(size)`. If the function of a rule calls functions of the user, which know that axis by its name, `axis`
    is that of the trace that has called the rule, or `kin` is this trace itself: then they may also close over its
    values.
    """
    axis = axis if kin is None else kin.axis
    outer, named = tracer.current_trace(), user_fun or fun
    trace = BatchTrace(outer, size, named, axis, binds_batch=for_rule, kin=kin)
    return run_batch(trace, fun, values, dims)


def run_batch(
    trace: BatchTrace, fun: ad.Function, values: ad.Values, dims: Sequence[BatchDim]
) -> tuple[list[Value], list[BatchDim]]:
    """The outputs of a flat function under a trace, which ends with it, and their batch axes."""
    given = list(zip(values, dims, strict=True))
    # Mutable values that are batched are to be reached through the arguments alone.
    trace.split = frozenset(id(x) for x, d in given if d is not None and x.aval.accumulates)
    args = [trace.wrap(x, d) for x, d in given]
    with tracer.running(trace):
        outs = [arrays.as_value(out, "a result") for out in fun(*args)]
        pairs = [trace.pair(out) for out in outs]
    return [x for x, _ in pairs], [d for _, d in pairs]


def move_batch(value: Value, size: int, dim: BatchDim, target: int = 0) -> Value:
    """The value with its batch axis at `target`; a value without one is broadcast.

    >>> (
    ...     move_batch(as_value(np.ones((2, 5))), 5, 1).shape,
    ...     move_batch(as_value(np.ones(2)), 5, None).shape,
    ... )
    ((5, 2), (5, 2))
    """
    return prims.bdim_at(value, dim, size, target)


def in_front(
    size: int,
    values: ad.Values,
    dims: Sequence[BatchDim],
    batched: Sequence[bool] | None = None,
    axes: Sequence[int] | None = None,
) -> list[Value]:
    """The values with their batch axis, if they have or get one (`batched`), in front or at `axes`; Refs keep it."""
    wanted = [d is not None for d in dims] if batched is None else batched
    return [
        move_batch(x, size, d, axis) if b and not x.aval.accumulates else x
        for x, d, b, axis in zip(values, dims, wanted, axes or [0] * len(dims), strict=True)
    ]


def axes_in_front(values: ad.Values, dims: Sequence[BatchDim]) -> tuple[int, ...]:
    """Where the batch axis of each value is after `in_front`; 0 if it has none."""
    return tuple(d or 0 if x.aval.accumulates else 0 for x, d in zip(values, dims, strict=True))


def batch_jaxpr(
    jaxpr: ir.Jaxpr,
    size: int,
    batched: util.Mask,
    inst: bool | Sequence[bool] = False,
    own: Sequence[bool] = (),
    axes: Sequence[int] = (),
) -> tuple[ir.Jaxpr, util.Mask]:
    """The jaxpr over a batch in axis 0, or in each input's axis of `axes`, and which outputs are batched.

    `inst` names outputs that are batched in any case; `own` inputs that are not batched, but stand for a Ref of each
    lane's own, with the same contents. The lanes share all other inputs that are not batched.

    >>> jaxpr = make_jaxpr(lambda x, y: (x * y, y))(1.0, 1.0)
    >>> print(*batch_jaxpr(jaxpr, 3, (True, False)))
    { lambda a:f32*[3] b:f32*[] ; let
        c:f32*[3] = mul a b
      in (c, b) } (True, False)
    """
    places = tuple(axes) if axes else (0,) * len(batched)
    dims = tuple(d if b else None for b, d in zip(batched, places, strict=True))
    wanted = util.full(inst, len(jaxpr.outvars))
    made, out_dims = _batched(jaxpr, size, dims, wanted, tuple(own))
    return made, tuple(d is not None for d in out_dims)


def batch_jaxpr_at(
    jaxpr: ir.Jaxpr, size: int, dims: Sequence[BatchDim]
) -> tuple[ir.Jaxpr, Sequence[BatchDim]]:
    """The jaxpr over a batch in these axes of its inputs, and in which axes of its outputs its equations leave it."""
    return _batched(jaxpr, size, tuple(dims), None, ())


def _batched(
    jaxpr: ir.Jaxpr,
    size: int,
    dims: tuple[BatchDim, ...],
    wanted: util.Mask | None,
    own: tuple[bool, ...],
) -> tuple[ir.Jaxpr, Sequence[BatchDim]]:
    """The jaxpr over a batch and the batch axes of its outputs: in front, also of those `wanted`, if that is given."""
    found: list[BatchDim] = []

    def run(*args: Value) -> list[Value]:
        evaluate = lambda *xs: eval_jaxpr(jaxpr, xs)
        binds = ir.batch_axis(size) in ir.axes_of(jaxpr.effects)
        trace = BatchTrace(tracer.current_trace(), size, evaluate, binds_batch=binds)
        trace.own = frozenset(id(x) for x, o in zip(args, own, strict=False) if o)
        outs, out_dims = run_batch(trace, evaluate, args, dims)
        if wanted is None:
            found[:] = out_dims
            return outs
        batched = [want or d is not None for d, want in zip(out_dims, wanted, strict=True)]
        found[:] = [0 if b else None for b in batched]
        return in_front(size, outs, out_dims, batched)

    def made() -> tuple[ir.Jaxpr, Sequence[BatchDim]]:
        pairs = zip(jaxpr.in_avals, dims, strict=True)
        avals = [a if d is None else a.batched(size, d) for a, d in pairs]
        return stage_closed(run, avals, jaxpr.name, jaxpr.hints), tuple(found)

    key = ("batch", size, dims, wanted, own, modes.chosen_settings())
    return jaxpr.remember(key, made)


def batched_vars(
    jaxpr: ir.Jaxpr, size: int, batched: Collection[ir.Var], fixed: Collection[ir.Var]
) -> set[ir.Var]:
    """The variables of a jaxpr over a batch that may differ between lanes, `batched` among them.

    A Ref does if such a value is written to it, but not one of `fixed`. What lanes tell each other over the named axis
    of the batch, and then share, does not.
    """
    results = partial(_over_axis, size, frozenset(fixed))
    differ = {v for e in jaxpr.eqns if any(x.lanes_differ for x in e.effects) for v in e.outvars}
    return ir.reachable(jaxpr, {*batched, *differ}, fixed=fixed, created=True, results=results)


@ir.once_per(lambda jaxpr, size, seeds: (jaxpr, size, tuple(v in seeds for v in jaxpr.invars)))
def differing_vars(jaxpr: ir.Jaxpr, size: int, seeds: Collection[ir.Var]) -> Collection[ir.Var]:
    """The variables of a jaxpr over a batch that may hold different things in different lanes, if these inputs do.

    Not all that have a batch axis do: a custom rule has one for its cotangents, a Ref for what comes later.
    """
    return ir.reachable(jaxpr, seeds, results=partial(_differing, size))


def _differing(size: int, eqn: ir.Eqn, found: set[ir.Var]) -> Collection[ir.Var] | None:
    """The results of an equation, and Refs that it changes, that differ between lanes if the variables `found` do.

    None if all of them differ as soon as an operand does.
    """
    bodies = rules.plain_bodies(eqn.primitive, eqn.params)
    if bodies:
        return _differing_after(size, eqn, bodies, tuple(a in found for a in eqn.invars))
    if any(e.lanes_differ for e in eqn.effects):
        return [*eqn.outvars, *ir.changed_refs(eqn)]
    return _over_axis(size, frozenset(), eqn, found)


def _over_axis(
    size: int, fixed: frozenset[ir.Var], eqn: ir.Eqn, found: set[ir.Var]
) -> Collection[ir.Var] | None:
    """The same of an equation over the named axis of the batch, from its batch rule; None of any other."""
    if ir.batch_axis(size) not in ir.axes_of(eqn.effects):
        return None
    if changed := ir.changed_refs(eqn) - fixed:
        return [*eqn.outvars, *changed]
    ins = ir.vars_in_order(eqn.invars)
    # one : [*operands] -> [*results]
    one = ir.Jaxpr(ins, [eqn], eqn.outvars)
    return util.select_by(batch_jaxpr(one, size, tuple(v in found for v in ins))[1], eqn.outvars)


def _differing_after(
    size: int, eqn: ir.Eqn, bodies: Sequence[rules.Body], given: util.Mask
) -> Collection[ir.Var] | None:
    """The same of an equation with bodies, given which operands differ; None if lanes choose for themselves what runs.

    body     : [counter?, *consts, *carry, *refs] -> [*outs]
    operands : [index?, *consts, *carry, *states and Refs]
    results  : [*outs, *final states]
    """
    binders, outs = bodies[-1].jaxpr.invars, bodies[-1].jaxpr.outvars
    choosing, counting = max(0, len(given) - len(binders)), max(0, len(binders) - len(given))
    if any(given[:choosing]):
        return None
    operands = [*binders[:counting], *eqn.invars[choosing:]]
    start = [*[False] * counting, *given[choosing:], *[False] * len(outs)]
    num = len(binders)

    def step(mask: util.Mask) -> util.Mask:
        ins, differ = mask[:num], mask[num:]
        for body in bodies:
            ins, differ = _after_body(size, body, ins, differ)
        return (*ins, *differ)

    mask = util.fixpoint(step, start, "what differs between lanes")
    states = zip(operands, binders, mask[:num], strict=True)
    refs = [(a, m) for a, v, m in states if v.aval.accumulates]
    final = [m for a, m in refs if not a.aval.accumulates]
    changed = [a for a, m in refs if m and a.aval.accumulates]
    return [*util.select_by((*mask[num:], *final), eqn.outvars), *ir.used_vars(changed)]


def _after_body(
    size: int, body: rules.Body, ins: util.Mask, outs: util.Mask
) -> tuple[util.Mask, util.Mask]:
    """Which binders and results differ between lanes, those that do already, after a body has run once more."""
    found = differing_vars(body.jaxpr, size, util.select_by(ins, body.jaxpr.invars))
    ins = tuple(v in found for v in body.jaxpr.invars)
    differ = tuple(v in found for v in body.jaxpr.outvars)
    if body.role == "condition":
        # Lanes that choose for themselves whether there is a step differ in all that it changes.
        return tuple(i or differ[0] for i in ins), outs
    if body.role == "loop":
        # What is carried may stay what it was before the loop.
        differ = tuple(map(any, zip(differ, ins[body.carry :], strict=False)))
        ins = (*ins[: body.carry], *differ, *ins[body.carry + len(differ) :])
    return ins, tuple(map(any, zip(outs, differ, strict=True)))


class DirectionTrace(BatchTrace):
    """Computes derivatives in many directions at once; what the directions share is theirs together."""

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        unknown = [self.pair(x)[1] is not None for x in args]
        if any(unknown) and prim in rules.split_rules and ir.jaxprs_in(params):
            effects = rules.abstract_eval_rules[prim]([x.aval for x in args], params)[1]
            stay = [e for e in effects if not e.droppable]
            # Is something done to what the directions share?
            if any(not isinstance(e, ir.PositionalEffect) or not unknown[e.position] for e in stay):
                inst = [not x.aval.accumulates for x in args]
                cut = partial(rules.split_rules[prim], policies.SAVE_EVERYTHING, unknown, inst)
                return run_halves(cut, prim, args, params, self.parent, super().process)
        return super().process(prim, args, params)

    def _once_a_lane(self, prim: ir.Primitive[Any], values: ad.Values, params: Any) -> bool:
        return prim.creates_state


@tracer.leak_checked
def batch_directions(
    fun: ad.Function, size: int, values: ad.Values, user_fun: object
) -> tuple[list[Value], list[BatchDim]]:
    """The outputs of a derivative in many directions, which lie in axis 0 of each value, and their batch axes."""
    trace = DirectionTrace(tracer.current_trace(), size, user_fun, binds_batch=True)
    return run_batch(trace, fun, values, [0] * len(values))
