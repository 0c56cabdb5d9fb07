"""Values by number, and equations that a compiler writes in another way, by what makes their operands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from fiveloop.core import Scalar, ir, prims, rules
from fiveloop.core.inspect import recomputes_in_branches
from fiveloop.remat import kinds
from fiveloop.remat.fusion import MOVED, SAME, SPREAD, Op, seen_through

LINE = 64
"""Buffers begin at multiples of so many bytes."""

IN_A_ROW = {"add": "add", "sub": "add", "mul": "mul", "div": "mul"}
"""What a compiler writes with a number: a sum or a product, of which it may bring two together."""


class Values:
    """Values by number, with the equations that make them; sizes of whole lines if it is `wide`.

    `saves` says whether something in the program is computed again to save memory.
    """

    def __init__(self, path: tuple[str, ...], saves: bool, wide: bool) -> None:
        self.path = path
        self.saves = saves
        self.wide = wide
        self.sizes: list[int] = []
        self.bytes_of: dict[tuple[ir.Aval, bool], int] = {}
        self.kinds: dict[object, kinds.Kind] = {}
        self.ops: list[Op] = []
        self.maker: dict[int, Op] = {}
        self.seen: dict[object, list[int]] = {}
        self.inverses: list[Op] = []
        self.results: list[int] = []
        self.number = -1

    def value(self, aval: ir.Aval, full: bool = False) -> int:
        """A new number for a value, whose elements may be in `full` precision."""
        self.sizes.append(self.size(aval, full))
        return len(self.sizes) - 1

    def size(self, aval: ir.Aval, full: bool = False) -> int:
        """The bytes of a value."""
        key = aval, full
        size = self.bytes_of.get(key)
        if size is None:
            size = prims.bytes_of([aval]) * (2 if full else 1)
            size = self.bytes_of[key] = in_lines(size) if self.wide else size
        return size

    def add(self, op: Op) -> list[int]:
        """Note an equation, and give its results."""
        op.number = self.number
        self.ops.append(op)
        for v in op.outs:
            self.maker[v] = op
        return op.outs

    def kind_of(self, eqn: ir.Eqn) -> kinds.Kind:
        """The kind of an equation that has results, and no bodies."""
        key = (eqn.primitive, eqn.params, *[a.aval for a in eqn.invars])
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = kinds.kind_of(eqn)
        return kind

    def weigh(self, op: Op) -> None:
        """Note whether an equation is light."""
        eqn, kind = op.eqn, self.kind_of(op.eqn)
        if kind.outer:
            op.light = op.unary = True
            op.reads = SPREAD
            return
        op.light = kind.light
        op.light &= eqn.primitive is not prims.concatenate_p or len(op.ins) <= kinds.JOINED
        op.expensive = kind.once and not self.divides_by_few(op)
        op.view = eqn.primitive is prims.reshape_p
        if kind.alike:
            op.reads = SAME
        elif eqn.primitive is prims.broadcast_in_dim_p:
            (x,), (v,) = op.ins, op.outs
            op.reads = SPREAD if x >= 0 and self.sizes[x] < self.sizes[v] else MOVED
        rank = eqn.outvars[0].aval.ndim
        pairs = zip(eqn.invars, op.ins, strict=False)
        op.unary = len({x for a, x in pairs if self.is_large(a, x, rank)}) <= 1
        op.absorbs = kind.absorbs
        if kind.reduces or self.pads(op):
            op.light = op.expensive = op.unary = True

    def is_large(self, a: ir.Atom, x: int, rank: int) -> bool:
        """Whether an operand is an array of a rank that is not made of a smaller one by repeating it."""
        made = self.maker.get(x)
        spread = made is not None and made.eqn.primitive is prims.broadcast_in_dim_p
        return x >= 0 and a.aval.ndim >= rank and not spread

    def divides_by_few(self, op: Op) -> bool:
        """Whether a division is by repeated numbers: XLA multiplies by their inverses."""
        if op.eqn.primitive.name != "div":
            return False
        maker = self.maker.get(op.ins[1])
        return maker is None or maker.eqn.primitive is prims.broadcast_in_dim_p

    def pads(self, op: Op) -> bool:
        """Whether an equation pads an array: newer compilers make a pad of one that joins an array and one number."""
        if op.light or op.eqn.primitive is not prims.concatenate_p:
            return kinds.pads(op.eqn)
        return len(op.ins) == 2 and any(map(self.is_filled, op.ins))

    def is_filled(self, x: int) -> bool:
        """Whether an array is a constant, or one number repeated."""
        made = self.maker.get(x)
        if made is None or made.eqn.primitive is not prims.broadcast_in_dim_p:
            return x < 0
        return not made.eqn.invars[0].aval.ndim

    def filling(self, x: int) -> ir.Literal | None:
        """The number that an array is filled with, if there is one."""
        made = self.maker.get(x)
        if made is None or made.eqn.primitive is not prims.broadcast_in_dim_p:
            return None
        (number,) = made.eqn.invars
        return number if isinstance(number, ir.Literal) else None

    def beside_number(self, op: Op) -> int | None:
        """What an equation adds a number to, or multiplies by one, if it does that alone."""
        name = op.eqn.primitive.name
        if name not in IN_A_ROW or len(op.ins) != 2 or len(op.eqn.invars) != 2:
            return None
        is_one = [
            (isinstance(a, ir.Literal) and ir.is_scalar(a)) or self.filling(x) is not None
            for a, x in zip(op.eqn.invars, op.ins, strict=True)
        ]
        if is_one[1]:
            return op.ins[0]
        return op.ins[1] if is_one[0] and name == IN_A_ROW[name] else None

    def computes_number(self, op: Op) -> bool:
        """Whether the compiler makes a number of others: the negative of what is subtracted, or of two in a row one.

        Newer compilers bring together two numbers if they are integers.
        """
        x, name = self.beside_number(op), op.eqn.primitive.name
        if x is None or name == "sub":
            return x is not None
        made = self.maker.get(self.seen_through(x))
        if made is None or self.beside_number(made) is None:
            return False
        alike = IN_A_ROW[made.eqn.primitive.name] == IN_A_ROW[name]
        exact = op.eqn.outvars[0].aval.dtype.kind in "iu"
        return alike and (exact or recomputes_in_branches())

    def is_zero(self, x: int) -> bool:
        """Whether an array is of zeros."""
        number = self.filling(x)
        return number is not None and not bool(number.value)

    def pads_filling(self, ins: Sequence[int]) -> bool:
        """Whether a block is written at a constant place of an array of one number: that is a pad of the block."""
        return self.is_filled(ins[0]) and all(map(self.is_constant, ins[2:]))

    def is_constant(self, x: int) -> bool:
        """Whether a value is known to the compiler."""
        made = self.maker.get(x)
        return x < 0 or (
            made is not None and bool(made.ins) and all(map(self.is_constant, made.ins))
        )

    def is_spread(self, x: int) -> bool:
        """Whether an array repeats the elements of a smaller one."""
        made = self.maker.get(x)
        return (
            made is not None and made.eqn.primitive is prims.broadcast_in_dim_p and made.ins[0] >= 0
        )

    def is_number(self, x: int) -> bool:
        """Whether an array is of one complex number."""
        made = self.maker.get(x)
        if made is None or made.eqn.primitive.name != "complex":
            return self.is_filled(x)
        return all(map(self.is_filled, made.ins))

    def seen_through(self, x: int) -> int:
        """What a value is another form of."""
        return seen_through(x, self.maker)

    def divided_once(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """The operands of a division: what is a quotient of floats already is divided by the product instead.

        What is divided by repeated elements is multiplied by their inverses, but a product with these is not.
        """
        (out,) = eqn.outvars
        if ins[1] < 0 or not out.aval.differentiable:
            return ins
        made = self.maker.get(ins[0])
        by = made.ins[-1] if made and made.eqn.primitive is eqn.primitive and not made.view else -1
        if self.is_spread(ins[1]):
            inverse = self.inverse(eqn, ins[1])
            return ins if by == inverse else [ins[0], inverse]
        if made is None or by < 0 or self.is_spread(by):
            return ins
        both = [by, ins[1]]
        product = Op(eqn, both, [self.value(out.aval)], light=True, unary=by == ins[1], reads=SAME)
        return [made.ins[0], *self.add(product)]

    def inverse(self, eqn: ir.Eqn, x: int) -> int:
        """The inverses of repeated elements that something is divided by: each is computed once, and repeated anew.

        In the branches of an older compiler they count as computed where they are repeated: peaks are nearer to that.
        """
        key = "inverse", x
        if key not in self.seen:
            spread = self.maker[x]
            (small,), (out,) = spread.eqn.invars, spread.eqn.outvars
            one = ir.Literal(Scalar(np.ones((), small.aval.dtype)))
            divided = rules.new_eqn(eqn.primitive, [one, small], eqn.params, source=eqn.source)
            ins, made = [-1, *spread.ins], [self.value(small.aval)]
            op = Op(divided, ins, made, light=True, expensive=True, reads=SAME)
            if recomputes_in_branches() and self.path[-1:] == ("checkpoint",):
                ins = spread.ins
            else:
                self.inverses.append(op)
                ins = self.add(op)
            again = Op(spread.eqn, ins, [self.value(out.aval)])
            self.weigh(again)
            self.seen[key] = self.add(again)
        return self.seen[key][0]

    def take_roots(self) -> None:
        """Compute the inverses of roots that nothing else uses at once; what a barrier gives is another root."""
        used, users = {*self.results}, dict[int, set[Op]]()
        for op in reversed(self.ops) if self.inverses else ():
            if not op.light or not used.isdisjoint(op.outs):
                used |= {*op.operands()}
                for x in () if op.view else op.operands():
                    users.setdefault(x, set()).add(op)
        for op in self.inverses:
            root = self.maker.get(self.seen_through(op.ins[-1]))
            if root and root.eqn.primitive.name == "sqrt" and users.get(root.outs[0]) == {op}:
                op.eqn, op.ins = root.eqn, root.ins

    def without_maximum(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """The operands of a comparison: the greater of a value and a number is above that if the value is."""
        made, number = self.maker.get(ins[0]), eqn.invars[1]
        if (
            made is None
            or made.eqn.primitive.name != "maximum"
            or not isinstance(number, ir.Literal)
        ):
            return ins
        for a, x in zip(made.eqn.invars, made.ins[::-1], strict=True):
            if key_of(a, -1) == key_of(number, -1):
                return [x, ins[1]]
        return ins

    def numbers_last(self, eqn: ir.Eqn, ins: list[int]) -> list[int]:
        """The operands of a product of complex numbers: what is multiplied by one number is so afterwards."""
        for x, y in (ins, ins[::-1]):
            made = self.maker.get(x)
            if made is None or made.eqn.primitive is not eqn.primitive or self.is_number(y):
                continue
            for number, other in (made.ins, made.ins[::-1]):
                if self.is_number(number) and not self.is_number(other):
                    product = Op(eqn, [other, y], [self.value(eqn.outvars[0].aval)])
                    self.weigh(product)
                    return [*self.add(product), number]
        return ins

    def flattened(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int]:
        """The operands of a concatenation, where one is a concatenation along the same axis what that is made of."""

        def each(x: int) -> Sequence[int]:
            made = self.maker.get(x)
            return (
                made.ins
                if made and made.eqn.params == eqn.params and made.eqn.primitive is eqn.primitive
                else [x]
            )

        return [*chain.from_iterable(map(each, ins))]

    def taken_apart(self, eqn: ir.Eqn, ins: Sequence[int]) -> list[int] | None:
        """The parts of an array, if it has been joined of these: the compiler takes them as they were."""
        made = self.maker.get(ins[0])
        if made is None or made.eqn.primitive is not prims.concatenate_p:
            return None
        axis = eqn.params.axis
        joined = [a.aval.shape[axis] for a in made.eqn.invars]
        alike = made.eqn.params.axis == axis and len(made.ins) == len(joined)
        return made.ins if alike and joined == [*eqn.params.sizes] else None

    def counts(self, x: int) -> bool:
        """Whether an array counts its elements: in another shape it is computed anew, from one for each axis."""
        return x in self.maker and self.maker[x].eqn.primitive.name == "iota"

    def is_of_vectors(self, x: int) -> bool:
        """Whether a value is read in another form than it has, and so is never written over."""
        return x in self.maker and kinds.is_of_vectors(self.maker[x].eqn)

    def made_in_branches(self, op: Op) -> Sequence[int]:
        """The results that a branch makes: the most of one of two branches, and of more than two all."""
        branches = [body.jaxpr for body in op.bodies if body.role == "branch"]
        if len(branches) > 2:
            return op.outs
        made = [
            [v for v, a in zip(op.outs, jaxpr.outvars, strict=True) if a not in jaxpr.invars]
            for jaxpr in branches
        ]
        return max(made, key=lambda vs: sum(self.sizes[v] for v in vs), default=())


def in_lines(size: int) -> int:
    """The bytes of the lines that so many bytes fill."""
    return -(-size // LINE) * LINE


def key_of(atom: ir.Atom, number: int) -> object:
    """What an operand is, for equations that XLA merges because they compute the same."""
    if not isinstance(atom, ir.Literal):
        return number
    return (atom.aval, str(atom.value)) if ir.is_scalar(atom) else id(atom.value)
