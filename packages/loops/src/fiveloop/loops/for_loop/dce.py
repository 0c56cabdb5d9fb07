"""Dead code: a loop without the states, writes and constants that no result needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import ir, rules, transforms, util
from fiveloop.loops.analysis.slots import drop_dead_writes
from fiveloop.loops.primitives.for_loop import by_operand, for_p, is_state, stateful

_MINIMAL = ("for_dce", "minimal")
"""Remembered by a loop's body without dead code, if all the loop's results are used: it is not searched again."""


def for_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The operands still used, and the smaller loop; None if nothing is left of it."""
    p = eqn.params
    if p.num_carry:
        # One that ends early and carries whether it has ended is planned, and what it has no use for is gone.
        if all(used) or (p.end is not None and any(used)):
            return [True] * len(eqn.invars), eqn
        p = stateful(p)
    states = is_state(p, eqn.invars)
    finals = by_operand(p, eqn.invars, used)
    wanted = [k >= p.num_consts if w is None else w for k, w in enumerate(finals)]
    body, kept = _needed(p.body, p.nsteps, p.reverse, tuple(wanted), tuple(states), bool(p.counted))
    outs = util.select_by(kept, by_operand(p, eqn.invars, eqn.outvars))
    outvars = [v for v in outs if v is not None]
    if not outvars and not body.effects and not body.eqns:
        return [False] * len(kept), None
    if all(kept) and body is eqn.params.body:
        return [*kept], eqn
    num_consts = sum(kept[: p.num_consts])
    params = replace(p, body=body, num_consts=num_consts, record=p.record.keeping(kept))
    return [*kept], rules.new_eqn(
        for_p, util.select_by(kept, eqn.invars), params, outvars, eqn.source
    )


@ir.once_per(lambda body, *of_loop: (body, *of_loop))
def _needed(
    body: ir.Jaxpr, nsteps: int, reverse: bool, wanted: util.Mask, states: util.Mask, counted: bool
) -> tuple[ir.Jaxpr, util.Mask]:
    """What the wanted operands need of a loop's body, and which operands it still takes.

    body : [i, *kept operands as the body has them] -> []
    """
    given = body
    unwanted = [
        v for v, w, state in zip(body.invars[1:], wanted, states, strict=True) if state and not w
    ]
    if not all(wanted) or not body.remembers(_MINIMAL):
        body = drop_dead_writes(body, nsteps, unwanted, reverse=reverse)
        body = transforms.needed_body(body, list(util.select_by(wanted, given.invars[1:])))
    touched = ir.used_by(body.eqns)
    kept = [
        v in touched or (w and state) or (k == 0 and counted)
        for k, (v, w, state) in enumerate(zip(given.invars[1:], wanted, states, strict=True))
    ]
    if not all(kept) or body is not given:
        body = body.replace(invars=[body.invars[0], *util.select_by(kept, body.invars[1:])])
        body.remember(_MINIMAL, lambda: True)
    return body, tuple(kept)
