"""The accesses of a body to a Ref: which equations read or write it, and at which indices, if affine in the counter.

It also gives the access to a Ref that corresponds to an equation on an array.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

from fiveloop.core import Jaxpr, ir, prims, rules, trace, transforms
from fiveloop.core.closed_call import closed_call_p
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.ir.indexer import At, Indexer, Lane, Span, is_one, whole_indexer
from fiveloop.loops.analysis.integers import Affine, Integers, affine
from fiveloop.loops.primitives.cond import cond_p
from fiveloop.loops.primitives.for_loop import by_operand, for_p
from fiveloop.loops.record import Decision
from fiveloop.state import AbstractRef, primitives

IndexRule: TypeAlias = Callable[[ir.Eqn], ir.Atoms]
"""The operands of an equation that say where it reads or writes its first one, a Ref or an array."""


index_rules: rules.RuleTable[IndexRule] = rules.RuleTable(
    "index", default="it indexes nothing", by="define_index"
)


def define_index(prim: ir.Primitive[Any], rule: IndexRule) -> None:
    """Say which operands of a primitive's equations index the first one."""
    index_rules.define(prim, rule)


for _reading in (primitives.get_p, prims.take_p):
    define_index(_reading, lambda eqn: eqn.invars[1:])
for _changing in (primitives.swap_p, primitives.addupdate_p, primitives.accumulate_p, prims.put_p):
    define_index(_changing, lambda eqn: eqn.invars[2:])


def is_access(eqn: ir.Eqn) -> bool:
    """Whether an equation accesses a Ref at an index."""
    return eqn.primitive in index_rules and isinstance(eqn.invars[0].aval, AbstractRef)


def element_added_to(eqn: ir.Eqn) -> Indexer | None:
    """The element of a Ref that an equation adds to, in one form however it is written; None if it does not.

    A scalar has no elements beside itself.
    """
    if eqn.primitive is not primitives.addupdate_p:
        return None
    indexer: Indexer = eqn.params.indexer
    if not indexer.is_block or indexer.dynamic_axes:
        return None
    spans = indexer.spans
    is_element = spans and all(e.size == 1 for e in spans)
    return Indexer(tuple(At(e.start) for e in spans)) if is_element else None


Place = Affine | ir.Var
"""An index: affine in the counter, or a constant of the body."""


@dataclass(frozen=True, slots=True)
class RefAccess:
    """An access of a Ref at an index: its equation and the number of that."""

    number: int
    eqn: ir.Eqn
    mutates: bool

    @property
    def operands(self) -> ir.Atoms:
        """The operands of the index."""
        return index_rules[self.eqn.primitive](self.eqn)

    def place(self, axis: int, numbers: Integers) -> Affine | None:
        """The single place on an axis that is accessed; None if there are others, or it is not affine."""
        indexer: Indexer = self.eqn.params.indexer
        entry = indexer.entries[axis]
        if indexer.lead or not is_one(entry):
            return None
        if entry.start is not None:
            return Affine(0, entry.start)
        return affine(self.operands[indexer.dynamic_axes.index(axis)], numbers)

    def index(self, numbers: Integers, consts: set[ir.Var]) -> tuple[Place, ...] | None:
        """The operands of the index, if they can be had from the counter and constants alone."""
        found: list[Place] = []
        for atom in self.operands:
            number = affine(atom, numbers) if not atom.aval.shape else None
            if number is None and (not isinstance(atom, ir.Var) or atom not in consts):
                return None
            found.append(number if number is not None else atom)  # type: ignore[arg-type]  # it is a constant
        return tuple(found)

    def values(self) -> list[tuple[ir.Var, bool]]:
        """The values that the place holds, before the access or (True) after it."""
        found, indexer = [(v, False) for v in self.eqn.outvars], self.eqn.params.indexer
        if (
            self.eqn.primitive is primitives.swap_p
            and indexer.names_each_once
            and not indexer.drops
        ):
            found += [(v, True) for v in ir.used_vars(self.eqn.invars[1:2])]
        return found


