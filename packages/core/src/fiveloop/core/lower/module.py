"""A jaxpr as a StableHLO module: one function per distinct call, arrays of floats that it closes over as arguments.

`order` keeps loops in place, and is written as the platform and jaxlib's version need it: XLA:CPU may clone a read of
an old array version past an update of it, and then copies the array in every step. So the values read and the indices
written pass through `order`. jaxlib before 0.12 drops optimisation barriers before fusion, so there a scalar `if` does
it, whose predicate XLA cannot fold.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum

import numpy as np

from fiveloop.core import ir, rules
from fiveloop.core.backend import hlo, host_calls, native
from fiveloop.core.dataclass import dataclass, field
from fiveloop.core.lower.fingerprint import form_of
from fiveloop.core.lower.kernels import READS, WRITES, Kernels, replaced_in, saves_memory

WRITTEN_OUT = 32_768
"""The most bytes of a constant array that is written out in the module."""

_DIVIDES_INTEGERS = re.compile(r"stablehlo\.(divide|remainder) .*: tensor<(\d+x)*u?i\d")
"""XLA computes with constants while it compiles, and a division of integers by zero ends the process."""


class Emission(Enum):
    """One rung of the ladder of ways to write `order`; with `guards`, late reads are guarded, too: see `guarded`."""

    BARRIER = "barrier"
    SCALAR_IF = "scalar_if"
    PLAIN = "plain"
    GUARDED_BARRIER = "barrier, late reads guarded"
    GUARDED_IF = "scalar_if, late reads guarded"

    @property
    def guards(self) -> bool:
        """Whether a read of what a write has given is kept from being merged with that."""
        return self in (Emission.GUARDED_BARRIER, Emission.GUARDED_IF)

    @property
    def branches(self) -> bool:
        """Whether an `if` orders what a barrier would not."""
        return self in (Emission.SCALAR_IF, Emission.GUARDED_IF)


def emit_order(
    b: hlo.Builder, emission: Emission, operands: hlo.IRValues, fixed: Sequence[bool], light: int
) -> list[hlo.IRValue]:
    """Write `order(index, *values)`; the index does not come back. `fixed` says which operands are constants.

    So many of the last values are `light`, and stay outside of a branch.
    """
    index, *values = operands
    match emission:
        case Emission.PLAIN:
            return list(values)
        case Emission.BARRIER | Emission.GUARDED_BARRIER:
            return list(hlo.optimization_barrier(b, values))
        case Emission.SCALAR_IF | Emission.GUARDED_IF:
            end = len(values) - light
            return [*_scalar_if(b, index, values[:end], fixed[1 : end + 1]), *values[end:]]


def guarded(
    b: hlo.Builder, place: hlo.IRValue, read: hlo.Region, results: Sequence[hlo.TypeSpec]
) -> list[hlo.IRValue]:
    """A read at a place, in an `if` that is always taken: the place with its lowest bit set is not zero.

    XLA may write an array a second time where it is read, to read from that; then it copies what is written to. It
    does not look into a branch.
    """
    if place.shape:
        start, one = ([k] * len(place.shape) for k in (0, 1))
        place = hlo.reshape(b, hlo.slice(b, place, start, one, one), ())
    odd = hlo.or_(b, place, _number(b, place, 1))
    true = hlo.compare(b, odd, _number(b, place, 0), "NE")

    def unreached() -> list[hlo.IRValue]:
        return [hlo.constant(b, np.asarray(7).astype(d), shape, d) for shape, d in results]

    return hlo.if_(b, true, read, unreached, results)


def _scalar_if(
    b: hlo.Builder, index: hlo.IRValue, values: hlo.IRValues, fixed: Sequence[bool]
) -> list[hlo.IRValue]:
    """All values through one `if` that is always taken.

    A constant in a branch would make XLA turn the `if` into selects. So constants stay outside, and are selected
    by whether the index has come through unchanged, which it has.
    """
    moving = [v for v, f in zip(values, fixed, strict=True) if not f]
    if any(fixed):
        moving = [index, *moving]
    true = hlo.compare(b, index, hlo.constant(b, np.asarray(0), (), index.dtype), "GE")

    def unreached() -> list[hlo.IRValue]:
        return [_number(b, v, 7) for v in moving]

    passed = hlo.if_(b, true, lambda: moving, unreached, [(v.shape, v.dtype) for v in moving])
    rest = iter(passed)
    if not any(fixed):
        return list(rest)
    unchanged = hlo.compare(b, next(rest), index, "EQ")
    return [
        hlo.select(b, unchanged, v, _number(b, v, 7)) if f else next(rest)
        for v, f in zip(values, fixed, strict=True)
    ]


def _number(b: hlo.Builder, like: hlo.IRValue, number: int) -> hlo.IRValue:
    return hlo.constant(b, np.asarray(number).astype(like.dtype), like.shape, like.dtype)


IRValue = hlo.IRValue


@dataclass(slots=True)
class _Module:
    """The state that all contexts of a module share."""

    b: hlo.Builder
    platform: str
    emission: Emission
    saves_memory: bool
    functions: dict[Hashable, str] = field(default_factory=dict)
    uses_order: bool = False
    moves: bool = False  # whether a value is moved to another memory
    computed: set[object] = field(default_factory=set)
    host_functions: list[host_calls.HostFunction] = field(default_factory=list)
    has_early: bool = False  # whether an array has been made at the beginning, to be written over
    written: set[str] = field(default_factory=set)  # arrays that an update has given
    reshaped: set[str] = field(default_factory=set)  # arrays that are read in another shape, too
    mark: IRValue | None = None  # the counter as an order has given it


@dataclass(slots=True, eq=False, repr=False)
class LowerContext:
    """What a lowering rule is given: the builder, the platform and the types of its equation."""

    _module: _Module
    _consts: dict[int, IRValue]
    avals_in: ir.Avals = ()
    avals_out: ir.Avals = ()
    _fixed: set[str] = field(default_factory=set)  # values of this function made from numbers alone
    # the counter as the last order of what was inlined last gave it, if late reads are guarded
    last_mark: IRValue | None = None

    @property
    def b(self) -> hlo.Builder:
        """The builder of the module."""
        return self._module.b

    @property
    def platform(self) -> str:
        """The platform that the module is compiled for."""
        return self._module.platform

    def order(self, operands: hlo.IRValues, light: int) -> list[IRValue]:
        """Give the values back such that all but the last, `light` ones are computed before what uses them."""
        module, fixed = self._module, [x.name in self._fixed for x in operands]
        module.uses_order = True
        if not module.emission.guards:
            return emit_order(self.b, module.emission, operands, fixed, light)
        # The counter goes along, for what comes in the next step of a turn.
        index, *_ = operands
        module.mark, *outs = emit_order(
            self.b, module.emission, [index, *operands], [fixed[0], *fixed], light
        )
        return outs

    def to_memory(self, x: IRValue, memory: str) -> IRValue:
        """The same value in another memory of the platform."""
        self._module.moves = True
        return hlo.to_memory(self.b, x, memory)

    def late(self, xs: hlo.IRValues) -> list[IRValue]:
        """Operands, some of which are written over: those made of numbers alone come after the others.

        XLA:CPU runs breadth first: it makes such an array at the beginning, one for each that is written to. So the
        first of a program may stay as it is.
        """
        early = {x.name for x in xs if self._is_early(x)}
        there = {x.name: x for x in xs if x.name not in self._fixed and x.shape}
        waits = self.platform == "cpu" and not self._module.emission.branches
        if not (waits and there and early) or self.b.is_in_loop:
            return list(xs)
        if not self._module.has_early:
            self._module.has_early = True
            return list(xs)
        # -0.0 changes no number, and 0.0 would make 0.0 of -0.0.
        zeros = {
            x.name: hlo.constant(self.b, -np.zeros((), x.dtype), (), x.dtype)
            for x in xs
            if x.name in early
        }
        after = hlo.optimization_barrier(self.b, [*zeros.values(), *there.values()])
        named = dict(zip([*zeros, *there], after, strict=True))

        def ready(x: IRValue) -> IRValue:
            if x.name not in early:
                return named.get(x.name, x)
            zero = hlo.broadcast_in_dim(self.b, named[x.name], x.shape, ())
            return hlo.add(self.b, x, zero)

        return [*map(ready, xs)]

    def _is_early(self, x: IRValue) -> bool:
        """Whether an array is made of numbers alone, and of such to which one can be added."""
        is_number = x.dtype.kind in "iuf" or x.dtype.name == "bfloat16"
        return x.name in self._fixed and is_number and bool(x.shape)

    def note_computed(self, key: object) -> None:
        """Remember that the program has computed the value named `key`, in the region that is being written."""
        self._module.computed.add(key)

    def is_computed(self, key: object) -> bool:
        """Whether what `key` names has been computed in this region, so that the compiler might merge it."""
        return key in self._module.computed

    @contextmanager
    def region(self) -> Iterator[None]:
        """Write the body of a loop within the block: nothing outside is merged with what is inside."""
        outside, self._module.computed = self._module.computed, set()
        try:
            yield
        finally:
            self._module.computed = outside

    def host_call(
        self,
        fun: host_calls.HostFunction,
        operands: hlo.IRValues,
        *,
        has_side_effect: bool,
        avals: ir.Avals | None = None,
    ) -> list[IRValue]:
        """Call a Python function when the program gets here; it gives arrays of the types of the equation's results.

        Or of the types that are given. A function with a method `at_failure` is told when the program has failed.
        """
        functions = self._module.host_functions
        functions.append(fun)
        results = [(a.shape, a.dtype) for a in (self.avals_out if avals is None else avals)]
        given = self.b, self.platform, len(functions) - 1, operands, results
        return host_calls.host_call(*given, has_side_effect=has_side_effect)

    def inline(self, jaxpr: ir.Jaxpr, args: hlo.IRValues) -> list[IRValue]:
        """Write a jaxpr's operations here, and give its results."""
        env = _Names(self, zip(jaxpr.invars, args, strict=True))
        outer, self._module.mark = self._module.mark, None
        calls = native.drops_barriers(self.platform) and not self.b.is_in_loop
        kernels = Kernels(jaxpr, self._module.saves_memory, calls)
        env.run(jaxpr.eqns, lambda eqn, operands: self._step(eqn, operands, kernels))
        self.last_mark, self._module.mark = self._module.mark, outer
        return [env.read(a) for a in jaxpr.outvars]

    def inline_apart(self, jaxpr: ir.Jaxpr, args: hlo.IRValues) -> list[IRValue]:
        """Write a jaxpr's operations here, such that the compiler merges none of them with the same outside.

        A barrier keeps them apart, or a branch where the compiler drops barriers before it merges. Another one has the
        results computed here rather than where they are used, so that what they are made of need not live until then.
        In a branch a barrier keeps the compiler from computing light operations outside, and selecting the results.
        """
        moving = [x for x in args if x.name not in self._fixed]

        def run() -> list[IRValue]:
            within = dict(zip(moving, hlo.optimization_barrier(self.b, moving), strict=True))
            with self.region():
                return self.inline(jaxpr, [within.get(x, x) for x in args])

        filled = [x for x in moving if 0 not in x.shape]
        numbers = [x for x in filled if x.dtype.kind in "iufc" or x.dtype.name == "bfloat16"]
        if self._module.emission.branches and numbers:
            # The bits of a number say that the branch is taken: of an array, which no caller gives as a constant.
            number = next((x for x in reversed(numbers) if x.shape), numbers[-1])
            if number.dtype.kind == "c":
                number = hlo.real(self.b, number)
            bits = hlo.bitcast_convert(self.b, number, f"i{number.dtype.itemsize}")
            return guarded(self.b, bits, run, [(a.shape, a.dtype) for a in jaxpr.out_avals])
        results = self.inline(jaxpr, hlo.optimization_barrier(self.b, args))
        return hlo.optimization_barrier(self.b, results)

    def _step(self, eqn: ir.Eqn, operands: list[IRValue], kernels: Kernels) -> list[IRValue]:
        avals = [a.aval for a in eqn.invars], [v.aval for v in eqn.outvars]
        if eqn.primitive.name == WRITES and operands[0].name in self._module.reshaped:
            # XLA:CPU, in one kernel with the write, reads the original of a reshaped array too late.
            operands[1] = self._computed_first(operands[1])
        ctx = LowerContext(self._module, self._consts, *avals, self._fixed)
        results = ctx._lowered(eqn, operands)
        if not kernels.apart.isdisjoint(eqn.outvars):
            results = hlo.optimization_barrier(self.b, results)
        if self.platform == "cpu" and not kernels.first.isdisjoint(eqn.outvars):
            results = [self._computed_first(x) for x in results]
        if not kernels.reshaped.isdisjoint(eqn.outvars):
            self._module.reshaped.update(x.name for x in results)
        if all(x.name in self._fixed for x in operands):
            self._fixed.update(x.name for x in results)
        return results

    def _computed_first(self, x: IRValue) -> IRValue:
        """An array that is in memory before it is used, or written to, in another kernel."""
        if not x.shape or 0 in x.shape or x.name in self._fixed:
            return x
        if not native.drops_barriers(self.platform):
            return hlo.optimization_barrier(self.b, [x])[0]
        return self.b.passed(x)

    def _lowered(self, eqn: ir.Eqn, operands: list[IRValue]) -> list[IRValue]:
        """An equation by its rule; a read of an array that has been written in this function guarded, if asked for."""

        def run() -> list[IRValue]:
            return list(rules.lower_rules[eqn.primitive](self, operands, eqn.params))

        if not self._module.emission.guards:
            return run()
        name, written = eqn.primitive.name, self._module.written
        moving = [x for x in operands[1:] if x.name not in self._fixed]
        if name == READS and operands[0].name in written and moving:
            specs = [(a.shape, a.dtype) for a in self.avals_out]
            return guarded(self.b, moving[0], run, specs)
        results = run()
        if name == WRITES:
            written.update(x.name for x in results)
        return results

    def as_stored(self, xs: hlo.IRValues) -> list[IRValue]:
        """What a step of a loop hands to the next one in its turn, rounded as what a turn hands on."""
        outs, written = hlo.as_stored(self.b, xs), self._module.written
        written.update(y.name for x, y in zip(xs, outs, strict=True) if x.name in written)
        return outs

    def call(
        self, jaxpr: ir.Jaxpr, name: str, args: hlo.IRValues, one_kernel: bool = False
    ) -> list[IRValue]:
        """Call a jaxpr as a function of the module, which is written once per name and form."""

        reshaped, replaced = self._module.reshaped, replaced_in(jaxpr)
        if any(
            x.name in reshaped and v in replaced for v, x in zip(jaxpr.invars, args, strict=True)
        ):
            return self.inline(jaxpr, args)

        def form() -> Hashable:
            """Equal for jaxprs that are written as one function, unless the program outside has a say in it."""
            found = form_of(jaxpr)
            return jaxpr if found is None or found.labels else found.key

        key = (name, jaxpr.remember("body", form))
        if key not in self._module.functions:
            self._module.functions[key] = self._function(jaxpr, name)
        symbol = self._module.functions[key]
        hidden = [self._consts[id(c)] for c in jaxpr.consts]
        results = [(a.shape, a.dtype) for a in jaxpr.out_avals]
        marks = hlo.ONE_KERNEL if one_kernel else ()
        return self.b.call(symbol, [*hidden, *args], results, marks)

    def _function(self, jaxpr: ir.Jaxpr, name: str) -> str:
        consts = jaxpr.consts
        specs = [(a.shape, a.dtype) for a in [*[c.aval for c in consts], *jaxpr.in_avals]]

        def body(args: list[IRValue]) -> list[IRValue]:
            of_consts = {id(c): arg for c, arg in zip(consts, args, strict=False)}
            return LowerContext(self._module, of_consts).inline(jaxpr, args[len(consts) :])

        return self.b.function(name or "call", specs, body=body)

    def constant(self, literal: ir.Literal) -> IRValue:
        """A constant of the jaxpr: a number is written out, an array is a hidden argument."""
        if ir.is_scalar(literal):
            number = hlo.constant(self.b, np.asarray(literal.value.host), (), literal.aval.dtype)  # type: ignore[attr-defined]
            self._fixed.add(number.name)
            return number
        return self._consts[id(literal.value)]


