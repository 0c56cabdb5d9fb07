"""Discharge: a jaxpr whose Refs are values, and whose results include their final contents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fiveloop.core import Jaxpr, Value, ad, ir, trace, util
from fiveloop.core.closed_call import closed_call_p
from fiveloop.state.discharge.phases import DischargeContext, PartReads
from fiveloop.state.discharge.table import Cell, Operands, discharge_rules
from fiveloop.state.refs import AbstractRef


@ir.once_per_jaxpr
def with_calls_inlined(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with what it calls with Refs in the place of the calls; itself if there are none.

    A call gives back all that its Refs hold, and XLA copies that where something else of the step reads it. So the body
    of a loop, and a branch, have none.
    """
    return ir.without_calls(jaxpr, _takes_refs)


def _takes_refs(eqn: ir.Eqn) -> bool:
    return eqn.primitive is closed_call_p and any(
        isinstance(a.aval, AbstractRef) for a in eqn.invars
    )


class Apart:
    """Whether each Ref has been written to with nothing but its own elements, and what does not change."""

    def __init__(self) -> None:
        self.holds = True
        self._sources: dict[ir.Var, frozenset[int]] = {}

    def note(self, eqn: ir.Eqn, inputs: Iterable[ir.Var], operands: Sequence[Any]) -> None:
        """Take note of what an equation reads and writes."""
        sources = frozenset[int]().union(*(self._sources.get(v, ()) for v in inputs))
        cells = [x for x in operands if isinstance(x, Cell)]
        if ir.mutated_positions(eqn.effects):
            self.holds &= len(cells) == 1 and sources <= {id(cells[0])}
        # To copy a Ref of a single element costs nothing.
        sources |= {id(cell) for cell in cells if cell.changes and cell.contents.shape}
        if sources:
            self._sources.update((v, sources) for v in eqn.outvars)


def discharge_state(jaxpr: Jaxpr, which: bool | Sequence[bool] = True) -> Jaxpr:
    """The jaxpr in which the Refs that `which` marks are values, their final contents appended to the results.

    jaxpr      : [*ins]                               -> [*outs]
    discharged : [*ins, Refs as their contents]       -> [*outs, *final contents]

    Refs that are made inside are discharged too. If no Ref is left, no state effect is left.

    >>> def double(r):
    ...     r[...] = 2.0 * r[...]
    >>> with_state = make_jaxpr(double)(new_ref(np.ones(2)))
    >>> [str(aval) for aval in discharge_state(with_state).out_avals]
    ['f64[2]']
    """
    is_ref = [isinstance(a, AbstractRef) for a in jaxpr.in_avals]
    wanted = [which] * len(is_ref) if isinstance(which, bool) else which
    chosen = [w and r for w, r in zip(wanted, is_ref, strict=True)]
    return discharge_jaxpr(jaxpr, chosen, chosen)


@ir.once_per(
    lambda jaxpr, which, results, **how: (jaxpr, tuple(which), tuple(results), *how.items())
)
def discharge_jaxpr(
    jaxpr: Jaxpr,
    which: Sequence[bool],
    results: Sequence[bool],
    counter: int | None = None,
    *,
    once: bool = False,
    unrolled: bool = False,
) -> Jaxpr:
    """As `discharge_state`, giving only the final contents that `results` marks.

    `which` marks the Refs among the inputs that become values. `counter` is the position of the loop counter if the
    jaxpr is the body of a loop; `once` says that the jaxpr is not part of a loop and is compiled next, so that reads
    are ordered before writes here, too. `unrolled` says that another step may follow in the same turn of the loop.

    >>> def copy(r, s):
    ...     s[...] = r[...]
    >>> jaxpr = make_jaxpr(copy)(new_ref(1.0), new_ref(2.0))
    >>> print(discharge_jaxpr(jaxpr, (True, True), results=(False, True)))
    { lambda a:f32[] _:f32[] ; let in (a,) }
    """

    def run(*args: Value) -> list[Value]:
        body = jaxpr if counter is None else with_calls_inlined(jaxpr)
        return _Discharger(body, which, args, counter, once, unrolled).run(results)

    pairs = zip(jaxpr.in_avals, which, strict=True)
    avals = [a.inner if w and isinstance(a, AbstractRef) else a for a, w in pairs]
    return trace.stage_closed(run, avals, jaxpr.name, jaxpr.hints)


