"""Staging: run a Python function on tracers, and record its equations as a jaxpr."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, ClassVar

from fiveloop.core import ad, arrays, errors, ir, rules, util
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass, field
from fiveloop.core.trace import tracer


class StageTracer(tracer.Tracer):
    """A variable of the jaxpr that is being written."""

    __slots__ = ("binder",)
    binder: ir.Var

    def __init__(self, trace: StageTrace, var: ir.Var, source: tracer.Origin) -> None:
        super().__init__(trace, source)
        _set_binder(self, var)

    @property
    def aval(self) -> ir.Aval:
        return self.binder.aval


_set_binder = arrays.setter(StageTracer, "binder")

_aliasing = util.OfThread(False)
_aliases: weakref.WeakValueDictionary[int, arrays.Array] = weakref.WeakValueDictionary()


def aliasing() -> AbstractContextManager[bool]:
    """Within the block, jaxprs hold the memory of arrays, and not the arrays that users hold, which may then go."""
    return _aliasing.to(True)


def _alias_of(x: arrays.Array) -> arrays.Array:
    """Another array of the same memory; the same one as long as a jaxpr holds it."""
    found = _aliases.get(id(x.buffer))
    if found is None:
        found = _aliases[id(x.buffer)] = arrays.of_buffer(x.buffer)
    return found


def stand_in(x: Value, trace: tracer.Trace | None) -> Value:
    """What is meant under a trace by a value that a function closes over which is traced again: see `stage`."""
    while trace is not None:
        if isinstance(trace, StageTrace) and id(x) in trace.stand_ins:
            return trace.stand_ins[id(x)]
        trace = trace.parent
    return x


class StageTrace(tracer.Trace):
    """Writes every operation down. A value of another trace, or a Ref, becomes a leading operand."""

    decides: ClassVar[bool] = False

    def __init__(self, parent: tracer.Trace | None, fun: object = None) -> None:
        super().__init__(parent, fun)
        self.eqns: list[ir.Eqn] = []
        self.stand_ins: dict[int, StageTracer] = {}
        self.stands_for: dict[int, Value] = {}
        self._captured: dict[int, tuple[Value, Value, ir.Var]] = {}
        outer = staging_trace(parent)
        self.numbers: dict[int, tuple[arrays.Array, arrays.Scalar]] = outer.numbers if outer else {}

    def process(self, prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
        atoms: list[ir.Atom] = []
        in_avals: list[ir.Aval] = []
        for x in args:  # in one loop, as every operation comes here
            atom = x.binder if type(x) is StageTracer and x._trace is self else self.atom(x)
            atoms.append(atom)
            in_avals.append(atom.aval)
        avals, effects = rules.abstract_eval_rules[prim](in_avals, params)
        source = tracer.current_source()
        outvars: list[ir.Var] = []
        outs: list[Value] = []
        for aval in avals:
            outvars.append(var := ir.Var(aval))
            outs.append(StageTracer(self, var, source))
        self.eqns.append(ir.Eqn(prim, atoms, outvars, params, effects, source))
        return outs

    def atom(self, x: Value) -> ir.Atom:
        """A value as an operand of this jaxpr."""
        if type(x) is StageTracer and x._trace is self:
            return x.binder
        if isinstance(x, arrays.Array):
            if id(x) in self.numbers:
                return ir.Literal(self.numbers[id(x)][1])
            return ir.Literal(_alias_of(x) if _aliasing.value else x)
        if isinstance(x, arrays.Scalar):
            return ir.Literal(x)
        return self._capture(x)

    def _capture(self, original: Value) -> ir.Var:
        original.check_operand()
        x = stand_in(original, self)
        if type(x) is StageTracer and x._trace is self:
            return x.binder
        tracer.check_reached(x, self.parent)
        if id(x) not in self._captured:
            if x._note is not None:
                x._note = x._note.handed_on(x)
            hint = x.binder.hint if isinstance(x, StageTracer) else ""
            held = original
            if isinstance(x, StageTracer) and isinstance(x.owner, StageTrace):
                # Never an argument that stands for another value: the users' functions hold that.
                held = x.owner.stands_for.get(id(x), original)
            self._captured[id(x)] = (x, held, ir.Var(x.aval, hint))
        return self._captured[id(x)][2]

    @property
    def captured(self) -> tuple[list[Value], list[ir.Var]]:
        """The values from outside that became leading operands, and their binders."""
        found = list(self._captured.values())
        return [value for value, _, _ in found], [var for _, _, var in found]

    @property
    def originals(self) -> list[Value]:
        """The captured values as the traced function holds them: others may stand for these."""
        return [original for _, original, _ in self._captured.values()]

    def new_arg(self, aval: ir.Aval) -> StageTracer:
        """A binder of the jaxpr."""
        return StageTracer(self, ir.Var(aval), tracer.ARGUMENT)


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged function: `jaxpr : [*captured, *args] -> outs`, and the captured values.

    `originals` are the captured values as the function holds them.
    """

    jaxpr: ir.Jaxpr
    captured: list[Value]
    originals: list[Value] = field(default_factory=list)

    def closed(self) -> ir.Jaxpr:
        """The jaxpr of a function that is known to capture nothing."""
        if self.captured:
            raise errors.CoreError(
                f"{self.jaxpr.name} captures values of types {[c.aval for c in self.captured]}"
            )
        return self.jaxpr


