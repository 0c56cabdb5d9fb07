"""Dead code: drops carried values that neither a result nor the condition needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fiveloop.core import Jaxpr, ir, rules, transforms, util
from fiveloop.loops.primitives.while_loop import WhileParams, parts


def while_dce(used: Sequence[bool], eqn: ir.Eqn) -> tuple[list[bool], ir.Eqn | None]:
    """The operands still used, and the smaller loop; None if nothing is left of it."""
    p: WhileParams = eqn.params
    if not any(used[p.num_carry :]):
        p = replace(p, kept=())
    used = [u or (bool(p.kept) and p.kept[k]) for k, u in enumerate(used[: p.num_carry])]

    def step(mask: util.Mask) -> util.Mask:
        """What the next step, the condition and the results need of what is carried."""
        needed = [_needs(p.cond, (True,)), _needs(p.body, mask)]
        return tuple(any(masks) for masks in zip(*[parts(p, n)[1] for n in needed], strict=True))

    carry = util.fixpoint(step, used, "the carried values that a while needs")
    needed = zip(_needs(p.cond, (True,)), _needs(p.body, carry), strict=True)
    consts, _, refs = parts(p, [a or b for a, b in needed])
    saved = p.kept[p.num_carry :] or (False,) * len(refs)
    refs = [r or s for r, s in zip(refs, saved, strict=True)]
    kept = [*consts, *carry, *refs]
    params = replace(
        p,
        cond=transforms.dce(p.cond, (True,), keep_ins=kept)[0],
        body=transforms.dce(p.body, carry, keep_ins=kept)[0],
        num_consts=sum(consts),
        kept=tuple(s for s, k in zip(p.kept, kept[p.num_consts :], strict=False) if k),
        record=p.record.keeping(kept),
    )
    cache = eqn.outvars[p.num_carry :] if p.kept else ()
    outvars = [*[v for v, c in zip(eqn.outvars, carry, strict=False) if c], *cache]
    return kept, rules.new_eqn(
        eqn.primitive, util.select_by(kept, eqn.invars), params, outvars, eqn.source
    )


def _needs(jaxpr: Jaxpr, used: Sequence[bool]) -> util.Mask:
    return transforms.dce(jaxpr, used, keep_ins=False)[1]
