"""The factors of products that a loop sums, and where their values in every step are found after the loop.

A factor may be stacked already: the step reads it at its counter, or has written it there. Any other factor takes the
place of a stack of the same type that is kept for this loop alone and read once: a step reads its slot, and then writes
the factor there. The remaining factors get new Refs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from fiveloop.core import Jaxpr, Value, ir, prims, trace
from fiveloop.core.dataclass import dataclass, field
from fiveloop.loops.analysis.accesses import Around, write_at, zeros_eqn
from fiveloop.loops.analysis.integers import literal
from fiveloop.loops.analysis.slots import slot_axis, slot_indexer
from fiveloop.loops.primitives.for_loop import by_operand
from fiveloop.state import AbstractRef, discharge, primitives


@dataclass(frozen=True, slots=True)
class Shifted:
    """A stack, what stands in front of it (or behind, of a loop that counts down), and the read of a slot."""

    read: ir.Eqn
    start: ir.Atom
    down: bool

    @property
    def ref(self) -> ir.Atom:
        """The Ref that holds the stack."""
        return self.read.invars[0]

    def array(
        self, stack: ir.Atom, start: ir.Atom, result: ir.Atom, after: list[ir.Eqn]
    ) -> ir.Atom:
        """The stack moved on, once the loop has given a result, for which there is no room before; in `after`."""

        def moved(stack: Value, start: Value, result: Value) -> list[Value]:
            start = _once_there(start, stack[0], result)
            first = prims.broadcast_in_dim(start, (1, *start.shape), range(1, start.ndim + 1))
            parts = [stack[1:], first] if self.down else [first, stack[:-1]]
            return [prims.concatenate(parts)]

        atoms = [stack, start, result]
        made = trace.stage_closed(moved, [a.aval.strong() for a in atoms])
        eqns, (out,) = ir.inlined(made, atoms)
        after += eqns
        return out


def _once_there(x: Value, other: Value, result: Value) -> Value:
    """A value that must not be used before a result exists: it depends on the result without changing."""
    return prims.select(discharge.lowest_bit(result) > 1, other, x)


def shifted(
    x: ir.Var, made: Mapping[ir.Var, ir.Eqn], body: Jaxpr, num_consts: int, nsteps: int
) -> Shifted | None:
    """The stack that a value is read from, if it is what a loop carried."""
    chosen = ir.maker(x, made, prims.select_p)
    if chosen is None:
        return None
    pred, start, read = chosen.invars
    got = ir.maker(read, made, primitives.get_p)
    if got is None or len(got.invars) != 2:
        return None
    fixed = isinstance(start, ir.Literal) or start in body.invars[1 : 1 + num_consts]
    spread = ir.maker(pred, made, prims.broadcast_in_dim_p)
    first = ir.maker(spread.invars[0] if spread is not None else pred, made, prims.equal.prim)
    if not fixed or first is None or first.invars[0] is not body.invars[0]:
        return None
    for down, ends, step in (
        (False, (prims.maximum.prim, 0), prims.sub.prim),
        (True, (prims.minimum.prim, nsteps - 1), prims.add_p),
    ):
        limit, end = ends
        place = ir.maker(got.invars[1], made, limit)
        moved = place and ir.maker(place.invars[0], made, step)
        if place is None or moved is None or moved.invars[0] is not body.invars[0]:
            continue
        numbers = [literal(eqn.invars[1]) for eqn in (place, moved, first)]
        if numbers == [end, 1, end]:
            return Shifted(got, start, down)
    return None


@dataclass(slots=True)
class Stacks:
    """The Refs of a loop with a slot for each step, as far as factors may be found in them or put there.

    `uses` are the equations that use each Ref, `held` those after which each value is in its slots.
    """

    eqn: ir.Eqn
    around: Around
    held: dict[ir.Atom, list[tuple[ir.Var, ir.Eqn]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for ref in self.refs:
            users = self.uses.get(ref, [])
            writes = [e for e in users if e.primitive is not primitives.get_p]
            for e in users if not writes else ():
                self.held.setdefault(e.outvars[0], []).append((ref, e))
            if len(writes) == 1 and writes[0].primitive is primitives.swap_p:
                self.held.setdefault(writes[0].invars[1], []).append((ref, writes[0]))

    @property
    def uses(self) -> Mapping[ir.Var, ir.Eqns]:
        """What the equations of the body do with each Ref, in order."""
        return ir.users(self.body)

    @property
    def body(self) -> Jaxpr:
        """The body of the loop."""
        found: Jaxpr = self.eqn.params.body
        return found

    @property
    def refs(self) -> ir.Vars:
        """What the last operands are in the body."""
        return self.body.invars[1 + self.eqn.params.num_consts :]

    def where_kept(self, x: ir.Var) -> tuple[ir.Var, int] | None:
        """The Ref in whose slots a value is in the end, and along which axis these are.

        It is read at the counter, and not changed, or is written there once.
        """
        found = ((ref, self.axis_of(e, ref)) for ref, e in self.held.get(x, ()))
        return next(((ref, axis) for ref, axis in found if axis is not None), None)

    def shifted(self, x: ir.Var) -> Shifted | None:
        """The stack that a value is read from, one slot before the step's own; one that is not changed."""
        made = ir.makers(self.body)
        p = self.eqn.params
        found = shifted(x, made, self.body, p.num_consts, p.nsteps)
        if found is None or found.ref not in self.refs:
            return None
        ref = found.ref
        changes = any(e.primitive is not primitives.get_p for e in self.uses[ref])  # type: ignore[index]
        is_slot = found.read.params.indexer == slot_indexer(ref.aval)
        return found if is_slot and not changes and ref.aval.shape[0] == p.nsteps else None

    def spare(self, aval: ir.Aval, taken: Collection[ir.Atom]) -> ir.Var | None:
        """A Ref of which each step reads its own slot for the last time, and which nobody wants."""
        finals = by_operand(self.eqn.params, self.eqn.invars, self.eqn.outvars)
        for k, result in enumerate(finals):
            ref = self.body.invars[1 + k]
            read = self.slot_access(ref, primitives.get_p)
            if read is None or self.axis_of(read, ref) != 0 or ref in taken:
                continue
            if read.outvars[0].aval is not aval.strong() or result is None:
                continue
            if self.around.is_spare(self.eqn.invars[k], result):
                return ref
        return None

    def slot_access(self, ref: ir.Var, prim: ir.Primitive[Any]) -> ir.Eqn | None:
        """The read of the step's own slot, or the write to it that gives nothing, if that is all done with a Ref."""
        match self.uses.get(ref, []):
            case [eqn] if eqn.primitive is prim and bool(eqn.outvars) is (prim is primitives.get_p):
                return eqn if self.axis_of(eqn, ref) is not None else None
        return None

    def axis_of(self, access: ir.Eqn, ref: ir.Var) -> int | None:
        """Along which axis an access is to the slot of the step, if it is to that."""
        if access.invars[-1] is not self.body.invars[0]:
            return None
        indexer = getattr(access.params, "indexer", None)
        return slot_axis(indexer, ref.aval, self.eqn.params.nsteps)