def accesses_of(body: Jaxpr, ref: ir.Var) -> list[RefAccess] | None:
    """All that is done with a Ref at indices, in order; None if something else is that may change it."""
    found: list[RefAccess] = []
    numbers = _numbers(body)
    for eqn in ir.users(body).get(ref, ()):
        places = [k for k, a in enumerate(eqn.invars) if a is ref]
        mutates = not ir.mutated_positions(eqn.effects).isdisjoint(places)
        if is_access(eqn) and places == [0]:
            found.append(RefAccess(numbers[eqn], eqn, mutates))
        elif mutates:
            return None
    return found


@ir.once_per_jaxpr
def _numbers(body: Jaxpr) -> Mapping[ir.Eqn, int]:
    return {eqn: number for number, eqn in enumerate(body.eqns)}


def is_within(place: Affine, size: Any, nsteps: int) -> bool:
    """Whether a place is in range in all steps."""
    low, high = place.ends(nsteps)
    return isinstance(size, int) and low >= 0 and high < size


def unknown_places(
    access: RefAccess,
    numbers: Integers,
    nsteps: int,
    is_fixed: Callable[[int], bool] = lambda axis: False,
) -> str:
    """What keeps the places of an access from being `a * i + b` and in range, or the same in all steps (`is_fixed`)."""
    indexer, shape = access.eqn.params.indexer, access.eqn.invars[0].aval.shape
    for axis, (entry, size) in enumerate(zip(indexer.entries, shape, strict=True)):
        if entry == Span(0, size):
            continue
        if not ir.is_constant(size):
            return "along an axis whose size is not known"
        place = access.place(axis, numbers)
        if place is not None and not is_within(place, size, nsteps):
            low, high = place.ends(nsteps)
            return f"from {low} to {high}, and places are from 0 to {size - 1}"
        if isinstance(entry, Span) and not is_one(entry):
            return "a slice at a time"
        if place is None and is_one(entry) and not is_fixed(axis):
            return "at an index that is not `a * i + b` in the counter `i`"
        if place is not None and not place.step:
            return "at one place in all steps"
    return "at an array of indices"


def all_of(ref: ir.Atom) -> primitives.IndexParams:
    """The index of all that a Ref holds."""
    return primitives.IndexParams(whole_indexer(ref.aval.shape))


def read_at(
    ref: ir.Atom,
    indexer: Indexer,
    index: ir.Atoms,
    outvars: ir.Vars | None = None,
    source: ir.Source | None = None,
) -> ir.Eqn:
    """An equation that reads a Ref at an index."""
    params = primitives.IndexParams(indexer)
    return rules.new_eqn(primitives.get_p, [ref, *index], params, outvars, source)


def write_at(
    ref: ir.Atom, x: ir.Atom, indexer: Indexer, index: ir.Atoms, source: ir.Source | None = None
) -> ir.Eqn:
    """An equation that writes to a Ref at an index."""
    params = primitives.SwapParams(indexer, returns_old=False)
    return rules.new_eqn(primitives.swap_p, [ref, x, *index], params, (), source)


def read_whole(ref: ir.Atom, out: ir.Var | None = None, source: ir.Source | None = None) -> ir.Eqn:
    """An equation that reads a whole Ref."""
    return read_at(ref, whole_indexer(ref.aval.shape), (), None if out is None else [out], source)


def write_whole(ref: ir.Atom, x: ir.Atom, source: ir.Source | None = None) -> ir.Eqn:
    """An equation that replaces the whole contents of a Ref."""
    return write_at(ref, x, whole_indexer(ref.aval.shape), (), source)


def zeros_eqn(aval: ir.Aval) -> ir.Eqn:
    """An equation that makes an array of zeros, to be filled."""
    made: Jaxpr = trace.stage_closed(lambda: [transforms.zeros_of(aval)], [])
    (eqn,) = made.eqns
    return eqn


def is_whole(indexer: Indexer | None, ref: ir.Var) -> bool:
    """Whether an index takes all that a Ref holds, or all that it holds of each lane."""
    return indexer is not None and all(
        isinstance(e, Lane) or e == Span(0, n)
        for e, n in zip(indexer.entries, ref.aval.shape, strict=True)
    )


Planner = Callable[[Jaxpr, Mapping[ir.Var, str]], tuple[Jaxpr, list[Decision]]]
"""What changes a body whose operands have some names, and tells what it did."""


