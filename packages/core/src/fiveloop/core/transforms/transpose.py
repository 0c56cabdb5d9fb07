"""Transposition: run a linear jaxpr backward, from cotangents of its results to cotangents of its operands.

An operand whose type accumulates (a Ref) is given as the accumulator of its own cotangents; rules add into
it. Equations without linear operands are evaluated forward first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fiveloop.core.array import Value
from fiveloop.core.errors import CoreError
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.graph import changed_refs, reachable
from fiveloop.core.ir.interpret import Environment
from fiveloop.core.ir.jaxpr import Atom, Eqn, Jaxpr, Var
from fiveloop.core.rules import (
    Accumulator,
    Operand,
    Tangent,
    UndefinedPrimal,
    Zero,
    transpose_rules,
    type_rules,
)
from fiveloop.core.trace.stage import stage_closed
from fiveloop.core.trace.tracer import MISUSE, keep_source, locate
from fiveloop.core.transforms.eval import bind_eqn, eval_jaxpr
from fiveloop.core.transforms.partial_eval import split
from fiveloop.core.transforms.replay import happens_once
from fiveloop.core.transforms.saving import SAVE_EVERYTHING
from fiveloop.core.transforms.zeros import add_tangents, instantiate
from fiveloop.core.util import Mask, select_by


def is_linear(x: Operand) -> bool:
    """Whether an operand under transposition is linear.

    >>> is_linear(UndefinedPrimal(ShapedArray((), np.float32))), is_linear(as_value(2.0))
    (True, False)
    """
    return isinstance(x, (UndefinedPrimal, Accumulator))


def passed(x: Operand) -> Value | None:
    """What an operand under transposition passes to a program: a value, or what collects its cotangents."""
    if isinstance(x, Accumulator):
        return x.value
    return x.into if isinstance(x, UndefinedPrimal) else x


def backward_pass(
    jaxpr: Jaxpr, operands: Sequence[Operand], cts: Sequence[Tangent]
) -> list[Tangent]:
    """The cotangents of the linear operands, in order; Zero for those collected in an accumulator, or `into` something.

    An operand is linear if it is an `UndefinedPrimal` or an `Accumulator`; the others are values. `cts` has a value or
    `Zero` for each output.

    >>> jaxpr = make_jaxpr(lambda x, y: x * y)(1.0, 1.0)
    >>> x = UndefinedPrimal(ShapedArray((), np.float32))
    >>> backward_pass(jaxpr, [x, as_value(3.0)], [as_value(2.0)])
    [Array(6., dtype=float32, weak_type=True)]
    """
    return _Backward(jaxpr, operands).run(cts)


class _Backward:
    def __init__(self, jaxpr: Jaxpr, operands: Sequence[Operand]) -> None:
        self.jaxpr = jaxpr
        linear = [is_linear(x) for x in operands]
        self.inputs = select_by(linear, jaxpr.invars)
        self.linear = reachable(jaxpr, self.inputs)
        self.values = Environment[Value]()
        self.cts: dict[Var, Tangent] = {}
        self.into: dict[Var, Value] = {}
        for v, x in zip(jaxpr.invars, operands, strict=True):
            if isinstance(x, Accumulator):
                self.cts[v] = x.value
            elif not isinstance(x, UndefinedPrimal):
                self.values[v] = x
            elif x.into is not None:
                self.into[v] = x.into

    def run(self, cts: Sequence[Tangent]) -> list[Tangent]:
        forward = [eqn for eqn in self.jaxpr.eqns if not self._is_linear(eqn)]
        backward = [eqn for eqn in reversed(self.jaxpr.eqns) if self._is_linear(eqn)]
        with keep_source() as set_source:
            self.values.run(forward, bind_eqn, set_source)
            for atom, ct in zip(self.jaxpr.outvars, cts, strict=True):
                self._add(atom, ct)
            for eqn in backward:
                set_source(eqn.source)
                self._located(eqn)
        for v, target in self.into.items():
            add_into(target, self.cts.pop(v, Zero(v.aval)))
        return [
            Zero(v.aval) if v.aval.accumulates else self.cts.get(v, Zero(v.aval))
            for v in self.inputs
        ]

    def _is_linear(self, eqn: Eqn) -> bool:
        atoms = (*eqn.invars, *eqn.outvars)
        return not self.linear.isdisjoint(atoms)

    def _add(self, atom: Atom, ct: Tangent | None) -> None:
        if (
            ct is None
            or isinstance(ct, Zero)
            or not isinstance(atom, Var)
            or atom not in self.linear
        ):
            return
        self.cts[atom] = add_tangents(self.cts[atom], ct) if atom in self.cts else ct

    def _located(self, eqn: Eqn) -> None:
        """An equation backward; what goes wrong is said to come from its line."""
        try:
            self._back(eqn)
        except MISUSE as error:
            locate(error)
            raise

    def _back(self, eqn: Eqn) -> None:
        cts = [self._take(v) for v in eqn.outvars]
        # Where no cotangent comes, none goes to what is only read.
        touched = self.cts.keys() & changed_refs(eqn)
        if all(isinstance(ct, Zero) for ct in cts) and not touched and not happens_once(eqn):
            return
        operands = [self._operand(a, eqn) for a in eqn.invars]
        cts_in = transpose_rules[eqn.primitive](cts, operands, eqn.params)
        for atom, ct in zip(eqn.invars, cts_in, strict=True):
            self._add(atom, ct)

    def _take(self, v: Var) -> Tangent:
        """The cotangent of an output, which nothing else will use; of a new Ref, what it has accumulated."""
        ct = self.cts.pop(v, None)
        if ct is None or isinstance(ct, Zero):
            return Zero(v.aval)
        accumulated = type_rules(v.aval).accumulated
        return accumulated(ct) if v.aval.accumulates and accumulated is not None else ct

    def _operand(self, atom: Atom, eqn: Eqn) -> Operand:
        if not isinstance(atom, Var) or atom not in self.linear:
            return self.values.read(atom)
        if not atom.aval.accumulates:
            # A mutable value may not be given twice.
            alone = sum(a is atom for a in eqn.invars) == 1
            return UndefinedPrimal(atom.aval, self.into.get(atom) if alone else None)
        if atom not in self.cts:
            new = type_rules(atom.aval).new_accumulator
            if new is None:
                raise CoreError(f"{atom.aval} accumulates but has no accumulator")
            self.cts[atom] = new(atom.aval)
        accumulator = self.cts[atom]
        assert not isinstance(accumulator, Zero), "unreachable: accumulators are values"
        return Accumulator(accumulator)


def add_into(target: Value, ct: Tangent) -> None:
    """Add a cotangent to all that a mutable value holds."""
    if not isinstance(ct, Zero):
        accumulate = type_rules(target.aval).accumulate
        assert accumulate is not None, "unreachable: the target can change"
        accumulate(target, ct)


def transpose_jaxpr(
    jaxpr: Jaxpr, linear: Mask, cts_nonzero: Mask, operands: Sequence[Operand] | None = None
) -> tuple[Jaxpr, Mask]:
    """The transpose as a jaxpr, and which linear value operands have a nonzero cotangent.

    jaxpr   : [*ins]                                                      -> [*outs]
    jaxpr_t : [*ins: values or accumulators, linear values left out, *nonzero cts] -> [*nonzero in cts]

    Of `operands`, those that are collected `into` something are not left out: that stands in their place.

    >>> jaxpr = make_jaxpr(lambda x, y: x * y)(1.0, 1.0)
    >>> print(*transpose_jaxpr(jaxpr, linear=(True, False), cts_nonzero=(True,)))
    { lambda a:f32*[] b:f32[] ; let
        c:f32[] = mul b a
      in (c,) } (True, False)
    """
    into = (None,) * len(linear) if operands is None else tuple(map(into_aval, operands))
    return jaxpr.remember(
        ("transpose", linear, cts_nonzero, into),
        lambda: _transpose_jaxpr(jaxpr, linear, cts_nonzero, into),
    )


def parted(jaxpr: Jaxpr, linear: Mask) -> Jaxpr:
    """The same jaxpr, fit to be transposed: what does not depend on the linear inputs is computed before the rest.

    A loop may compute both, and becomes two: only the linear one has a transpose.
    """

    def part() -> Jaxpr:
        cut = split(jaxpr, linear, (False,) * len(linear), SAVE_EVERYTHING, ensure_out_unknown=True)

        def run(*args: Value) -> list[Value]:
            known = [x for x, lin in zip(args, linear, strict=True) if not lin]
            return eval_jaxpr(
                cut.staged, [*eval_jaxpr(cut.known, known), *select_by(cut.staged_in, args)]
            )

        return stage_closed(run, jaxpr.in_avals, jaxpr.name)

    return jaxpr.remember(("parted", linear), part)


def into_aval(x: Operand | None) -> Aval | None:
    """The type of what the cotangents of an operand are added to, if there is such a thing."""
    return x.into.aval if isinstance(x, UndefinedPrimal) and x.into is not None else None


def _transpose_jaxpr(
    jaxpr: Jaxpr, linear: Mask, cts_nonzero: Mask, into: Sequence[Aval | None]
) -> tuple[Jaxpr, Mask]:
    ins = zip(jaxpr.in_avals, linear, into, strict=True)
    # what stands for each input, if anything does
    taken = [target or (a if not lin or a.accumulates else None) for a, lin, target in ins]
    nonzero: list[bool] = []

    def run(*args: Value) -> list[Value]:
        values, cts = iter(args[: len(avals)]), iter(args[len(avals) :])
        operands = [
            _operand_of(a, lin, values if given else iter(()))
            for a, lin, given in zip(jaxpr.in_avals, linear, taken, strict=True)
        ]
        out_cts = [
            next(cts) if nz else Zero(a.aval)
            for a, nz in zip(jaxpr.outvars, cts_nonzero, strict=True)
        ]
        in_cts = backward_pass(jaxpr, operands, out_cts)
        nonzero[:] = [not isinstance(ct, Zero) for ct in in_cts]
        return [instantiate(ct) for ct in in_cts if not isinstance(ct, Zero)]

    avals = [a for a in taken if a is not None]
    ct_avals = [a.strong() for a in select_by(cts_nonzero, jaxpr.out_avals)]
    made = stage_closed(run, [*avals, *ct_avals], jaxpr.name)
    flags = iter(nonzero)
    # one flag an input; False for those that are not linear or that accumulate
    return made, tuple(next(flags) if lin else False for lin in linear)


def _operand_of(aval: Aval, linear: bool, values: Iterator[Value]) -> Operand:
    if not linear:
        return next(values)
    return (
        Accumulator(next(values)) if aval.accumulates else UndefinedPrimal(aval, next(values, None))
    )
