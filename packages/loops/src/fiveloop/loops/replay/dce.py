"""Dead code: drops states, writes and constants that no result needs, in both passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, ir, rules, transforms, util
from fiveloop.loops.primitives.replay import ReplayParams, replay_p


def replay_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The operands still used, and the smaller equation; None if nothing is left of it."""
    p: ReplayParams = eqn.params
    ahead, back = util.split_list(used, [p.num_forward])
    smaller, kept = needed(p, ahead, back)
    slots = [k for k, c in zip(p.parts(kept)[1], p.cached, strict=False) if c]
    in_cache = [*[any(slots)] * 2, *slots] if any(p.cached) else []
    outvars = util.select_by(kept[p.num_consts :], eqn.outvars)
    if not outvars and not smaller.forward.eqns and not smaller.backward.eqns:
        return [False] * len(eqn.invars), None
    mask = [True, *kept, *in_cache]
    invars = util.select_by(mask, eqn.invars)
    return mask, rules.new_eqn(replay_p, invars, smaller, outvars, eqn.source)


def needed(
    p: ReplayParams, ahead: Sequence[bool], back: Sequence[bool]
) -> tuple[ReplayParams, util.Mask]:
    """What some final states, forward and backward, are computed by; and which operands that takes."""
    first, num = 1 + p.num_consts, len(p.forward.invars)
    wanted = list(ahead)
    while True:
        # What the backward pass reads of a forward state, every step has to bring up to date.
        ends = util.select_by([*wanted, *back], p.backward.invars[first:])
        backward = transforms.needed_body(p.backward, ends if any(back) else ())
        seen = ir.used_by(backward.eqns)
        grown = [w or v in seen for w, v in zip(wanted, backward.invars[first:num], strict=True)]
        if grown == wanted:
            break
        wanted = grown
    forward = transforms.needed_body(p.forward, util.select_by(wanted, p.forward.invars[first:]))
    if not any(back):
        backward = forward.replace(invars=[*forward.invars, *p.backward.invars[num:]])
    kept = tuple(
        used or want
        for used, want in zip(
            _used(forward, backward), [*[False] * p.num_consts, *wanted, *back], strict=True
        )
    )
    smaller = replace(
        p,
        forward=_on(forward, kept),
        backward=_on(backward, kept),
        num_consts=sum(kept[: p.num_consts]),
        lane_counts=sum(kept[: p.lane_counts]),
        # As many as before, though each is smaller.
        slots=p.settled_slots if any(p.cached) else p.slots,
        cached=tuple(c for k, c in zip(p.parts(kept)[1], p.cached, strict=False) if k),
        record=p.record.keeping(kept),
    )
    return smaller, kept


def _used(forward: Jaxpr, backward: Jaxpr) -> list[bool]:
    """Which operands some equation of either body uses."""
    ahead, back = ir.used_by(forward.eqns), ir.used_by(backward.eqns)
    used = [v in back for v in backward.invars[1:]]
    for k, v in enumerate(forward.invars[1:]):
        used[k] = used[k] or v in ahead
    return used


def _on(body: Jaxpr, kept: Sequence[bool]) -> Jaxpr:
    """The body with only those binders that stand for the operands kept."""
    k, *binders = body.invars
    return body.replace(invars=[k, *util.select_by(kept[: len(binders)], binders)])
