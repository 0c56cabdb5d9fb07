"""An array that only a loop reads, one slot per step, is computed slot by slot in the loop, where that is cheap.

The cotangents of what a scan gives are such an array: `2 * weights * ys`, as large as ys and used once, by the loop
that goes backward. A producer is fused with its consumer so that what it makes is never there as a whole.
"""

from __future__ import annotations

from typing import Any, Protocol

from fiveloop.core import Jaxpr, ir, prims, rules, util
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.primitives import elementwise
from fiveloop.loops import names, record
from fiveloop.loops.analysis.accesses import Around, read_at
from fiveloop.loops.analysis.slots import slot_indexer
from fiveloop.loops.plan.factors import Stacks
from fiveloop.loops.primitives.for_loop import by_operand, for_p
from fiveloop.state import AbstractRef, primitives

STEP = "fuse"
FUSED = "each step computes its slot, so the whole array never exists"
MORE_ROOM = "its operands take more memory, and would have to be kept"
SHARED = "something else uses it, too"
MOST_EQNS = 12
"""Equations beyond which it is not cheap to make a slot."""


def fuse(eqn: ir.Eqn, around: Around) -> record.Planned:
    """A loop that makes slots of arrays which it was given, and that are made for it alone."""
    done = record.Planned(eqn)
    if eqn.params.num_carry or eqn.params.nsteps < 2:
        return done
    while True:
        others: list[record.Decision] = []
        found = _next(done.loop, around, others)
        p = done.loop.params
        if found is None:
            tells = p.record.tells and not p.record.called.kind
            return record.Planned(done.loop, told=[*done.told, *(others if tells else [])])
        slot, ref, loop = found
        stay = ", ".join(str(a.aval) for a in slot.leaves)
        how = f"{FUSED}; its operands stay: {stay}" if stay else FUSED
        told = record.Decision(STEP, p.name_of(ref), True, how, slot.maker.source)
        done = record.Planned(loop, told=[*done.told, told])


@dataclass(frozen=True, slots=True)
class Read:
    """A state of which each step reads its slot, and nothing else: which operand, its result, the read, the axis."""

    place: int
    operand: ir.Var
    result: ir.Var
    eqn: ir.Eqn
    axis: int


def reads_of_slots(eqn: ir.Eqn, around: Around) -> list[Read]:
    """The states made before the loop, element by element, of which each step reads its slot, and nothing else."""
    p, changed = eqn.params, ir.mutated_positions(eqn.params.body.effects)
    pairs = zip(eqn.invars, by_operand(p, eqn.invars, eqn.outvars), strict=True)
    found = [
        (k, operand, result)
        for k, (operand, result) in enumerate(pairs)
        if result is not None and k + 1 not in changed and isinstance(operand, ir.Var)
        if operand in around.made and _is_by_element(around.made[operand])
    ]
    if not found:
        return []
    stacks = Stacks(eqn, around)
    return [
        Read(k, operand, result, read, axis)
        for k, operand, result in found
        if (read := stacks.slot_access(p.body.invars[1 + k], primitives.get_p)) is not None
        if (axis := stacks.axis_of(read, p.body.invars[1 + k])) is not None
    ]


def _next(
    eqn: ir.Eqn, around: Around, told: list[record.Decision]
) -> tuple[Slot, ir.Var, ir.Eqn] | None:
    """The first array that is to be made slot by slot: how, its Ref, and the loop that does it.

    `told` is given why arrays that are made element by element, and read a slot a step, are made before the loop.
    """
    p = eqn.params
    for read in reads_of_slots(eqn, around):
        slot = Slot(Stacks(eqn, around), read.operand, read.axis)
        why = slot.why_not if around.is_spare(read.operand, read.result) else SHARED
        if not why and slot.result.aval is not read.eqn.outvars[0].aval:
            why = "its slot would be of another type"
        if not why:
            ref = p.body.invars[1 + read.place]
            return slot, ref, _with_slot(eqn, ref, read.eqn, slot)
        reason = f"it is made before the loop: {why}"
        told.append(record.Decision(STEP, p.names[read.place], False, reason, slot.maker.source))
    return None