class _Names(ir.Environment[IRValue]):
    """The operations that variables stand for while a jaxpr is written."""

    __slots__ = ("ctx",)

    def __init__(self, ctx: LowerContext, pairs: Iterable[tuple[ir.Var, IRValue]]) -> None:
        super().__init__(pairs)
        self.ctx = ctx

    def read(self, atom: ir.Atom) -> IRValue:
        """The operation that an atom stands for."""
        return self[atom] if isinstance(atom, ir.Var) else self.ctx.constant(atom)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module's text, with what it takes: the constants that are not in it, then the arguments kept."""

    text: str
    consts: list[ir.Constant]
    kept: list[bool]
    in_avals: list[ir.Aval]
    out_avals: list[ir.Aval]
    uses_order: bool
    host_functions: list[host_calls.HostFunction]

    @property
    def updates_in_loops(self) -> bool:
        """Whether there are loops and updates of arrays, so that a step may copy one."""
        updates = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
        return "stablehlo.while" in self.text and any(name in self.text for name in updates)


def lower_jaxpr(
    jaxpr: ir.Jaxpr,
    platform: str,
    emission: Emission,
    name: str = "main",
    donated: Sequence[bool] = (),
    aliased: Mapping[int, int] | None = None,
    keep_unused: bool = False,
    open_consts: bool = False,
) -> Lowered:
    """Write a jaxpr without Refs as a module; arguments that nothing uses are dropped, unless `keep_unused`.

    Small constant arrays of integers or bools are written out, so that the compiler can compute with them; other arrays
    can take the place of `open_consts`, which are arguments as all others are.

    The buffers of `donated` arguments may be used for results. `aliased` says which arguments are updated in
    place, and by which result.
    """
    b = hlo.Builder(name)
    module = _Module(b, platform, emission, saves_memory(jaxpr))
    written_out, consts = list[ir.Constant](), list[ir.Constant]()
    for c in jaxpr.consts:
        (written_out if not open_consts and _is_written_out(c.aval) else consts).append(c)
    used = ir.used_by(jaxpr.eqns, jaxpr.outvars)
    kept = [keep_unused or v in used for v in jaxpr.invars]
    taken = [v for v, k in zip(jaxpr.invars, kept, strict=True) if k]

    def body(args: list[IRValue]) -> list[IRValue]:
        of_consts = {id(c): arg for c, arg in zip(consts, args, strict=False)}
        written = {id(c): hlo.constant(b, np.asarray(c)) for c in written_out}
        ctx = LowerContext(module, of_consts | written)
        values = iter(args[len(consts) :])
        given = {v: next(values) for v in taken}
        results = ctx.inline(jaxpr.replace(invars=taken), [given[v] for v in taken])
        # XLA refuses a result in another memory, and drops a move that changes nothing.
        return [ctx.to_memory(x, "device") for x in results] if module.moves else results

    specs = [(a.shape, a.dtype) for a in [*[c.aval for c in consts], *[v.aval for v in taken]]]

    def attr(k: int) -> dict[str, str] | None:
        if aliased and k in aliased:
            return {"tf.aliasing_output": f"{aliased[k]} : i32"}
        return {"jax.buffer_donor": "true"} if donated and donated[k] else None

    attrs = [attr(k) for k, keep in enumerate(kept) if keep]
    b.function("main", specs, public=True, param_attrs=[*[None] * len(consts), *attrs], body=body)
    text = b.text()
    if written_out and _DIVIDES_INTEGERS.search(text):
        return lower_jaxpr(jaxpr, platform, emission, name, donated, aliased, keep_unused, True)
    return Lowered(
        text,
        consts,
        kept,
        jaxpr.in_avals,
        jaxpr.out_avals,
        module.uses_order,
        module.host_functions,
    )


def _is_written_out(aval: ir.Aval) -> bool:
    """Whether a constant array may be written out: a small one of integers or bools, such as indices and masks.

    Of floats there is less to compute, and XLA:CPU lays out constant matrices anew, which takes temporary memory.
    """
    size = ir.size_of(aval.shape) * aval.dtype.itemsize
    return aval.dtype.kind in "biu" and not ir.is_more(size, WRITTEN_OUT)