@dataclass(slots=True)
class Places:
    """Where factors are after the loop: in Refs of the loop, in Refs that it overwrites, or in new Refs.

    The steps are along axis 0, except in some stacks that exist anyway: `axes` gives the axis.
    """

    stacks: Stacks
    kept: dict[ir.Var, ir.Var] = field(default_factory=dict)
    axes: dict[ir.Var, int] = field(default_factory=dict)
    reused: dict[ir.Var, ir.Var] = field(default_factory=dict)
    new: dict[ir.Var, ir.Var] = field(default_factory=dict)
    moved: dict[ir.Var, Shifted] = field(default_factory=dict)

    def find(self, values: ir.Vars, reuses: bool) -> None:
        """Find a place for what each value is in every step; with `reuses`, in what is to be overwritten."""
        for x in values:
            found = self.stacks.where_kept(x)
            moved = self.stacks.shifted(x) if reuses and found is None else None
            if found is not None:
                self.kept[x], self.axes[x] = found
            elif moved is not None:
                self.moved[x] = moved
        for x in (x for x in values if x not in self.kept and x not in self.moved):
            taken = {*self.kept.values(), *[m.ref for m in self.moved.values()]}
            taken.update(self.reused.values())
            spare = self.stacks.spare(x.aval, taken) if reuses else None
            if spare is not None:
                self.reused[x] = spare
            else:
                steps = self.stacks.eqn.params.nsteps
                self.new[x] = ir.Var(AbstractRef(x.aval.strong().batched(steps)), "factor")

    @property
    def empties(self) -> list[ir.Eqn]:
        """What makes the new Refs' contents."""
        return [zeros_eqn(contents_type(ref)) for ref in self.new.values()]

    @property
    def writes(self) -> list[ir.Eqn]:
        """The equations that write factors in each step, after all reads of the step."""
        i = self.stacks.body.invars[0]
        slots = [*self.reused.items(), *self.new.items()]
        return [write_at(ref, x, slot_indexer(ref.aval), [i]) for x, ref in slots]

    @property
    def new_bytes(self) -> ir.Dim:
        """The bytes of the new Refs."""
        return prims.bytes_of(contents_type(ref) for ref in self.new.values())

    @property
    def kept_bytes(self) -> ir.Dim:
        """The bytes of factors that are stacked anyway."""
        return prims.bytes_of(contents_type(ref) for ref in self.kept.values())


def joined_from(x: ir.Var, made: Mapping[ir.Var, ir.Eqn]) -> tuple[list[ir.Var], int]:
    """What a value is joined from, and along which axis; itself if it is not."""
    eqn = ir.maker(x, made, prims.concatenate_p)
    if eqn is None:
        return [x], 0
    parts = [a for a in eqn.invars if isinstance(a, ir.Var) and a in made]
    is_new = len(set(parts)) == len(eqn.invars)
    return (parts, eqn.params.axis) if is_new else ([x], 0)


def contents_type(ref: ir.Var) -> ir.Aval:
    """The type of what a Ref holds."""
    assert isinstance(ref.aval, AbstractRef), "unreachable: it is a Ref"
    return ref.aval.inner
