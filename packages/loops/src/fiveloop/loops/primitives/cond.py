"""The primitive `cond`: its params, types and effects."""

from __future__ import annotations

import numpy as np

from fiveloop.core import Jaxpr, ir
from fiveloop.core.closed_call import check_operands
from fiveloop.core.dataclass import dataclass
from fiveloop.loops.common import check_params

INDEX = ir.ShapedArray((), np.int32)
WAYS = ("select", "serial", "group")


@dataclass(frozen=True)
class CondParams:
    """The branches, which take the same operands and give results of the same types.

    branches : [*operands]         -> [*results]
    operands : [index, *operands], where index is an int32 scalar in range

    `vmap` says how lanes that choose for themselves run: "select" runs all branches for all lanes, "serial" one lane
    after the other, "group" the lanes of each branch together.
    """

    branches: tuple[Jaxpr, ...]
    vmap: str = "select"


cond_p: ir.Primitive[CondParams] = ir.Primitive("cond")


def cond_abstract_eval(avals: ir.Avals, p: CondParams) -> ir.Typing:
    """The types of a branch's results, weak if they are in all; the effects of any branch."""
    count = len(p.branches)
    check_params(
        "cond",
        ("branches", count, count > 0, "at least one jaxpr"),
        ("vmap", p.vmap, p.vmap in WAYS, f"one of {WAYS}"),
        ("operands", len(avals), len(avals) > 0, "an index and what the branches take"),
    )
    index, *operands = avals
    if index.strong() is not INDEX:
        raise TypeError(f"cond: the index must be {INDEX}, got {index}")
    outs = list(p.branches[0].out_avals)
    for k, branch in enumerate(p.branches):
        check_operands(f"cond: branch {k}", operands, branch)
        if [a.strong() for a in branch.out_avals] != [a.strong() for a in outs]:
            raise TypeError(f"cond: branch {k} gives {branch.out_avals}, branch 0 {outs}")
        outs = [a if b.weak_type else b for a, b in zip(outs, branch.out_avals, strict=True)]
    effects = frozenset(e for branch in p.branches for e in branch.effects)
    return outs, ir.map_positions(effects, lambda position: position + 1)
