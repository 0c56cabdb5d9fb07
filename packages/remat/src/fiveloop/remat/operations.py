"""The equations of a program as a compiler has them before it fuses: calls are inlined, and equal ones merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import numpy as np

from fiveloop.core import Jaxpr, ir, prims, rules
from fiveloop.core.dataclass import replace
from fiveloop.core.inspect import kept_in_memory, recomputes_in_branches
from fiveloop.core.primitives import ordering
from fiveloop.remat import expanded, kinds
from fiveloop.remat.fusion import SAME, SPREAD, Op
from fiveloop.remat.name import name_p
from fiveloop.remat.primitive import AGAIN
from fiveloop.remat.values import Values, key_of


class Operations(Values):
    """Values by number, with the equations that make and use them."""

    def __init__(self, path: tuple[str, ...], jaxpr: Jaxpr, saves: bool, wide: bool) -> None:
        super().__init__(path, saves, wide)
        self.flat: dict[tuple[int, tuple[int, ...] | None], int] = {}
        self.computed: set[object] = set()
        self.num_waiting = 0
        binders = [self.value(v.aval) for v in jaxpr.invars]
        self.num_given = len(binders)
        self.results = self.inline(jaxpr, binders, whole=True)
        self.put_into_sums()
        self.take_roots()
        for v, a in zip(self.results, jaxpr.outvars, strict=True):
            if v >= self.num_given:
                self.sizes[v] = self.size(a.aval)

    @property
    def is_in_loop(self) -> bool:
        """Whether the equations are in a loop, at any depth."""
        return not _LOOPS.isdisjoint(self.path)

    def inline(self, jaxpr: Jaxpr, args: Sequence[int], whole: bool = False) -> list[int]:
        """The numbers of a jaxpr's results; its equations are counted if it is the `whole`."""
        env = dict(zip(jaxpr.invars, args, strict=True))
        kept = kept_in_memory(jaxpr, self.saves, self.is_in_loop)

        def number(a: ir.Atom) -> int:
            return env[a] if isinstance(a, ir.Var) else -1

        for eqn in jaxpr.eqns:
            self.number += whole
            ins = [number(a) for a in eqn.invars]
            given: Iterable[object] = map(key_of, eqn.invars, ins)
            name = _LOWERED_AS.get(eqn.primitive.name, eqn.primitive.name)
            if name in _COMMUTATIVE:
                given = [frozenset(given)]
            key = None if eqn.effects else (name, eqn.params, *given)
            outs = self.seen.get(key)
            if outs is None:
                outs = self.outs_of(eqn, ins)
                if not kept.isdisjoint(eqn.outvars):
                    outs = self.barrier(_barrier(eqn.outvars), outs)
                if key is not None:
                    self.seen[key] = outs
            env.update(zip(eqn.outvars, outs, strict=True))
        return [number(a) for a in jaxpr.outvars]

    def outs_of(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """The numbers of an equation's results."""
        prim = eqn.primitive
        if prim in (ordering.barrier_p, ordering.order_p):
            return self.barrier(eqn, ins)[-len(eqn.outvars) :]
        if prim in (prims.to_memory_p, name_p) or prim.name == "stop_gradient":
            return ins
        bodies = rules.bodies_of(eqn)
        if len(bodies) == 1 and bodies[0].role not in ("loop", "branch"):
            (body,) = bodies
            again = body.role == "recomputed"
            apart = again and not self.computed.isdisjoint((body.origin, AGAIN))
            self.computed.add(AGAIN if again else body.origin)
            if not apart:
                return self.inline(body.jaxpr, ins)
            if not recomputes_in_branches():
                return self.barrier(eqn, self.inline(body.jaxpr, self.barrier(eqn, ins)))
            ins = [*self.chosen(eqn, ins), *ins]
        if bodies or not eqn.outvars:
            op = Op(eqn, ins, [self.value(v.aval) for v in eqn.outvars])
            self.add_bodies(op, bodies)
            return self.add(op)
        if self.kind_of(eqn).apart:
            return self.outs_apart(eqn, ins)
        simpler = self.simplified(eqn, ins)
        return self.computed_of(eqn, ins) if simpler is None else simpler

    def outs_apart(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """The results of an equation that is written out, contracts, or is at an index."""
        written_out = kinds.written_out(eqn)
        if written_out is not None:
            return self.inline(written_out, ins)
        scratch = expanded.scratch(eqn)
        if scratch is not None:
            ins = [*ins, *self.add(Op(eqn, ins, [self.value(scratch)]))]
            return self.add(Op(eqn, ins, [self.value(v.aval) for v in eqn.outvars]))
        simpler = self.simplified(eqn, ins)
        if simpler is not None:
            return simpler
        rows = expanded.row_loop(eqn)
        if rows is not None:
            return self.run_over_rows(eqn, ins, rows)
        if kinds.picks(eqn):
            return self.picked(eqn, ins)
        if kinds.writes_block(eqn):
            return self.block_written(eqn, ins)
        if self.kind_of(eqn).outer:
            return self.computed_of(eqn, ins)
        ins = self.canonical(eqn, ins)
        self.keep_divided(ins)
        return self.contracted(eqn, ins) if self.kind_of(eqn).full else self.computed_of(eqn, ins)

    def computed_of(self, eqn: ir.Eqn, given: list[int]) -> list[int]:
        """The results of an equation that computes them of these operands, as the compiler has them."""
        ins, kind = self.arranged(eqn, given), self.kind_of(eqn)
        outs = [self.value(v.aval, kind.full) for v in eqn.outvars]
        op = Op(eqn, ins, outs, anew=ins is not given)
        self.weigh(op)
        if op.light and len(outs) > 1:  # the compiler makes each with an operation of its own
            return [self.add(replace(op, outs=[v], first=k))[0] for k, v in enumerate(outs)]
        made = self.add(op)
        if op.absorbs and rules.written_out_rules.find(eqn.primitive):
            return self.divided(eqn, made)
        return made

    def chosen(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """What says that a branch is taken which computes again: a number of its last array, or of a scalar."""
        found = [(a, x) for a, x in zip(eqn.invars, ins, strict=True) if x >= 0]
        numbers = [(bool(a.aval.shape), x) for a, x in found if kinds.is_number(a.aval)]
        if not numbers:
            return []
        x = [x for is_array, x in numbers if is_array == max(numbers)[0]][-1]
        out = self.value(ir.ShapedArray((), np.dtype(np.bool_)))
        return self.add(Op(eqn, [x], [out], light=True, unary=True, first=-1, chooses=True))

    def run_over_rows(self, eqn: ir.Eqn, ins: Sequence[int], body: rules.Body) -> list[int]:
        """The running result of rows, over the operand; of other axes the operands are transposed, and the result."""
        across = kinds.runs_across(eqn)
        moved = [
            self.add(Op(eqn, [x], [self.value(a.aval)]))[0] if across and x >= 0 else x
            for a, x in zip(eqn.invars, ins, strict=True)
        ]
        row, first = (self.value(body.jaxpr.invars[-2].aval) for _ in range(2))
        self.add(Op(eqn, [], [first], first=-1))
        (out,) = eqn.outvars
        made = self.value(out.aval)
        op = Op(eqn, [*moved[:-1], first, moved[-1]], [row, made], first=-1)
        self.add_bodies(op, [body])
        self.add(op)
        if not across:
            return [made]
        return self.add(Op(eqn, [made], [self.value(out.aval)], light=True, unary=True))

    def picked(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """What an index picks, or an array with elements put there: the positions are computed in one array."""
        num = len(ins) - len(kinds.positions(eqn))
        given, places = list(ins[:num]), [*ins[num:]]
        index = kinds.index(eqn, in_loop=self.is_in_loop)
        if index is not None:
            places = self.positions(eqn, places, index)
        moves = kinds.moves_windows(eqn)
        (out,) = (self.value(v.aval) for v in eqn.outvars)
        if eqn.primitive is prims.put_p:
            if given[1] >= 0:
                # It is reshaped, which may be done where it is computed, if it is not copied.
                made, copied = [self.value(eqn.invars[1].aval)], moves or kinds.picks_at_tables(eqn)
                op = Op(eqn, given[1:], made, light=True, unary=True, view=not copied)
                given[1:] = self.add(op)
            return self.add(Op(eqn, [*given, *places], [out], over=[(out, given[0])]))
        made = self.add(Op(eqn, [*given, *places], [out], light=True, expensive=True, unary=True))
        # What lies outside of the array is selected from zeros, by a mask of the positions.
        masks = [self.inside(eqn, places)] if eqn.params.indexer.drops else []
        for ins in [*masks, *[[]] * moves]:
            out = self.value(eqn.outvars[0].aval)
            made = self.add(Op(eqn, [*made, *ins], [out], light=True, unary=True))
        return made

    def block_written(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """An array with a block written, in place if it may be; in one of numbers alone the block is padded."""
        if self.waits_for_array(ins):
            ins = [*self.barrier(eqn, ins[:1]), *ins[1:]]
        if kinds.has_gaps(eqn):
            return self.inline(expanded.between(eqn), ins)
        (out,) = (self.value(v.aval) for v in eqn.outvars)
        if self.pads_filling(ins):
            return self.add(Op(eqn, [ins[1]], [out], light=True, unary=True))
        op = Op(eqn, ins, [out], over=[(out, ins[0])])
        self.weigh(op)
        op.light = op.expensive = True
        return self.add(op)

    def waits_for_array(self, ins: Sequence[int]) -> bool:
        """Whether a block of numbers alone is lowered such that it waits for the array: all but the first one."""
        waits = not (recomputes_in_branches() or self.is_in_loop or self.is_constant(ins[0]))
        if not waits or not self.is_constant(ins[1]):
            return False
        self.num_waiting += 1
        return self.num_waiting > 1

    def positions(self, eqn: ir.Eqn, places: Sequence[int], index: ir.Aval) -> list[int]:
        """All positions in one array, which equal indices share: columns that are joined are computed once."""
        key = "positions", tuple(places), index, eqn.params.indexer.entries
        if key not in self.seen:
            joined = index.shape[-1] > 1
            op = Op(eqn, [*places], [self.value(index)], light=True, expensive=joined, unary=True)
            self.seen[key] = self.add(op)
        return self.seen[key]

    def inside(self, eqn: ir.Eqn, places: list[int]) -> list[int]:
        """Which positions are inside of the array: reduced over the columns, if there are several."""
        index = kinds.index(eqn, in_loop=self.is_in_loop)
        if index is None or index.shape[-1] == 1:
            return places
        key = "inside", *places
        if key not in self.seen:
            rows, whole = (
                self.value(ir.ShapedArray(shape, np.dtype(np.bool_)))
                for shape in (index.shape[:-1], eqn.outvars[0].aval.shape)
            )
            self.add(Op(eqn, places, [rows], light=True, expensive=True, unary=True))
            spread = Op(eqn, [rows], [whole], light=True, unary=True, reads=SPREAD)
            self.seen[key] = self.add(spread)
        return self.seen[key]

    def divided(self, eqn: ir.Eqn, made: list[int]) -> list[int]:
        """The light rest of an equation of which a library has made what is summed: what is left is to divide."""
        outs = [self.value(v.aval, kinds.computes_in_full(eqn)) for v in eqn.outvars]
        return self.add(Op(eqn, made, outs, light=True, unary=True, reads=SAME))

    def keep_divided(self, ins: Iterable[int]) -> None:
        """Note that what is divided is computed once if it is contracted, be it selected from and reshaped before."""
        waiting = [*ins]
        while waiting:
            made = self.maker.get(waiting.pop())
            if made and made.eqn.primitive is prims.select_p:
                waiting += made.ins
            elif made and made.light and rules.written_out_rules.find(made.eqn.primitive):
                made.expensive = True

    def put_into_sums(self) -> None:
        """Add elements to an array last, where another array is added to what they give, and to nothing else."""
        users = Counter(chain(self.results, *[op.operands() for op in self.ops]))
        ops, self.ops = self.ops, []
        gone = set[Op]()
        for op in ops:
            for x, other in (op.ins, op.ins[::-1]) if op.eqn.primitive.name == "add" else ():
                put = self.maker.get(x)
                if put and users[x] == 1 and kinds.adds_last(put.eqn):
                    gone.add(put)
                    op = self.put_into_sum(put, op, other)
                    break
            self.ops.append(op)
        self.ops = [op for op in self.ops if op not in gone] if gone else self.ops

    def put_into_sum(self, put: Op, op: Op, other: int) -> Op:
        """The equation that adds elements to a sum with another array, which is that array if the sum is with zeros."""
        (out,) = op.outs
        base = put.ins[0]
        if not self.is_zero(base):
            self.number = op.number
            (other,) = self.add(
                replace(op, ins=[base, other], outs=[self.value(op.eqn.outvars[0].aval)])
            )
        ins = [other, *put.ins[1:]]
        self.maker[out] = replace(put, ins=ins, outs=[out], over=[(out, other)], turned=True)
        return self.maker[out]

    def barrier(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The operands of an equation, all there before it begins, or its results, all there before they are used."""
        given = [x for x in ins if x >= 0]
        made = range(len(self.sizes), len(self.sizes) + len(given))
        self.sizes += [self.sizes[x] for x in given]
        outs = iter(self.add(Op(eqn, given, [*made], view=True)))
        return [x if x < 0 else next(outs) for x in ins]

    def add_bodies(self, op: Op, bodies: Sequence[rules.Body]) -> None:
        """Note the bodies of an equation, and that a loop's carry stays in place."""
        op.bodies = bodies
        if any(b.role == "loop" for b in bodies):
            op.over = list(zip(reversed(op.outs), reversed(op.ins), strict=False))

    def arranged(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """The operands of an equation as the compiler has them, by what makes these."""
        if eqn.primitive is prims.concatenate_p:
            return self.flattened(eqn, ins)
        if eqn.primitive.name == "div":
            return self.divided_once(eqn, ins)
        if eqn.primitive.name == "greater":
            return self.without_maximum(eqn, ins)
        if eqn.primitive.name == "reduce_sum" and eqn.outvars[0].aval.dtype.name == "float16":
            wide = [self.value(eqn.invars[0].aval, full=True)]  # it is summed in four bytes
            return self.add(Op(eqn, ins, wide, light=True, unary=True, reads=SAME))
        if eqn.primitive.name == "mul" and eqn.outvars[0].aval.dtype.kind == "c":
            return self.numbers_last(eqn, ins)
        return ins

    def simplified(self, eqn: ir.Eqn, ins: list[int]) -> list[int] | None:
        """The results of an equation that the compiler writes in another way, by what makes its operands; else None."""
        name = eqn.primitive.name
        if name == "split":
            return self.taken_apart(eqn, ins)
        if eqn.primitive is prims.take_p and not recomputes_in_branches():
            return self.written(eqn, ins)
        if name in kinds.IN_LIBRARY:
            return self.reduced(eqn, ins)
        if name == "mul":
            return self.product(eqn, ins)
        return None

    def product(self, eqn: ir.Eqn, ins: list[int]) -> list[int] | None:
        """A product with ones is the other operand; older compilers multiply numbers by each other first."""
        pairs = zip(eqn.invars, eqn.invars[::-1], ins, ins[::-1], strict=True)
        for a, other, x, y in pairs:
            number = a if isinstance(a, ir.Literal) else self.filling(x)
            whole = y >= 0 and other.aval.shape == eqn.outvars[0].aval.shape
            if whole and number and ir.is_scalar(number) and np.asarray(number.value) == 1:
                return [y]
        complex_or_newer = eqn.outvars[0].aval.dtype.kind == "c" or not recomputes_in_branches()
        return None if complex_or_newer else self.scaled_first(eqn, ins)

    def written(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int] | None:
        """What has been written to a block, or a part of that, if just this is read."""
        made = self.maker.get(ins[0])
        if made is None or not made.over or not kinds.writes_block(made.eqn) or made.ins[1] < 0:
            return None
        gaps = kinds.has_gaps(eqn)
        same = made.eqn.params.indexer == eqn.params.indexer and made.ins[2:] == ins[1:]
        if same and not gaps:
            return [made.ins[1]]
        if not same and not kinds.lies_in(eqn, made.eqn):
            return None
        op = Op(eqn, [made.ins[1]], [self.value(eqn.outvars[0].aval)])
        self.weigh(op)
        return self.add(op)

    def reduced(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int] | None:
        """The sum of negative numbers is that of the positive ones, negated; one of sums is a sum along all axes."""
        made = self.maker.get(ins[0])
        if made is None or made.ins[0] < 0:
            return None
        if made.eqn.primitive is eqn.primitive and eqn.outvars[0].aval.dtype.itemsize >= 4:
            return self.inline(expanded.at_once(eqn, made.eqn), made.ins)
        if eqn.primitive.name != "reduce_sum" or made.eqn.primitive.name != "neg":
            return None
        return self.inline(expanded.negated(eqn), made.ins)

    def scaled_first(self, eqn: ir.Eqn, ins: list[int]) -> list[int] | None:
        """A product of what a number multiplies with repeated elements: older compilers multiply these first."""
        for x, y in (ins, ins[::-1]):
            made, spread = self.maker.get(x), self.maker.get(y)
            if made is None or spread is None or made.eqn.primitive is not eqn.primitive:
                continue
            if spread.eqn.primitive is not prims.broadcast_in_dim_p or self.is_filled(y):
                continue
            for number, other in (made.ins, made.ins[::-1]):
                if self.is_filled(number) and other >= 0:
                    return self.inline(expanded.scaled(eqn, spread.eqn), [other, spread.ins[0]])
        return None

    def canonical(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The operands of a contraction as matrices: reshaped, or copied if their axes must be rearranged.

        The compiler contracts another axis of transposed matrices instead.
        """
        found: list[int] = []
        for side, x, a, contract, batch in zip(
            (-1, 1), ins, eqn.invars, eqn.params.contract, eqn.params.batch, strict=True
        ):
            made = self.maker.get(x)
            if made is not None and kinds.is_turned(made.eqn, batch):
                x = made.ins[0]
            kept = [k for k in range(a.aval.ndim) if k not in batch]
            inner = [k in contract for k in kept]
            edges = sum(p != q for p, q in pairwise(inner))
            copied = tuple(batch) != tuple(range(len(batch))) or edges > 1
            turned = x >= 0 and made is not None and not kinds.is_transposed(made.eqn)
            if turned and not copied and a.aval.ndim > 2 and self.is_turned(x):
                x = self.add(Op(eqn, [x], [self.value(a.aval)], light=True, unary=True))[0]
            if x < 0 or (a.aval.ndim == len(batch) + 2 and not copied):
                found.append(x)
                continue
            key = (
                x,
                (*batch, *sorted(kept, key=lambda k: side * (k not in contract))) if copied else (),
            )
            if key not in self.flat:
                op = Op(eqn, [x], [self.value(a.aval)], light=True, view=not copied, unary=True)
                (self.flat[key],) = self.add(op)
            found.append(self.flat[key])
        return found

    def is_turned(self, x: int) -> bool:
        """Whether an array is a transposed one, or computed of such ones element by element."""
        made = self.maker.get(x)
        if made is None or kinds.is_transposed(made.eqn):
            return made is not None
        large = [y for y in made.ins if y >= 0 and self.sizes[y] >= self.sizes[x]]
        return made.reads == SAME and bool(large) and all(map(self.is_turned, large))

    def contracted(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The result of a contraction in half precision: operands and result are there in full precision, too."""
        found: list[int] = []
        for a, x in zip(eqn.invars, ins, strict=True):
            if x >= 0 and (
                kinds.is_kept_short(a.aval) or self.sizes[x] < self.size(a.aval, full=True)
            ):
                if (x, None) not in self.flat:
                    (self.flat[x, None],) = self.add(Op(eqn, [x], [self.value(a.aval, full=True)]))
                x = self.flat[x, None]
            found.append(x)
        (out,) = eqn.outvars
        made = self.add(Op(eqn, found, [self.value(out.aval, full=True)]))
        half = Op(eqn, made, [self.value(out.aval, full=True)], light=True, unary=True, reads=SAME)
        return self.add(half)


def _barrier(values: Sequence[ir.Var]) -> ir.Eqn:
    """An equation that gives values as they are, once they are in memory."""
    return rules.new_eqn(ordering.barrier_p, values, ir.NO_PARAMS)


_LOOPS = {"for", "while"}

_LOWERED_AS = {"square": "mul"}

_COMMUTATIVE = {"add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or"}