class _Discharger:
    def __init__(
        self,
        jaxpr: Jaxpr,
        which: Sequence[bool],
        args: ad.Values,
        counter: int | None,
        once: bool,
        unrolled: bool,
    ) -> None:
        self.jaxpr = jaxpr
        self.last_use: dict[ir.Atom, int] = {
            a: k for k, eqn in enumerate(jaxpr.eqns) for a in eqn.invars
        }
        self.last_use |= dict.fromkeys(jaxpr.outvars, len(jaxpr.eqns))
        self.now = 0
        self.from_reads: dict[ir.Var, None] = {}
        self.open: dict[ir.Var, None] = {}
        self.ordered: dict[ir.Var, None] = {}
        self.env = ir.Environment[Value | Cell]()
        index = None if counter is None else args[counter]
        self.phases = DischargeContext(
            index, self._crossing, self._replace, self, once=once, unrolled=unrolled
        )
        self.parts = PartReads() if once else None
        self.apart = Apart() if counter is not None else None
        self.changing = ir.mutated(jaxpr)
        for v, x, w in zip(jaxpr.invars, args, which, strict=True):
            self.env[v] = self.phases.new_cell(x, v in self.changing) if w else x

    def run(self, results: Sequence[bool]) -> list[Value]:
        with trace.keep_source() as set_source:
            self.env.run(self.jaxpr.eqns, self._step, set_source)
        outs = list(self.jaxpr.outvars)
        last = self.from_reads.keys().isdisjoint(outs)
        self.phases.flush(last, apart=self.apart is not None and self.apart.holds)
        finals = [self.env[v] for v in util.select_by(results, self.jaxpr.invars)]
        return [self._value(a) for a in outs] + [c.contents for c in finals if isinstance(c, Cell)]

    def _step(self, eqn: ir.Eqn, operands: Operands) -> Operands:
        num_reads = self.phases.num_reads
        outs = discharge_eqn(self.phases, eqn, operands)
        self.now += 1
        inputs = [a for a in eqn.invars if isinstance(a, ir.Var)]
        if self.parts is not None:
            self.parts.note(eqn, inputs, operands)
        if self.apart is not None:
            self.apart.note(eqn, inputs, operands)
        if any(a in self.from_reads or a in self.changing for a in inputs):
            self.from_reads.update(dict.fromkeys(eqn.outvars))
        if self.phases.num_reads > num_reads or any(a in self.open for a in inputs):
            self.open.update(dict.fromkeys(eqn.outvars))
        if any(a in self.ordered for a in inputs):
            self.ordered.update(dict.fromkeys(eqn.outvars))
        return outs

    def _value(self, atom: Any) -> Value:
        x = self.env.read(atom)
        assert isinstance(x, Value), "unreachable: a Ref is used as a value"
        return x

    def _crossing(self, cell: Cell | None = None) -> list[Value]:
        """The values that depend on reads of Refs, or of parts of one Ref, and are used from here on."""
        made = self.from_reads if self.parts is None or cell is None else self.parts.of(cell)
        used = [self.env[v] for v in made if self.last_use.get(v, -1) >= self.now]
        values = [x for x in used if isinstance(x, Value) and not isinstance(x.aval, AbstractRef)]
        return util.dedupe(values)

    def is_ordered(self, x: Value) -> bool:
        """Whether a value depends on what has passed an order in this step."""
        return any(self.env[v] is x for v in self.ordered)

    def is_open(self, x: Value) -> bool:
        """Whether it depends on elements read in this phase."""
        return any(self.env[v] is x for v in self.open)

    def _replace(self, old: ad.Values, new: ad.Values) -> None:
        twins = {id(x): y for x, y in zip(old, new, strict=True)}
        for v in self.from_reads:
            if id(self.env[v]) in twins:
                self.env[v] = twins[id(self.env[v])]
                self.ordered[v] = None
        self.open.clear()


def discharge_eqn(ctx: DischargeContext, eqn: ir.Eqn, operands: Operands) -> Operands:
    """The results of an equation on values and Cells: by its rule, or unchanged if it holds no Ref.

    For rules that run the equations of a jaxpr in place. Here is one of a primitive that holds a single equation:

    >>> once_p, no = Primitive("once"), Refusal("discharge it first")
    >>> types = lambda avals, p: call_abstract_eval(avals, p)
    >>> define(once_p, abstract_eval=types, lower=no, jvp=no, batch=no)
    >>> define_discharge(once_p, lambda ctx, xs, p: discharge_eqn(ctx, p.jaxpr.eqns[0], xs))
    >>> inner = ClosedCallParams(make_jaxpr(lambda r: r[...])(new_ref(1.0)))
    >>> print(discharge_state(make_jaxpr(lambda r: bind(once_p, r, params=inner))(new_ref(1.0))))
    { lambda a:f32[] ; let in (a, a) }
    """
    rule = discharge_rules.find(eqn.primitive)
    touches = any(isinstance(x, Cell) for x in operands) or _makes_ref(eqn)
    if rule is not None and (touches or holds_state(eqn.params)):
        return rule(ctx, operands, eqn.params)
    values = [x for x in operands if isinstance(x, Value)]
    assert len(values) == len(operands), "unreachable: a Ref is used as a value"
    return trace.bind_eqn(eqn, values)


def _makes_ref(eqn: ir.Eqn) -> bool:
    return any(isinstance(v.aval, AbstractRef) for v in eqn.outvars)


def holds_state(params: Any) -> bool:
    """Whether a jaxpr among params takes a Ref or makes one.

    >>> reads = ClosedCallParams(make_jaxpr(lambda r: r[...])(new_ref(1.0)))
    >>> holds_state(reads), holds_state(NO_PARAMS)
    (True, False)
    """
    return any(jaxpr_holds_state(j) for j in ir.jaxprs_in(params))


@ir.once_per_jaxpr
def jaxpr_holds_state(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr takes a Ref or makes one, at any depth.

    >>> jaxpr_holds_state(make_jaxpr(jit(lambda x: freeze(new_ref(x))))(1.0))
    True
    >>> jaxpr_holds_state(make_jaxpr(lambda x: x + 1.0)(1.0))
    False
    """
    if any(isinstance(a, AbstractRef) for a in jaxpr.in_avals):
        return True
    return any(_makes_ref(eqn) or holds_state(eqn.params) for eqn in jaxpr.eqns)


def discharge_all(jaxpr: Jaxpr) -> Jaxpr:
    """All Refs as values; the final contents of those that change are appended to the results."""
    which = [isinstance(a, AbstractRef) for a in jaxpr.in_avals]
    changed = ir.mutated_positions(jaxpr.effects)
    results = [w and k in changed for k, w in enumerate(which)]
    return discharge_jaxpr(jaxpr, which, results, once=True)
