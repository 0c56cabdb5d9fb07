"""Transposition: run a linear jaxpr backward, from cotangents of its results to cotangents of its operands.

An operand whose type accumulates (a Ref) is given as the accumulator of its own cotangents; rules add into
it. Equations without linear operands are evaluated forward first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fiveloop.core import ad, errors, ir, rules, trace, util
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import replace
from fiveloop.core.primitives import take
from fiveloop.core.transforms import additions, eval, jvp, partial_eval, policies


def is_linear(x: ad.Operand) -> bool:
    """Whether an operand under transposition is linear.

    >>> is_linear(UndefinedPrimal(ShapedArray((), np.float32))), is_linear(as_value(2.0))
    (True, False)
    """
    return isinstance(x, (ad.UndefinedPrimal, ad.Accumulator))


def passed(x: ad.Operand) -> Value | None:
    """What an operand under transposition passes to a program: a value, or what collects or holds its cotangents."""
    if isinstance(x, ad.Accumulator):
        return x.value
    if isinstance(x, ad.UndefinedPrimal):
        return x.held if x.into is None else x.into
    return x


def backward_pass(jaxpr: ir.Jaxpr, operands: ad.Operands, cts: ad.Tangents) -> list[ad.Tangent]:
    """The cotangents of the linear operands, in order; Zero for those collected in an accumulator, or `into` something.

    An operand is linear if it is an `UndefinedPrimal` or an `Accumulator`; the others are values. `cts` has a value or
    `Zero` for each output.

    >>> jaxpr = make_jaxpr(lambda x, y: x * y)(1.0, 1.0)
    >>> x = UndefinedPrimal(ShapedArray((), np.float32))
    >>> backward_pass(jaxpr, [x, as_value(3.0)], [as_value(2.0)])
    [Array(6., dtype=float32, weak_type=True)]
    """
    if _writes(jaxpr):
        jaxpr = additions.as_additions(jaxpr, tuple([is_linear(x) for x in operands]))
    return _Backward(jaxpr, operands).run(cts)


_writes = ir.holding(take.put_p)


class _Backward:
    def __init__(self, jaxpr: ir.Jaxpr, operands: ad.Operands) -> None:
        self.jaxpr = jaxpr
        self.inputs = util.select_by([is_linear(x) for x in operands], jaxpr.invars)
        self.linear = ir.reachable(jaxpr, self.inputs)
        self.values = ir.Environment[Value]()
        self.cts: dict[ir.Var, ad.Tangent] = {}
        self.into: dict[ir.Var, Value] = {}
        self.by_elements = set[ir.Var]()  # whose cotangents so far are all of elements
        for v, x in zip(jaxpr.invars, operands, strict=True):
            if isinstance(x, ad.Accumulator):
                self.cts[v] = x.value
            elif not isinstance(x, ad.UndefinedPrimal):
                self.values[v] = x
            elif x.into is not None:
                self.into[v] = x.into
            elif x.held is not None:
                self.cts[v] = x.held
                self.by_elements.add(v)

    def run(self, cts: ad.Tangents) -> list[ad.Tangent]:
        linear = [not self.linear.isdisjoint((*e.invars, *e.outvars)) for e in self.jaxpr.eqns]
        forward, backward = util.partition(linear, self.jaxpr.eqns)
        with trace.keep_source() as set_source:
            self.values.run(forward, trace.bind_eqn, set_source)
            for atom, ct in zip(self.jaxpr.outvars, cts, strict=True):
                self._add(atom, ct)
            for eqn in reversed(backward):
                set_source(eqn.source)
                self._back(eqn)
        for v, target in self.into.items():
            add_into(target, self.cts.pop(v, ad.Zero(v.aval)))
        given = {v: ct for v, ct in self.cts.items() if not v.aval.accumulates}
        return [given.get(v, ad.Zero(v.aval)) for v in self.inputs]

    def _add(self, atom: ir.Atom, ct: ad.Tangent | None) -> None:
        if isinstance(atom, ir.Var) and atom in self.linear and isinstance(ct, Value):
            self.cts[atom] = jvp.add_tangents(self.cts[atom], ct) if atom in self.cts else ct

    def _back(self, eqn: ir.Eqn) -> None:
        cts = [self._take(v) for v in eqn.outvars]
        # Where no cotangent comes, none goes to what is only read.
        if not jvp.nonzero_tangents(cts):
            changed = ir.changed_refs(eqn)
            if self.cts.keys().isdisjoint(changed) and not eval.happens_once(eqn):
                return
        read = elements_read(eqn)
        operands = [self._operand(a, eqn, read) for a in eqn.invars]
        cts_in = rules.transpose_rules[eqn.primitive](cts, operands, eqn.params)
        for atom, ct in zip(eqn.invars, cts_in, strict=True):
            if self.by_elements and isinstance(ct, Value) and atom not in read:
                self.by_elements -= ir.used_vars([atom])
            if isinstance(ct, ad.Total):
                assert isinstance(atom, ir.Var), "unreachable: a cotangent is held of variables"
                self.cts[atom] = ct.value
            else:
                self._add(atom, ct)

    def _take(self, v: ir.Var) -> ad.Tangent:
        """The cotangent of an output, which nothing else will use; of a new Ref, what it has accumulated."""
        ct = self.cts.pop(v, None)
        if ct is None or isinstance(ct, ad.Zero):
            return ad.Zero(v.aval)
        accumulated = rules.type_rules(v.aval).accumulated if v.aval.accumulates else None
        return ct if accumulated is None else accumulated(ct)

    def _operand(self, atom: ir.Atom, eqn: ir.Eqn, read: ir.Atoms) -> ad.Operand:
        if not isinstance(atom, ir.Var) or atom not in self.linear:
            return self.values.read(atom)
        if not atom.aval.accumulates:
            # A mutable value may not be given twice, nor what is held be added twice.
            if eqn.invars.count(atom) > 1:
                return ad.UndefinedPrimal(atom.aval)
            return ad.UndefinedPrimal(atom.aval, self.into.get(atom), self._held(atom, eqn, read))
        if atom not in self.cts:
            new = rules.type_rules(atom.aval).new_accumulator
            if new is None:
                raise errors.CoreError(f"{atom.aval} accumulates but has no accumulator")
            self.cts[atom] = new(atom.aval)
        accumulator = self.cts[atom]
        assert not isinstance(accumulator, ad.Zero), "unreachable: accumulators are values"
        return ad.Accumulator(accumulator)

    def _held(self, v: ir.Var, eqn: ir.Eqn, read: ir.Atoms) -> Value | None:
        """The cotangent so far of an operand of which an equation reads some elements: it adds to these in place.

        Equations that call a jaxpr hand zeros on to each other, so that equal ones stay equal. Cotangents of blocks are
        fused with one of the whole, which would be computed first, once for each block.
        """
        if v not in read or v in self.into:
            return None
        ct = self.cts.get(v)
        if isinstance(ct, Value):
            return ct if v in self.by_elements or not _reads_blocks(eqn, v) else None
        self.by_elements.add(v)
        calls = eqn.primitive not in rules.reads_elements_rules
        shared = len(ir.users(self.jaxpr).get(v, ())) > 1
        return jvp.zeros_of(v.aval) if calls and shared else None


def elements_read(eqn: ir.Eqn) -> ir.Atoms:
    """The operands of which an equation reads some elements, itself or in what it calls, and not the whole."""
    cell = rules.reads_elements_rules.get(eqn.primitive)
    if cell is not None:
        return eqn.invars[: cell(eqn.params)]
    bodies = rules.plain_bodies(eqn.primitive, eqn.params)
    if len(bodies) != 1 or bodies[0].role in ("loop", "branch"):
        return ()
    return util.select_by(_elements_read(bodies[0].jaxpr), eqn.invars)


def _reads_blocks(eqn: ir.Eqn, v: ir.Atom) -> bool:
    """Whether the elements that an equation reads of an operand lie in blocks."""
    if eqn.primitive in rules.reads_elements_rules:
        return rules.is_view(eqn)
    (body,) = rules.plain_bodies(eqn.primitive, eqn.params)
    inner = body.jaxpr.invars[eqn.invars.index(v)]
    return all(_reads_blocks(e, inner) for e in body.jaxpr.eqns if inner in elements_read(e))


@ir.once_per_jaxpr
def _elements_read(jaxpr: ir.Jaxpr) -> util.Mask:
    """Of which inputs a jaxpr reads some elements."""
    found = {v for e in jaxpr.eqns for v in elements_read(e)}
    return tuple(v in found for v in jaxpr.invars)


def add_into(target: Value, ct: ad.Tangent) -> None:
    """Add a cotangent to all that a mutable value holds."""
    if not isinstance(ct, ad.Zero):
        accumulate = rules.type_rules(target.aval).accumulate
        assert accumulate is not None, "unreachable: the target can change"
        accumulate(target, ct)


def transpose_jaxpr(
    jaxpr: ir.Jaxpr, linear: util.Mask, cts_nonzero: util.Mask, operands: ad.Operands | None = None
) -> tuple[ir.Jaxpr, util.Mask]:
    """The transpose as a jaxpr, and which linear value operands have a nonzero cotangent.

    jaxpr   : [*ins]                                                      -> [*outs]
    jaxpr_t : [*ins: values or accumulators, linear values left out, *nonzero cts] -> [*nonzero in cts]

    Of `operands`, those that are collected `into` something, or of which a cotangent is held, are not left out: that
    stands in their place.

    >>> jaxpr = make_jaxpr(lambda x, y: x * y)(1.0, 1.0)
    >>> print(*transpose_jaxpr(jaxpr, linear=(True, False), cts_nonzero=(True,)))
    { lambda a:f32*[] b:f32[] ; let
        c:f32[] = mul b a
      in (c,) } (True, False)
    """
    targets = [passed(x) if isinstance(x, ad.UndefinedPrimal) else None for x in operands or linear]
    into = tuple([None if x is None else x.aval for x in targets])
    return _transpose_jaxpr(jaxpr, linear, cts_nonzero, into)


PARTS = replace(policies.SAVE_EVERYTHING, parts=True)


@ir.once_per_jaxpr
def parted(jaxpr: ir.Jaxpr, linear: util.Mask) -> ir.Jaxpr:
    """The same jaxpr, fit to be transposed: what does not depend on the linear inputs is computed before the rest.

    A loop may compute both, and becomes two: only the linear one has a transpose.
    """
    inst = (False,) * len(linear)
    cut = partial_eval.split(jaxpr, linear, inst, PARTS, ensure_out_unknown=True)
    operands = [*cut.known.outvars, *util.select_by(cut.staged_in, jaxpr.invars)]
    staged, outs = ir.inlined(cut.staged, operands)
    # jaxpr : [*ins] -> [*outs]
    eqns = ir.prune([*cut.known.eqns, *staged], outs)
    return ir.Jaxpr(jaxpr.invars, eqns, outs, jaxpr.name)


@ir.once_per_jaxpr
def _transpose_jaxpr(
    jaxpr: ir.Jaxpr, linear: util.Mask, cts_nonzero: util.Mask, into: Sequence[ir.Aval | None]
) -> tuple[ir.Jaxpr, util.Mask]:
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
        pairs = zip(jaxpr.outvars, cts_nonzero, strict=True)
        out_cts = [next(cts) if nz else ad.Zero(a.aval) for a, nz in pairs]
        in_cts = backward_pass(jaxpr, operands, out_cts)
        nonzero[:] = jvp.nonzero_mask(in_cts)
        return [jvp.instantiate(ct) for ct in in_cts if not isinstance(ct, ad.Zero)]

    avals = [a for a in taken if a is not None]
    ct_avals = [a.strong() for a in util.select_by(cts_nonzero, jaxpr.out_avals)]
    made = trace.stage_closed(run, [*avals, *ct_avals], jaxpr.name)
    flags = iter(nonzero)
    # one flag an input; False for those that are not linear or that accumulate
    return made, tuple(next(flags) if lin else False for lin in linear)


def _operand_of(aval: ir.Aval, linear: bool, values: Iterator[Value]) -> ad.Operand:
    if not linear:
        return next(values)
    if aval.accumulates:
        return ad.Accumulator(next(values))
    target = next(values, None)
    mutable = target is not None and target.aval.accumulates
    return ad.UndefinedPrimal(aval, target if mutable else None, None if mutable else target)
