"""Partial evaluation: a loop of what is known, which keeps residuals step by step, and a loop of the rest.

What depends on nothing but constants is computed once, outside. A Ref that the body only reads is read again
by the staged loop. Of the other known values that the staged loop needs, or can be computed from, the plan says
which are kept: they are written to slot `i` of a Ref each. That is a minimum cut unless a policy decides, and
never more than all that is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fiveloop.core import (
    Aval,
    Dim,
    Eqn,
    EqnSplit,
    Literal,
    Mask,
    SavingPlan,
    Split,
    Value,
    Var,
    body_work,
    bytes_of,
    eval_jaxpr,
    is_more,
    mutated_positions,
    new_eqn,
    prune,
    select_by,
    split,
    stage_closed,
    used_vars,
)
from fiveloop.loops.for_loop.primitive import INDEX, ForParams, for_p, is_state, stateful
from fiveloop.loops.for_loop.snapshots import Snapshots, with_snapshots
from fiveloop.loops.for_loop.stacks import zeros_eqn
from fiveloop.loops.planning.derived import of_known, of_staged
from fiveloop.state import AbstractRef


def for_split(
    plan: SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: Eqn
) -> EqnSplit:
    """Cut the loop in two under the plan; what leaves the body is a minimum cut, if the plan leaves that to one."""
    snapshots = with_snapshots(eqn, unknown, inst)
    if snapshots is None or not _keeps_less(snapshots, plan.plainly(), unknown, inst, eqn):
        return _planned(plan, unknown, inst, eqn).split(unknown)
    found = _planned(plan, unknown, inst, snapshots.eqn).split(unknown)
    return EqnSplit(
        [*snapshots.reads, *found.known],
        found.staged,
        tuple(select_by(snapshots.is_result, found.out_unknown)),
    )


def _keeps_less(
    snapshots: Snapshots, plan: SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: Eqn
) -> bool:
    """Whether what Refs hold as a whole is no more than what is read of them; every plan decides alike."""
    p = stateful(eqn.params)
    there, here = _Loop(snapshots.eqn, p, plan, inst), _Loop(eqn, p, plan, inst)
    return not there.keeps_more(here, tuple(unknown), snapshots.bytes)


def _planned(plan: SavingPlan, unknown: Sequence[bool], inst: Sequence[bool], eqn: Eqn) -> _Loop:
    """The loop under the plan, or saved plainly if that keeps less."""
    p = stateful(eqn.params)
    plain = _Loop(eqn, p, plan.plainly(), inst)
    chosen = _Loop(eqn, p, plan.at_boundary(body_work(p.body)), inst)
    is_plain = chosen.plan == plain.plan or chosen.keeps_more(plain, tuple(unknown))
    return plain if is_plain else chosen


@dataclass(slots=True)
class _Residuals:
    """The residuals of a body: those that no step changes, and those of each step."""

    invariant: list[Var]
    stacked: list[Var]


class _Loop:
    def __init__(self, eqn: Eqn, p: ForParams, plan: SavingPlan, inst: Sequence[bool]) -> None:
        self.eqn = eqn
        self.p = p
        self.plan = plan
        self.states = is_state(p, [a.aval for a in eqn.invars])
        mutated = mutated_positions(p.body.effects)
        self.inst = [
            k < p.num_consts or ((state or given) and k + 1 not in mutated)
            for k, (state, given) in enumerate(zip(self.states, inst, strict=True))
        ]

    def split(self, unknown: Sequence[bool]) -> EqnSplit:
        cut = self._split_body(tuple(unknown))
        unknown_ops = cut.unknown_in[1:]
        residuals = self._sort_residuals(cut)
        hoisted, invariant = self._hoist(cut, residuals.invariant)
        known, stacks = self._known(cut, unknown_ops, residuals.stacked)
        staged = self._staged(cut, unknown_ops, residuals, invariant, stacks)
        out_unknown = tuple(u for u, state in zip(unknown_ops, self.states, strict=True) if state)
        return EqnSplit([*hoisted, *known], [staged], out_unknown)

    def _split_body(self, unknown: Mask) -> Split:
        """Split the body; a state that receives an unknown value in some step is unknown in all."""
        while True:
            cut = split(
                self.p.body,
                (False, *unknown),
                (True, *self.inst),
                self.plan,
                fixed_in=(False, *[k < self.p.num_consts for k in range(len(self.inst))]),
            )
            if not any(cut.ref_unknown):
                return cut
            unknown = tuple(u or r for u, r in zip(unknown, cut.ref_unknown[1:], strict=True))

    def keeps_more(self, other: _Loop, unknown: Mask, more: Dim = 0) -> bool:
        """Whether more bytes cross from the known loop to the staged one than in another way to split it.

        A loop within may have found it cheaper to ask for its operands, which this one has to keep. `more` are kept
        besides.
        """
        (stacked, once), (others, others_once) = (
            self._kept_bytes(unknown),
            other._kept_bytes(unknown),
        )
        return is_more(stacked, others) or is_more(stacked + once + more, others + others_once)

    def _kept_bytes(self, unknown: Mask) -> tuple[Dim, Dim]:
        """The bytes of what is kept of each step, and of what is passed on once."""
        cut = self._split_body(unknown)
        residuals = self._sort_residuals(cut)
        consts = self.p.body.invars[1 : 1 + self.p.num_consts]
        taken = [
            v
            for v, t, u in zip(consts, cut.staged_in[1:], cut.unknown_in[1:], strict=False)
            if t and not u
        ]
        return self.p.nsteps * bytes_of(v.aval for v in residuals.stacked), bytes_of(
            v.aval for v in [*residuals.invariant, *taken]
        )

    def _sort_residuals(self, cut: Split) -> _Residuals:
        consts = set(self.p.body.invars[1 : 1 + self.p.num_consts])
        fixed = {v for v in consts if v in cut.known.invars}
        for eqn in cut.known.eqns:
            if not eqn.effects and used_vars(eqn.invars) <= fixed:
                fixed |= set(eqn.outvars)
        return _Residuals(
            [v for v in cut.residuals if v in fixed], [v for v in cut.residuals if v not in fixed]
        )

    def _hoist(self, cut: Split, invariant: Sequence[Var]) -> tuple[list[Eqn], list[Var]]:
        """Equations outside the loop that compute what no step changes."""
        binders = self.p.body.invars[1 : 1 + self.p.num_consts]
        rename: dict[Var, Var | Literal] = dict(zip(binders, self.eqn.invars, strict=False))
        eqns: list[Eqn] = []
        for eqn in prune(cut.known.eqns, invariant) if invariant else []:
            if eqn.effects or not all(a in rename for a in used_vars(eqn.invars)):
                continue
            outs = [Var(v.aval) for v in eqn.outvars]
            eqns.append(
                eqn.replace(
                    invars=tuple(_renamed(rename, a) for a in eqn.invars), outvars=tuple(outs)
                )
            )
            rename.update(zip(eqn.outvars, outs, strict=True))
        return eqns, [rename[v] for v in invariant]  # type: ignore[misc]  # operands of an equation are atoms

    def _known(
        self, cut: Split, unknown: Mask, stacked: Sequence[Var]
    ) -> tuple[list[Eqn], list[Var]]:
        """The known loop, and the stacks of residuals, one slot a step, that it fills.

        cut.known : [i, *known consts, *known refs]            -> [*residuals]
        body      : [i, *known consts, *known refs, *stacks]   -> []
        """
        known = [not u for u in unknown]
        num_consts = sum(known[: self.p.num_consts])
        num_ins = 1 + sum(known)
        core = cut.known.replace(outvars=list(stacked))
        core = core.replace(eqns=prune(core.eqns, core.outvars))

        def run(*args: Value) -> list[Value]:
            for ref, x in zip(args[num_ins:], eval_jaxpr(core, args[:num_ins]), strict=True):
                ref[args[0]] = x
            return []

        stack_avals = [self._stack_aval(v.aval) for v in stacked]
        body = stage_closed(run, [*core.in_avals, *map(AbstractRef, stack_avals)], self.p.body.name)
        empties = [zeros_eqn(a) for a in stack_avals]
        operands = [*select_by(known, self.eqn.invars), *[e.outvars[0] for e in empties]]
        stacks = [Var(a) for a in stack_avals]
        outs = [v for v, u in zip(self.eqn.outvars, self._per_state(unknown), strict=True) if not u]
        record = of_known(self.p, known, core, stacked)
        params = replace(self.p, body=body, num_consts=num_consts, record=record)
        return [
            *empties,
            new_eqn(for_p, operands, params, [*outs, *stacks], self.eqn.source),
        ], stacks

    def _staged(
        self,
        cut: Split,
        unknown: Mask,
        residuals: _Residuals,
        invariant: Sequence[Var],
        stacks: Sequence[Var],
    ) -> Eqn:
        """The staged loop.

        cut.staged : [*residuals, *ins that it takes]                                    -> []
        body       : [i, *invariant, *consts that it takes, *stacks, *refs that it takes] -> []
        """
        taken = cut.staged_in[1:]
        first = self.p.num_consts
        ins = select_by(cut.staged_in[1:], self.p.body.invars[1:])
        num_consts = sum(taken[:first])
        num_inv, num_stacks = len(invariant), len(stacks)

        def run(i: Value, *args: Value) -> list[Value]:
            stack_refs = args[num_inv + num_consts : num_inv + num_consts + num_stacks]
            saved = dict(zip(residuals.stacked, [ref[i] for ref in stack_refs], strict=True))
            saved.update(zip(residuals.invariant, args[:num_inv], strict=True))
            values = [
                *args[num_inv : num_inv + num_consts],
                *args[num_inv + num_consts + num_stacks :],
            ]
            counter = [i] if cut.staged_in[0] else []
            return eval_jaxpr(cut.staged, [*[saved[v] for v in cut.residuals], *counter, *values])

        binders = [v.aval for v in ins]
        stack_refs = [AbstractRef(v.aval) for v in stacks]
        res_avals = [v.aval.strong() for v in invariant]
        body = stage_closed(
            run,
            [INDEX, *res_avals, *binders[:num_consts], *stack_refs, *binders[num_consts:]],
            self.p.body.name,
        )
        atoms = select_by(taken, self.eqn.invars)
        operands = [*invariant, *atoms[:num_consts], *stacks, *atoms[num_consts:]]
        outs: list[Var] = [Var(v.aval) for v in stacks]
        for take, state, unk, out in zip(taken, self.states, unknown, self._outs(), strict=True):
            if take and state and out is not None:
                outs.append(out if unk else Var(out.aval))
        record = of_staged(self.p, taken, invariant, num_stacks)
        params = replace(self.p, body=body, num_consts=num_inv + num_consts, record=record)
        return new_eqn(for_p, operands, params, outs, self.eqn.source)

    def _stack_aval(self, aval: Aval) -> Aval:
        return aval.strong().batched(self.p.nsteps)

    def _per_state(self, mask: Sequence[bool]) -> list[bool]:
        return [m for m, state in zip(mask, self.states, strict=True) if state]

    def _outs(self) -> list[Var | None]:
        """The result that belongs to each operand, None for one that is no state."""
        outs = iter(self.eqn.outvars)
        return [next(outs) if state else None for state in self.states]


def _renamed(rename: dict[Var, Var | Literal], atom: Var | Literal) -> Var | Literal:
    return rename[atom] if isinstance(atom, Var) else atom