@tracer.leak_checked
def stage(
    fun: ad.Function,
    avals: ir.Avals,
    name: str = "",
    user_fun: object = None,
    closed: ad.Values = (),
) -> Staged:
    """Trace a flat function of as many values as `avals`; it returns a flat sequence of values.

    `closed` are values that the function closes over; they become arguments, in front of the others, and uses of them
    are uses of the arguments. Any other tracer or Ref from outside that it uses is captured: the jaxpr takes captured
    values first, and is called on `staged.captured` and the arguments.

    >>> def scaled(w):
    ...     staged = stage(lambda x: [w * x], [w.aval], "scale")
    ...     return call_jaxpr(staged.jaxpr, [*staged.captured, w + 1.0])
    >>> print(make_jaxpr(scaled)(2.0))
    { lambda a:f32*[] ; let
        b:f32*[] = add a 1.0*
        c:f32*[] = closed_call[name=scale] a b
          jaxpr { lambda d:f32*[] e:f32*[] ; let
              f:f32*[] = mul d e
            in (f,) }
      in (c,) }
    """
    trace = StageTrace(tracer.current_trace(), user_fun or fun)
    args = [trace.new_arg(aval) for aval in [*[x.aval for x in closed], *avals]]
    trace.stand_ins = {id(x): arg for x, arg in zip(closed, args, strict=False)}
    trace.stands_for = {id(arg): x for x, arg in zip(closed, args, strict=False)}
    with tracer.running(trace):
        outs = fun(*args[len(closed) :])
        atoms = [trace.atom(arrays.as_value(out, "a result")) for out in outs]
    captured, binders = trace.captured
    eqns, atoms = labels_first(trace.eqns, atoms)
    # jaxpr : [*captured, *closed, *args] -> [*outs]
    invars = [*binders, *[a.binder for a in args]]
    return Staged(ir.Jaxpr(invars, ir.prune(eqns, atoms), atoms, name), captured, trace.originals)


def staging_trace(trace: tracer.Trace | None) -> StageTrace | None:
    """The innermost trace, of this one and those around it, that writes a jaxpr."""
    while trace is not None and not isinstance(trace, StageTrace):
        trace = trace.parent
    return trace


def array_of_number(x: arrays.Scalar) -> arrays.Array:
    """A number as an array. A function that is being staged has it as a constant, which XLA can compute with.

    An array from outside becomes an argument of the program, so that the program is the same for another array.
    """
    found = arrays.device_put(x.host, x.weak_type)
    trace = staging_trace(tracer.current_trace())
    if trace is not None:
        trace.numbers[id(found)] = found, x
    return found


def labels_first(eqns: list[ir.Eqn], outs: list[ir.Atom]) -> tuple[list[ir.Eqn], list[ir.Atom]]:
    """Equations in which a label stands right after what makes its value, and all else uses the labelled value.

    The derivative of `y = exp(x)` uses `y` as it was made. If the program only labels it, as `z`, then `z` would be
    dropped where nothing else uses it, and where `z` is saved, `y` would be computed again although it is `z`.
    """
    labelling = set(rules.label_rules)
    labels: dict[ir.Atom, ir.Eqn] = {}
    for eqn in reversed(eqns) if labelling else ():
        if eqn.primitive in labelling:
            labels[eqn.invars[0]] = eqn
    if not labels:
        return eqns, outs
    moved: set[ir.Eqn] = set()
    labelled: dict[ir.Atom, ir.Atom] = {}
    found: list[ir.Eqn] = []
    for eqn in eqns:
        if eqn in moved:
            continue
        found.append(eqn.replace(invars=[labelled.get(a, a) for a in eqn.invars]))
        for v in eqn.outvars:
            made = _chain(v, labels)
            moved.update(made)
            found += made
            if made:
                labelled |= dict.fromkeys([v, *[e.outvars[0] for e in made]], made[-1].outvars[0])
    return found, [labelled.get(a, a) for a in outs]


def _chain(v: ir.Var, labels: dict[ir.Atom, ir.Eqn]) -> list[ir.Eqn]:
    """The equations that label a value, one after the other."""
    found: list[ir.Eqn] = []
    while v in labels:
        found.append(labels[v])
        (v,) = labels[v].outvars
    return found


@tracer.leak_checked
def captured_by(fun: ad.Function, avals: ir.Avals) -> list[Value]:
    """The values that a flat function closes over, found by a trial run, which may fail after it has used some."""
    trace = StageTrace(tracer.current_trace(), fun)
    with suppress(Exception), tracer.running(trace):
        for out in fun(*map(trace.new_arg, avals)):
            trace.atom(arrays.as_value(out, "a result"))
    return trace.originals


def stage_closed(
    fun: ad.Function, avals: ir.Avals, name: str = "", hints: Sequence[str] = ()
) -> ir.Jaxpr:
    """Trace a flat function of the library's own, which closes over no tracer; `hints` name its inputs.

    CoreError if it captures a tracer: see `stage`, which allows for it.

    >>> print(stage_closed(lambda x: [x * x], [ShapedArray((), np.float32)], "square"))
    { lambda a:f32[] ; let
        b:f32[] = mul a a
      in (b,) }
    """
    made = stage(fun, avals, name).closed()
    for v, hint in zip(made.invars, hints, strict=False):
        v.hint = hint
    return made