def is_entered(eqn: ir.Eqn) -> bool:
    """Whether an equation is a choice of branches or a call, whose bodies take its last operands one by one."""
    return eqn.primitive is cond_p or eqn.primitive is closed_call_p


def refs_in(eqn: ir.Eqn, body: Jaxpr) -> Iterator[tuple[ir.Var, ir.Var]]:
    """The Refs that an equation gives to one of its bodies, with the inputs that they are there."""
    operands = eqn.invars[len(eqn.invars) - len(body.invars) :]
    for a, v in zip(operands, body.invars, strict=True):
        if isinstance(a, ir.Var) and isinstance(a.aval, AbstractRef):
            yield a, v


def with_bodies(
    body: Jaxpr, names: Mapping[ir.Var, str], change: Planner
) -> tuple[Jaxpr, list[Decision]]:
    """The body with what it chooses or calls with a Ref of some name changed, too."""
    told: list[Decision] = []
    eqns = [_with_bodies(eqn, names, change, told) for eqn in body.eqns]
    if all(new is old for new, old in zip(eqns, body.eqns, strict=True)):
        return body, told
    return Jaxpr(body.invars, eqns, body.outvars, body.name), told


def _with_bodies(
    eqn: ir.Eqn, names: Mapping[ir.Var, str], change: Planner, told: list[Decision]
) -> ir.Eqn:
    if not is_entered(eqn) or names.keys().isdisjoint(eqn.invars):
        return eqn

    def within(inner: Jaxpr) -> Jaxpr:
        here = {v: names[a] for a, v in refs_in(eqn, inner) if a in names}
        found, told_here = change(inner, here)
        told.extend(told_here)
        return found

    return rules.with_bodies(eqn, within)


@dataclass(frozen=True, slots=True)
class Around:
    """What is around a loop: `own` are the values made there for one equation, `used` all that are used at all.

    `made` has the equation that makes a value, and `kept` are those that are there to the end whatever the loop does.
    """

    own: Collection[ir.Var] = ()
    used: Collection[ir.Var] | None = None
    made: Mapping[ir.Var, ir.Eqn] = field(default_factory=dict)
    kept: Collection[ir.Var] = ()

    def is_spare(self, operand: object, result: ir.Var) -> bool:
        """Whether what an operand holds is the loop's to overwrite."""
        return operand in self.own and self.used is not None and result not in self.used

    def and_then(self, eqns: ir.Eqns) -> Around:
        """The same with equations after the loop."""
        more = ir.used_by(eqns)
        used = None if self.used is None else set(self.used) | more
        return replace(self, own=set(self.own) - more, used=used)


ALONE = Around()
"""Nothing is known of what is around it."""


def around(jaxpr: Jaxpr) -> Around:
    """What is around the loops of a jaxpr."""
    uses = ir.use_counts(jaxpr)
    made = ir.makers(jaxpr)
    kept = ir.used_vars([*jaxpr.invars, *jaxpr.outvars])
    return Around({v for v in made if uses[v] == 1}, set(uses), made, kept)


Made = Mapping[ir.Var, ir.Eqn]


@dataclass(frozen=True, slots=True)
class Access:
    """An access of an array: the equation, and the equations on a Ref that replace it.

    `updated` are the results that hold the updated array; `same` are the results that hold the array unchanged.
    """

    eqn: ir.Eqn
    instead: list[ir.Eqn]
    is_dynamic: bool
    updated: ir.Vars = ()
    same: ir.Vars = ()


AccessRule: TypeAlias = Callable[[ir.Eqn, ir.Var, "Made"], Access | None]
"""What an equation does with its first operand, an array, on a Ref that holds it; None if that cannot be."""


access_rules: rules.RuleTable[AccessRule] = rules.RuleTable(
    "access", default="it uses arrays whole", by="define_access"
)


def define_access(prim: ir.Primitive[Any], rule: AccessRule) -> None:
    """Say how an equation that accesses an array at indices accesses a Ref that holds the array."""
    access_rules.define(prim, rule)


