"""Arrays that a body reads whole and writes whole, and only indexes and updates in between, as Refs at indices.

`x = x.at[i].set(f(x[i - 1]))` is how arrays are updated where there are no Refs. Its derivative costs the whole
array in every step; that of a Ref which is read and written at the same places costs an element. So it is where a
branch or a call does it, `cond(p, lambda x: x.at[i].set(0), lambda x: x, x)`: they are given the Ref.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fiveloop.core import Jaxpr, ir, rules
from fiveloop.core.ir import indexer
from fiveloop.loops.analysis.array_life import DONE, NO_ORDER, Life, Verdict, carried_as_ref
from fiveloop.loops.analysis.entered import with_bodies
from fiveloop.loops.record import Decision, names_of
from fiveloop.state import AbstractRef, primitives

STEP = "promote"
UNSIZED = "it stays a value: its size is not known"


def promote(body: Jaxpr) -> tuple[Jaxpr, list[Decision]]:
    """The body with Refs that it reads and writes whole read and written at indices, where that is the same."""
    return _promoted(body, dict(zip(body.invars[1:], names_of(body.invars[1:]), strict=True)))


def promote_carried(eqn: ir.Eqn) -> list[ir.Eqn]:
    """A `while` with Refs for the arrays that it carries and its body only indexes; what makes and what reads them."""
    before: list[ir.Eqn] = []
    after: list[ir.Eqn] = []
    for k in reversed(range(eqn.params.num_carry)):
        at, out = eqn.params.num_consts + k, eqn.outvars[k]
        params = carried_as_ref(eqn.params, k) if eqn.invars[at].aval is out.aval else None
        if params is not None:
            ref = ir.Var(AbstractRef(out.aval))
            before.append(
                rules.new_eqn(
                    primitives.new_ref_p,
                    [eqn.invars[at]],
                    primitives.NewRefParams(),
                    [ref],
                    eqn.source,
                )
            )
            after.append(rules.new_eqn(primitives.freeze_p, [ref], ir.NO_PARAMS, [out], eqn.source))
            invars = [*eqn.invars[:at], *eqn.invars[at + 1 :], ref]
            outvars = [*eqn.outvars[:k], *eqn.outvars[k + 1 :]]
            eqn = rules.new_eqn(eqn.primitive, invars, params, outvars, eqn.source)
    return [*before, eqn, *after]


def _promoted(body: Jaxpr, names: Mapping[ir.Var, str]) -> tuple[Jaxpr, list[Decision]]:
    """The same for a body, or for what it chooses or calls; only Refs with a name are looked at."""
    told: list[Decision] = []
    uses = ir.users(body)
    for ref, name in names.items():
        whole = uses.get(ref, [])
        if isinstance(ref.aval, AbstractRef) and ref.aval.shape and _are_whole(whole, ref):
            changed, verdict = _with_indices(body, ref, *whole)
            uses, body = uses if changed is body else ir.users(changed), changed
            told.append(_decision(name, verdict, names))
        elif [eqn.primitive for eqn in whole] == [
            primitives.get_p,
            primitives.swap_p,
        ] and not _is_sized(ref):
            told.append(Decision(STEP, name, False, UNSIZED, whole[0].source))
    body, inner = with_bodies(body, names, _promoted)
    return body, [*told, *inner]


def _decision(name: str, verdict: Verdict, names: Mapping[ir.Var, str]) -> Decision:
    """What is told of a Ref."""
    why = verdict.why
    if isinstance(verdict.given_to, ir.Var) and verdict.given_to in names:
        why = f"it is written whole to `{names[verdict.given_to]}`"
    reason = f"it stays a value: {why}" if why else DONE
    return Decision(STEP, name, not why, reason, verdict.at)


def _with_indices(body: Jaxpr, ref: ir.Var, first: ir.Eqn, last: ir.Eqn) -> tuple[Jaxpr, Verdict]:
    """The body with a Ref, that these equations read and write whole, read and written at indices; or why not."""
    life = Life(ref, body, last)
    verdict = life.follow(first.outvars) or _why_not(life, last)
    if verdict is not None:
        return body, verdict
    eqns = life.eqns([first, last])
    if eqns is None:
        return body, Verdict(NO_ORDER, (life.read_too_late() or last).source)
    return Jaxpr(body.invars, eqns, body.outvars, body.name), Verdict("", first.source)


def _why_not(life: Life, ends: ir.Eqn) -> Verdict | None:
    """Why an array whose life is known stays a value all the same.

    One without an access that is known only at run time does: XLA knows how to deal with it.
    """
    if ends.invars[1] not in life.last:
        return _not_handed_on(life, ends)
    if not life.is_dynamic:
        return Verdict("it is indexed at fixed places alone", ends.source)
    if life.names & ir.used_vars(life.jaxpr.outvars):
        return Verdict("the body returns it for something else, too", None)
    return None


def _not_handed_on(life: Life, ends: ir.Eqn) -> Verdict:
    """Why what the body hands on to the next step is not the array after all its updates."""
    made = ir.makers(life.jaxpr)
    out = ends.invars[1]
    if out in life.names:
        update = made[life.last[0]]
        return Verdict(
            "the body updates it here, and hands on a version from before", update.source
        )
    maker = made.get(out) if isinstance(out, ir.Var) else None
    if maker is None:
        return Verdict("the body hands on another array in its place", ends.source)
    if maker.primitive is primitives.get_p:
        return Verdict(
            "the body hands on what another part of the carry held in its place", ends.source
        )
    return Verdict(
        f"the body hands on what `{maker.primitive}` makes in its place, no update of it",
        maker.source,
    )


def _are_whole(uses: Sequence[ir.Eqn], ref: ir.Var) -> bool:
    """Whether a Ref is read whole, and then written whole, and that is all."""
    if [eqn.primitive for eqn in uses] != [primitives.get_p, primitives.swap_p] or uses[
        1
    ].params.returns_old:
        return False
    if not _is_sized(ref):
        return False
    whole = indexer.whole_indexer(ref.aval.shape)
    places = all(eqn.params.indexer == whole and eqn.invars[0] is ref for eqn in uses)
    return places


def _is_sized(ref: ir.Var) -> bool:
    """Whether the sizes of what a Ref holds are known."""
    return all(isinstance(n, int) for n in ref.aval.shape)