@dataclass(slots=True)
class Slot:
    """How a step makes its slot of an array: of slots of the arrays `leaves`, and of values that are `fixed`.

    Both have what they are in the body. The slots are along `axis` of the array, and along `axes` of the leaves.
    """

    stacks: Stacks
    array: ir.Var
    axis: int
    eqns: list[ir.Eqn] = field(default_factory=list)
    leaves: dict[ir.Var, ir.Var] = field(default_factory=dict)
    axes: dict[ir.Var, int] = field(default_factory=dict)
    fixed: dict[ir.Var, ir.Var] = field(default_factory=dict)
    made: dict[ir.Atom, ir.Atom | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._make(self.array, self.stacks.around.made[self.array])

    @property
    def result(self) -> ir.Atom:
        """The slot in the body."""
        found = self.made[self.array]
        assert found is not None, "unreachable: asked for only where it is cheap"
        return found

    @property
    def maker(self) -> ir.Eqn:
        """What makes the array."""
        return self.stacks.around.made[self.array]

    @property
    def why_not(self) -> str:
        """Why it cannot be made in few operations, from what takes no more room than the array; nothing if it can."""
        if len(self.eqns) > MOST_EQNS:
            return f"a slot takes more than {MOST_EQNS} operations"
        if self.maker.primitive not in slot_rules:
            return f"`{self.maker.primitive}` is not cheap enough to be run in each step"
        if self.made[self.array] is None:
            return "an operand has no slots, or changes in the loop"
        new = [a.aval for a in self.leaves if not self._is_at_hand(a)]
        if not all(ir.is_constant(ir.size_of(a.shape)) for a in [*new, self.array.aval]):
            return "its size is not known"
        return "" if prims.bytes_of(new) <= prims.bytes_of([self.array.aval]) else MORE_ROOM

    def _is_at_hand(self, a: ir.Var) -> bool:
        """Whether an array is there while the loop runs, whatever the loop uses."""
        return a in self.stacks.around.kept or a in self.stacks.eqn.invars

    def _of(self, a: ir.Atom) -> ir.Atom | None:
        """The slot of an array, or the value that is the same in all steps."""
        if isinstance(a, ir.Literal):
            return a if not a.aval.shape else None
        if isinstance(a.aval, AbstractRef):
            return None
        if not a.aval.shape:
            return self.fixed.setdefault(a, ir.Var(a.aval.strong(), names.COMPUTED))
        if a in self.made:
            return self.made[a]
        eqn = self.stacks.around.made.get(a)
        if eqn is None or eqn.primitive not in slot_rules or self._is_at_hand(a):
            self.made[a] = self._leaf(a, self.axis)
        else:
            self._make(a, eqn)
        return self.made[a]

    def _leaf(self, a: ir.Var, axis: int) -> ir.Var | None:
        """A slot that is read from an array, unless the loop changes what it holds."""
        eqn = self.stacks.eqn
        changed = ir.mutated_positions(self.stacks.body.effects)
        if any(x is a and k + 1 in changed for k, x in enumerate(eqn.invars)):
            return None
        is_other = self.axes.setdefault(a, axis) != axis
        if is_other or a.aval.shape[axis : axis + 1] != (eqn.params.nsteps,):
            return None
        return self.leaves.setdefault(a, ir.Var(a.aval.strong().unbatched(axis)))

    def _make(self, a: ir.Var, eqn: ir.Eqn) -> None:
        """Compute one slot of the result of an equation, where possible."""
        self.made[a] = None
        rule = slot_rules.find(eqn.primitive)
        if rule is not None and not eqn.effects and len(self.eqns) <= MOST_EQNS:
            self.made[a] = rule(self, eqn)

    def by_element(self, eqn: ir.Eqn) -> ir.Atom | None:
        """The slot of what is made of each element alone: made of the operands' slots."""
        invars = [self._of(x) for x in eqn.invars]
        given = [x for x in invars if x is not None]
        if len(given) < len(invars):
            return None
        self.eqns.append(rules.new_eqn(eqn.primitive, given, eqn.params, source=eqn.source))
        return self.eqns[-1].outvars[0]

    def spread(self, eqn: ir.Eqn) -> ir.Atom | None:
        """The slot of a broadcast: of an array that has the axis of steps too, or of what is the same in all steps."""
        (x,), p = eqn.invars, eqn.params
        before = p.dims.index(self.axis) if self.axis in p.dims else None
        inside: ir.Atom | None
        if isinstance(x, ir.Literal):
            inside = self._of(x)
        elif before is None:
            inside = self.fixed.setdefault(x, ir.Var(x.aval.strong(), names.COMPUTED))
        elif before != self.axis or x.aval.shape[before] != p.shape[before]:
            inside = self._leaf(x, before)
        else:
            inside = self._of(x)
        if inside is None:
            return None
        shape = (*p.shape[: self.axis], *p.shape[self.axis + 1 :])
        dims = tuple(k - (k > self.axis) for k in p.dims if k != self.axis)
        if inside.aval.shape == shape:
            return inside
        self.eqns.append(
            rules.new_eqn(
                eqn.primitive, [inside], replace(p, shape=shape, dims=dims), source=eqn.source
            )
        )
        return self.eqns[-1].outvars[0]


class SlotRule(Protocol):
    """The slot of what an equation makes, made of slots of its operands; None if that cannot be."""

    def __call__(self, slot: Slot, eqn: ir.Eqn, /) -> ir.Atom | None: ...


slot_rules: rules.RuleTable[SlotRule] = rules.RuleTable(
    "slot", default="not cheap: made whole, before the loop", by="define_slot"
)


def define_slot(prim: ir.Primitive[Any], rule: SlotRule) -> None:
    """Say how a step makes its slot of what an equation makes, where that costs an operation an element or none."""
    slot_rules.define(prim, rule)


_BY_ELEMENT = """
    sub mul square maximum minimum equal not_equal less less_equal greater greater_equal
    bitwise_and bitwise_or bitwise_not
""".split()
for _prim in (prims.add_p, prims.neg_p, prims.convert_p, elementwise.select_p):
    define_slot(_prim, Slot.by_element)
for _name in _BY_ELEMENT:
    define_slot(getattr(elementwise, _name).prim, Slot.by_element)
define_slot(prims.broadcast_in_dim_p, Slot.spread)


def _with_slot(eqn: ir.Eqn, ref: ir.Var, read: ir.Eqn, slot: Slot) -> ir.Eqn:
    """The loop without an array, that makes its slot first in each step.

    p.body : [i, *consts, *refs]           -> []
    body   : [i, *consts, *fixed, *refs but one, *leaves]  -> []
    """
    p, first = eqn.params, eqn.params.num_consts
    keep = [v is not ref for v in p.body.invars[1:]]
    has: dict[ir.Atom, ir.Var] = dict(
        zip(eqn.invars[first:], p.body.invars[1 + first :], strict=True)
    )
    new = {
        a: ir.Var(AbstractRef(a.aval.strong()), "what it is made of")
        for a in slot.leaves
        if a not in has
    }
    stacks = {**{a: has[a] for a in slot.leaves if a in has}, **new}
    eqns = _step(p.body, read, slot, stacks)
    consts, rest = p.body.invars[1 : 1 + first], util.select_by(keep, p.body.invars[1:])[first:]
    invars = [p.body.invars[0], *consts, *slot.fixed.values(), *rest, *new.values()]
    operands = [*eqn.invars[:first], *slot.fixed, *util.select_by(keep, eqn.invars)[first:], *new]
    params = replace(
        p, body=Jaxpr(invars, eqns, p.body.outvars, p.body.name), num_consts=first + len(slot.fixed)
    )
    outs = util.select_by(keep, by_operand(p, eqn.invars, eqn.outvars))
    outvars = [*[v for v in outs if v is not None], *[ir.Var(a.aval.strong()) for a in new]]
    return rules.new_eqn(for_p, operands, params, outvars, eqn.source)


def _step(body: Jaxpr, read: ir.Eqn, slot: Slot, stacks: dict[ir.Var, ir.Var]) -> list[ir.Eqn]:
    """The equations of a step that makes a slot first, where it read one."""
    i = body.invars[0]
    reads = [
        read_at(stacks[a], slot_indexer(stacks[a].aval, slot.axes[a]), [i], [v])
        for a, v in slot.leaves.items()
    ]
    same = {read.outvars[0]: slot.result}
    rest = [ir.rename(e, same) for e in body.eqns if e is not read]
    return [*reads, *slot.eqns, *rest]


def _is_by_element(eqn: ir.Eqn) -> bool:
    """Whether an equation makes each element of elements alone."""
    shape = eqn.outvars[0].aval.shape
    is_plain = not eqn.effects and not ir.jaxprs_in(eqn.params) and len(eqn.outvars) == 1
    by_element = all(a.aval.shape in ((), shape) for a in eqn.invars)
    has_arrays = any(a.aval.shape == shape for a in eqn.invars)
    return is_plain and (eqn.primitive in slot_rules or (by_element and has_arrays))