def access(eqn: ir.Eqn, array: ir.Var, ref: ir.Var, made: Made) -> Access | None:
    """What an equation does with an array, on a Ref that holds it; None if it does more than index it."""
    if eqn.primitive is for_p:
        return _loop(eqn, array, ref)
    rule = access_rules.find(eqn.primitive)
    if rule is None or eqn.invars[0] is not array or array in eqn.invars[1:]:
        return None
    return rule(eqn, ref, made)


def _take(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    found = _index(eqn, eqn.invars[1:], made)
    if found is None:
        return None
    before, index = found
    read = read_at(ref, eqn.params.indexer, index, eqn.outvars, eqn.source)
    return Access(eqn, [*before, read], bool(index))


def _put(eqn: ir.Eqn, ref: ir.Var, made: Made) -> Access | None:
    found = _index(eqn, eqn.invars[2:], made)
    if found is None:
        return None
    before, index = found
    prim, params = _writing(eqn.params)
    write = rules.new_eqn(prim, [ref, eqn.invars[1], *index], params, (), eqn.source)
    return Access(eqn, [*before, write], bool(index), eqn.outvars)


def _writing(p: prims.PutParams) -> tuple[ir.Primitive[Any], primitives.IndexParams]:
    """The equation on a Ref that has the effect of `put` on an array."""
    match p.kind:
        case "set":
            return primitives.swap_p, primitives.SwapParams(p.indexer, returns_old=False)
        case "add":
            return primitives.addupdate_p, primitives.IndexParams(p.indexer)
    return primitives.accumulate_p, primitives.AccumulateParams(p.indexer, p.kind)


define_access(prims.take_p, _take)
define_access(prims.put_p, _put)


def _index(
    eqn: ir.Eqn, positions: ir.Atoms, made: Made
) -> tuple[list[ir.Eqn], list[ir.Atom]] | None:
    """The index operands of a Ref access, from resolved positions; and equations that repeat shared positions."""
    before, index = list[ir.Eqn](), list[ir.Atom]()
    sizes, indexer = eqn.invars[0].aval.shape, eqn.params.indexer
    for axis, position in zip(indexer.dynamic_axes, positions, strict=True):
        found = _given(position, sizes[axis], made)
        if found is not None:
            position, spreads = found
            for spread in spreads:
                before.append(rules.new_eqn(prims.broadcast_in_dim_p, [position], spread))
                position = before[-1].outvars[0]
        elif indexer.is_block or indexer.drops:
            return (
                None  # a position that is out of range, and negative, counts from the end for a Ref
            )
        index.append(position)
    return before, index


def _given(
    position: ir.Atom, size: ir.Dim, made: Made
) -> tuple[ir.Atom, list[prims.BroadcastParams]] | None:
    """The index that the user gave, of which this is the position; and how it was spread over lanes after that."""
    spreads: list[prims.BroadcastParams] = []
    while (eqn := ir.maker(position, made)) is not None:
        if eqn.primitive is prims.resolve_index_p and eqn.params.size == size:
            return eqn.invars[0], spreads  # a Ref resolves it in the same way
        converts = eqn.primitive is prims.resolve_index_p and not eqn.params.size
        if eqn.primitive is prims.broadcast_in_dim_p:
            spreads.insert(0, eqn.params)
        elif eqn.primitive is not prims.clamp_p and not converts:
            return None
        position = eqn.invars[1 if eqn.primitive is prims.clamp_p else 0]
    return None


def _loop(eqn: ir.Eqn, array: ir.Var, ref: ir.Var) -> Access | None:
    """An inner loop that has the array as a state takes the Ref instead."""
    place, *others = [k for k, a in enumerate(eqn.invars) if a is array]
    result = by_operand(eqn.params, eqn.invars, eqn.outvars)[place]
    if others or result is None:
        return None
    invars = [ref if a is array else a for a in eqn.invars]
    outvars = [v for v in eqn.outvars if v is not result]
    loop = rules.new_eqn(for_p, invars, eqn.params, outvars, eqn.source)
    changes = place + 1 in ir.mutated_positions(eqn.params.body.effects)
    if changes:
        return Access(eqn, [loop], True, [result])
    return Access(eqn, [loop], True, same=[result])
