"""Kinds of equations, by primitive and types: which XLA:CPU fuses, computes once, or leaves to a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fiveloop.core import Jaxpr, ir, prims, rules, transforms
from fiveloop.core.backend import hlo
from fiveloop.core.dataclass import dataclass
from fiveloop.core.inspect import kept_in_memory, recomputes_in_branches
from fiveloop.core.primitives import dot, running, shape, special, windows
from fiveloop.remat.expanded import expanded, row_loop, scratch

EXPENSIVE = 4
"""Operations an element from which on XLA computes a value once, however many equations use it."""

CHEAP = {"sin", "cos", "tan"}
"""What XLA computes anew for each equation that uses it all the same, of real numbers."""

LIBRARY = 4_096
"""Elements from which on XLA leaves a sum or an extreme of floats to a library."""

WINDOW = 32
"""Elements along an axis from more than which on XLA reduces in windows first, into which it fuses nothing."""

JOINED, LONG = 8, 128
"""More arrays than so many are joined by copies, and so are arrays along the last axis to rows of so many elements."""

ROW, COPIES = 64, 2_048
"""Bytes of a row, and of a result, from which on newer compilers join arrays along the last axis by copies."""

IN_LIBRARY = {"reduce_sum", "reduce_max", "reduce_min"}


@dataclass(frozen=True, slots=True)
class Kind:
    """What is the same for all equations of a primitive with the same params and types of operands.

    An `apart` one is not fused as it is: it is written out, contracts, or is at an index. One that is `full` gives
    numbers of two bytes that are kept in four. A `light` one may be computed again, one that is `once` is not. `alike`
    says whether each element is computed of those at its place. A library `absorbs` what is before it, and one that
    `reduces` does so neither in a library nor in windows.
    """

    apart: bool
    full: bool
    light: bool
    once: bool
    alike: bool
    outer: bool
    absorbs: bool
    reduces: bool


def kind_of(eqn: ir.Eqn) -> Kind:
    """What depends on the primitive of an equation, its params and the types of its operands alone."""
    light, once = weight(eqn)
    apart = eqn.primitive is prims.dot_general_p or picks(eqn) or writes_block(eqn)
    apart = apart or scratch(eqn) is not None or row_loop(eqn) is not None
    reduces = eqn.primitive.name.startswith("reduce_") and not light
    absorbs = reduces and is_in_library(eqn)
    absorbs |= rules.written_out_rules.find(eqn.primitive) is not None
    return Kind(
        apart or written_out(eqn) is not None,
        computes_in_full(eqn),
        light,
        once,
        bool(rules.by_element_rules.find(eqn.primitive)) or selects_by_element(eqn),
        is_outer(eqn),
        absorbs,
        reduces and not absorbs and not is_in_windows(eqn),
    )


def weight(eqn: ir.Eqn) -> tuple[bool, bool]:
    """Whether an equation is light, and whether it is computed once, however many equations use it."""
    if eqn.primitive is prims.resolve_index_p:  # a few cheap operations
        return True, False
    cost = transforms.equation_cost(eqn)
    size = ir.size_of(eqn.outvars[0].aval.shape)
    joins = eqn.primitive is prims.concatenate_p and is_wide(eqn)
    light = cost.again and not pads(eqn) and not joins and not waits(eqn)
    once = cost.flops >= EXPENSIVE * max(size, 1) or eqn.primitive is prims.concatenate_p
    once |= eqn.primitive.name in {"abs", "sign"} and eqn.invars[0].aval.dtype.kind == "c"
    return light, once


def waits(eqn: ir.Eqn) -> bool:
    """Whether newer compilers compute random bits once: older ones drop what they wait for before they fuse."""
    many = eqn.primitive is special.threefry2x32_p and not recomputes_in_branches()
    return many and ir.is_more(ir.size_of(eqn.outvars[0].aval.shape), special.FEW_BITS)


def pads(eqn: ir.Eqn) -> bool:
    """Whether an equation pads an array: one that only cuts it at its edges is a slice to the compiler."""
    if eqn.primitive is not shape.pad_p:
        return False
    added = (*eqn.params.low, *eqn.params.high, *eqn.params.interior)
    return any(not ir.is_constant(n) or n > 0 for n in added)


def pads_edges(eqn: ir.Eqn) -> bool:
    """Whether an equation pads an array at its edges alone."""
    return pads(eqn) and not any(eqn.params.interior)


def is_placed(eqn: ir.Eqn) -> bool:
    """Whether an equation joins, pads, reduces or updates arrays: where it is fused, no two elements share its work."""
    joins = eqn.primitive is prims.concatenate_p or pads(eqn) or writes_block(eqn)
    return joins or eqn.primitive.name.startswith("reduce_")


def joins_halves(eqn: ir.Eqn) -> bool:
    """Whether an equation makes complex numbers of two real ones: it is written over no array."""
    return eqn.primitive.name == "complex"


def is_cheap(eqn: ir.Eqn) -> bool:
    """Whether an equation is computed anew for each that uses it element by element, dear as it looks."""
    return eqn.primitive.name in CHEAP and eqn.outvars[0].aval.dtype.kind != "c"


def is_outer(eqn: ir.Eqn) -> bool:
    """Whether an equation multiplies each element of an array by each of another: there is nothing to contract."""
    if eqn.primitive is not prims.dot_general_p:
        return False
    shape = eqn.invars[0].aval.shape
    return all(shape[k] == 1 for k in eqn.params.contract[0])


def is_reshaped(eqn: ir.Eqn) -> bool:
    """Whether an equation contracts matrices, and gives an array of more axes than their product has."""
    if eqn.primitive is not prims.dot_general_p:
        return False
    return eqn.outvars[0].aval.ndim > len(eqn.params.batch[0]) + 2


def transposed_before_loops(eqn: ir.Eqn, made: Mapping[ir.Var, ir.Eqn]) -> tuple[int, int] | None:
    """Which operand of a product is a matrix that is transposed before a loop of so many turns, if one is."""
    if eqn.primitive is not prims.dot_general_p:
        return None
    xs = [_operand(a, made) for a in eqn.invars]
    return dot.better_transposed(*dot.without_transpose(xs, eqn.params))


def _operand(atom: ir.Atom, made: Mapping[ir.Var, ir.Eqn]) -> hlo.IRValue:
    """An operand as it would be lowered, with the matrix that it is the transpose of."""
    eqn = ir.maker(atom, made, prims.transpose_p)
    of = None if eqn is None or atom.aval.ndim != 2 else _operand(eqn.invars[0], made)
    return hlo.IRValue("", atom.aval.shape, atom.aval.dtype, of)


def is_of_vectors(eqn: ir.Eqn) -> bool:
    """Whether an equation contracts vectors with matrices: the compiler drops an axis where it reads the result."""
    if eqn.primitive is not prims.dot_general_p:
        return False
    sides = zip(eqn.invars, eqn.params.contract, eqn.params.batch, strict=True)
    free = [[n for k, n in enumerate(a.aval.shape) if k not in (*c, *b)] for a, c, b in sides]
    return any(all(n == 1 for n in sizes) for sizes in free)


def is_wide(eqn: ir.Eqn) -> bool:
    """Whether whole rows of several arrays are joined: those are copied, and what joins others is fused."""
    (out,) = (v.aval for v in eqn.outvars)
    if eqn.params.axis != out.ndim - 1:
        return False
    if recomputes_in_branches():
        return out.shape[-1] >= LONG
    size = prims.bytes_of([out])
    return size >= COPIES and out.dtype.itemsize * out.shape[-1] >= ROW


def is_in_library(eqn: ir.Eqn) -> bool:
    """Whether a reduction is left to a library, which takes in what it alone uses, but repeats nothing."""
    (operand,) = eqn.invars
    large = ir.size_of(operand.aval.shape) >= LIBRARY
    return large and operand.aval.differentiable and eqn.primitive.name in IN_LIBRARY


def is_in_windows(eqn: ir.Eqn) -> bool:
    """Whether a reduction is one of windows, and then one of what these gave."""
    shape = eqn.invars[0].aval.shape
    return any(shape[k] > WINDOW for k in eqn.params.axes)


def written_out(eqn: ir.Eqn) -> Jaxpr | None:
    """The jaxpr that is lowered in place of an equation, at the line of that; None if it is like one operation.

    It is where a library reduces: other operations read its result from memory, and nothing from before that is kept.
    """
    rule = rules.written_out_rules.find(eqn.primitive)
    jaxpr = expanded(eqn) if rule is None else rule([a.aval for a in eqn.invars], eqn.params)
    if jaxpr is None:
        return None
    if any(e.primitive.name in IN_LIBRARY and is_in_library(e) for e in jaxpr.eqns):
        return None
    return jaxpr.replace(eqns=[e.replace(source=eqn.source) for e in jaxpr.eqns])


Filling: TypeAlias = tuple[np.dtype[Any], str, ir.Shape, int]
"""A large array of one number: its type, it as text, the shape, and which of the values it is made of, or -1."""


def fillings(eqn: ir.Eqn, ins: Sequence[int]) -> list[Filling]:
    """The large arrays of one number that a compiler makes for an equation that uses numbers in each element."""
    if not rules.by_element_rules.find(eqn.primitive):
        return []
    shape = eqn.outvars[0].aval.shape
    if ir.size_of(shape) < LIBRARY:
        return []
    return [
        (a.aval.dtype, str(a.value) if isinstance(a, ir.Literal) else "", shape, x)
        for a, x in zip(eqn.invars, ins, strict=False)
        if (ir.is_scalar(a) if isinstance(a, ir.Literal) else not a.aval.shape)
    ]


def is_form(eqn: ir.Eqn) -> bool:
    """Whether an equation gives an array again in another form: that alone is not worth moving out of a loop."""
    return eqn.primitive.name in {"broadcast_in_dim", "reshape", "transpose", "rev", "iota"}


def may_leave_loop(eqn: ir.Eqn) -> bool:
    """Whether what is the same in all steps may be computed before a loop: not what is larger than its operands."""
    if eqn.effects or rules.bodies_of(eqn) or not eqn.outvars:
        return False
    made = prims.bytes_of(v.aval for v in eqn.outvars)
    given = prims.bytes_of(a.aval for a in eqn.invars)
    spread = len(eqn.invars) > 1 and rules.by_element_rules.find(eqn.primitive) is not None
    return is_form(eqn) or spread or not ir.is_more(made, given)


def is_number(aval: ir.Aval) -> bool:
    """Whether a type is one of numbers, of which there are some."""
    return (aval.dtype.kind in "iufc" or aval.dtype.name == "bfloat16") and 0 not in aval.shape


def adds_last(eqn: ir.Eqn) -> bool:
    """Whether an equation adds elements to an array, which may be a sum: positions along one axis say where."""
    adds = eqn.primitive is prims.put_p and eqn.params.kind == "add"
    return adds and not picks_at_tables(eqn)


def selects_by_element(eqn: ir.Eqn) -> bool:
    """Whether an equation selects each element by one of the same place."""
    return eqn.primitive is prims.select_p and eqn.invars[0].aval.ndim == eqn.outvars[0].aval.ndim


def runs_across(eqn: ir.Eqn) -> bool:
    """Whether an equation gives running results along an axis that is not the first."""
    if not isinstance(eqn.params, running.CumulativeParams):
        return False
    return any(n != 1 for n in eqn.outvars[0].aval.shape[: eqn.params.axis])


def picks(eqn: ir.Eqn) -> bool:
    """Whether an equation reads elements, or writes them, at an index that is no block."""
    return eqn.primitive in (prims.take_p, prims.put_p) and not eqn.params.indexer.is_block


def has_gaps(eqn: ir.Eqn) -> bool:
    """Whether an equation reads a block with gaps, or writes one."""
    if eqn.primitive not in (prims.take_p, prims.put_p) or not eqn.params.indexer.is_block:
        return False
    return any(abs(span.stride) != 1 for span in eqn.params.indexer.spans)


def writes_block(eqn: ir.Eqn) -> bool:
    """Whether an equation writes a block."""
    return eqn.primitive is prims.put_p and bool(eqn.params.indexer.is_block)


def lies_in(eqn: ir.Eqn, written: ir.Eqn) -> bool:
    """Whether an equation reads a part of the block that another one writes, both at constant places."""
    pairs = zip(eqn.params.indexer.spans, written.params.indexer.spans, strict=True)
    return eqn.params.indexer.is_block and all(
        None not in (span.start, block.start)
        and block.start <= span.low
        and span.low + span.extent <= block.start + block.extent
        for span, block in pairs
    )


def positions(eqn: ir.Eqn) -> Sequence[ir.Atom]:
    """The operands that say where an equation reads or writes elements."""
    return eqn.invars[1 if eqn.primitive is prims.take_p else 2 :]


def index(eqn: ir.Eqn, in_loop: bool) -> ir.Aval | None:
    """The type of all positions in one array, a column for each axis; None if they are given so."""
    (array, *_), indexer = eqn.invars, eqn.params.indexer
    columns = windows.columns_of(indexer, array.aval.shape, in_loop)
    given = [a.aval for a in positions(eqn)]
    if len(columns) == len(given) == 1 and not indexer.lead:
        return None
    dtype = given[0].dtype if given else np.dtype(np.int32)
    return ir.ShapedArray((*windows.batch_shape(indexer), len(columns)), dtype)


def picks_at_tables(eqn: ir.Eqn) -> bool:
    """Whether positions are given along several axes: the compiler has them along one, and copies what it writes."""
    return sum(n != 1 for n in windows.batch_shape(eqn.params.indexer)) > 1


def is_transposed(eqn: ir.Eqn) -> bool:
    """Whether the result lies in memory with its axes in another order."""
    return eqn.primitive.name == "transpose"


def is_turned(eqn: ir.Eqn, batch: Sequence[int]) -> bool:
    """Whether an equation transposes matrices, of which there may be a batch along the first axes."""
    if not is_transposed(eqn):
        return False
    num = len(batch)
    return tuple(batch) == tuple(range(num)) and eqn.params.perm == (*batch, num + 1, num)


def moves_windows(eqn: ir.Eqn) -> bool:
    """Whether windows of an array lie along axes that are not the last of what is read there or written."""
    indexer = eqn.params.indexer
    labels, batch = indexer.labels(new=False), windows.batch_of(indexer)
    return labels[: len(batch)] != batch or (eqn.primitive is prims.put_p and labels == batch)


def widened_in_loop(body: rules.Body) -> set[ir.Var]:
    """The binders of bfloat16 that a loop's body only reads, but for what it contracts: older compilers widen them."""
    if not recomputes_in_branches():
        return set()
    jaxpr, changed = body.jaxpr, ir.mutated_positions(body.jaxpr.effects)
    contracts = [e for e in jaxpr.eqns if e.primitive is prims.dot_general_p]
    contracted = ir.used_vars([a for e in contracts for a in e.invars])
    return {
        v
        for k, v in enumerate(jaxpr.invars)
        if v.aval.dtype.name == "bfloat16" and v not in contracted
        if k < body.carry or (v.aval.accumulates and k not in changed)
    }


def is_kept_short(aval: ir.Aval) -> bool:
    """Whether the compiler keeps numbers of a type in two bytes, and contracts those as they are where it can."""
    return aval.dtype.name == "bfloat16" and not recomputes_in_branches()


def computes_in_full(eqn: ir.Eqn) -> bool:
    """Whether an equation gives numbers of two bytes that XLA:CPU computes, and keeps, in four.

    Older ones compute functions of float16 as they are. Newer compilers contract bfloat16 so, along the rows of the
    first operand.
    """
    dtypes = [v.aval.dtype for v in eqn.outvars]
    if not dtypes or dtypes[0].itemsize != 2 or not eqn.outvars[0].aval.differentiable:
        return False
    if eqn.primitive is prims.dot_general_p:
        (kept,) = eqn.params.contract[0][-1:] or (-1,)
        by_rows = kept == eqn.invars[0].aval.ndim - 1
        return not is_kept_short(eqn.outvars[0].aval) or not by_rows
    tables = rules.by_element_rules, rules.written_out_rules
    widens = dtypes[0].name == "bfloat16" or not recomputes_in_branches()
    return widens and any(table.find(eqn.primitive) for table in tables)


@ir.once_per_jaxpr
def keeps_any(jaxpr: Jaxpr) -> bool:
    """Whether arrays of a jaxpr may be kept in memory so that no kernel computes them again, at any depth."""
    inner = (j for eqn in jaxpr.eqns for j in ir.jaxprs_in(eqn.params))
    return bool(kept_in_memory(jaxpr, False, True)) or any(map(keeps_any, inner))
