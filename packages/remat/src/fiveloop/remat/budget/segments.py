"""Plans written out: a jaxpr whose stages are checkpoints, and loops whose bodies are."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from fiveloop.core import Jaxpr, ir, rules, transforms, util
from fiveloop.core.dataclass import dataclass
from fiveloop.remat.budget.plans import NO_CHECKPOINT, Again, Parts, Plan, Save
from fiveloop.remat.budget.stages import Program, Stage, unknown_within, without_calls
from fiveloop.remat.policies import as_it_is, everything_saveable, first_of, nothing_saveable
from fiveloop.remat.primitive import CheckpointParams, Origin, checkpoint_p, in_checkpoint


def with_given(policy: transforms.Policy, given: transforms.Policy | None) -> transforms.Policy:
    """A policy that leaves to another what the user's policy has no opinion of."""
    return policy if given is None else first_of(given, policy)


@ir.once_per(lambda jaxpr, given: (jaxpr, given))
def computes_again(jaxpr: Jaxpr, given: transforms.Policy | None) -> bool:
    """Whether the user's policy has values of a program computed again, or fetched again, whatever the plan."""
    plan = transforms.SavingPlan(with_given(everything_saveable, given))
    return given is not None and not _saves_all(plan, jaxpr)


def _saves_all(plan: transforms.SavingPlan, jaxpr: Jaxpr) -> bool:
    """Whether a plan saves the result of each equation on the device, at any depth."""
    labels = transforms.labels_of(jaxpr)
    for eqn in jaxpr.eqns:
        verdict = plan.verdict(eqn, labels)
        if not verdict.saves or isinstance(verdict, rules.Weigh | rules.Offload):
            return False
        if not all(_saves_all(plan.within(eqn), j) for j in ir.jaxprs_in(eqn.params)):
            return False
    return True


class Segments:
    """Plans of a program as checkpoints; equal ones share their params, and so all that is derived from them.

    All have one origin, so that those computed again in one body are kept apart from each other, too.
    """

    def __init__(self, program: Program, given: transforms.Policy | None, name: str = "") -> None:
        self.program = program
        self.given = given
        self.name = name
        self.origin = Origin(name)
        self._params: dict[object, CheckpointParams] = {}

    def jaxpr(self, plan: Plan) -> Jaxpr:
        """The program by a plan; itself if nothing is computed again."""
        jaxpr = self.program.jaxpr
        eqns = jaxpr.eqns if plan == NO_CHECKPOINT else self._eqns(plan)
        is_same = len(eqns) == len(jaxpr.eqns) and all(map(is_, eqns, jaxpr.eqns))
        return jaxpr if is_same else jaxpr.replace(eqns=eqns)

    def in_one(self, jaxpr: Jaxpr) -> Jaxpr:
        """A program by a plan in one checkpoint, whose policy is the user's where that has an opinion."""
        policy = with_given(as_it_is, self.given)
        return in_checkpoint(CheckpointParams(jaxpr, policy, self.origin))

    def _eqns(self, plan: Plan) -> list[ir.Eqn]:
        return [eqn for step in plan for eqn in self._step(step)]

    def _step(self, step: Save | Again) -> Sequence[ir.Eqn]:
        """The equations of a step; a stage without a policy stays as it is, but for the bodies of its loops."""
        program = self.program
        if isinstance(step, Again):
            stage = program.part(self._eqns(step.plan), program.cuts[step.last])
            return [self._segment(stage, nothing_saveable)]
        if step.option.policy is None:
            eqns = program.jaxpr.eqns[program.cuts[step.first] : program.cuts[step.last]]
            return in_parts(eqns, program.unknown, step.option.parts, self.given, self.name)
        return [self._segment(program.stage(step.first, step.last), step.option.policy)]

    def _segment(self, stage: Stage, policy: transforms.Policy) -> ir.Eqn:
        key = (stage.jaxpr, policy)
        if key not in self._params:
            chosen = with_given(policy, self.given)
            self._params[key] = CheckpointParams(stage.jaxpr, chosen, self.origin)
        return rules.new_eqn(checkpoint_p, stage.ins, self._params[key], stage.outs)


@dataclass(frozen=True)
class Body:
    """The body of a loop: equations that read Refs, those that compute, as a jaxpr, and those that write.

    computed : [*what is read, *binders used] -> [*what is written or a result]

    `jaxpr` is all of it, with what it calls in place.
    """

    whole: rules.Body
    jaxpr: Jaxpr
    reads: Sequence[ir.Eqn]
    computed: Jaxpr
    writes: Sequence[ir.Eqn]
    unknown: util.Mask

    @property
    def carried(self) -> set[ir.Var]:
        """What is read of Refs that the body changes."""
        changed = {v for eqn in self.writes for v in ir.changed_refs(eqn)}
        reads = (e for e in self.reads if not changed.isdisjoint(e.invars))
        return {v for eqn in reads for v in eqn.outvars}

    def in_parts(self, parts: Parts, given: transforms.Policy | None, name: str) -> Jaxpr:
        """The body, of which what is computed follows a plan; the same one for loops with the same body."""

        def make() -> Jaxpr:
            program = Program(self.computed, self.unknown, cuts=parts.cuts)
            eqns = Segments(program, given, name).jaxpr(parts.plan).eqns
            return self.jaxpr.replace(eqns=[*self.reads, *eqns, *self.writes])

        return self.whole.jaxpr.remember(("in parts", self.unknown, parts, given, name), make)


def body_of(eqn: ir.Eqn, unknown: util.Mask) -> Body | None:
    """The body of a loop; None if the equation is no loop, or reads what it has written."""
    bodies = rules.bodies_of(eqn)
    if len(bodies) != 1 or bodies[0].role != "loop":
        return None
    body, key = bodies[0], ("in order", eqn.params, unknown)
    found: Body | None = body.jaxpr.remember(key, lambda: _in_order(body, unknown))
    return found


def _in_order(body: rules.Body, unknown: util.Mask) -> Body | None:
    jaxpr = without_calls(body.jaxpr)
    sorted_eqns = _sorted(jaxpr)
    if sorted_eqns is None:
        return None
    reads, pure, writes = sorted_eqns
    made = {v for e in pure for v in e.outvars}
    ins = [v for v in ir.vars_in_order([a for e in pure for a in e.invars]) if v not in made]
    used = ir.used_by(writes, jaxpr.outvars)
    outs = [v for e in pure for v in e.outvars if v in used]
    late = unknown_within(jaxpr, unknown)
    computed = Jaxpr(ins, pure, outs, jaxpr.name)
    return Body(body, jaxpr, reads, computed, writes, tuple(v in late for v in ins))


def _sorted(jaxpr: Jaxpr) -> tuple[list[ir.Eqn], list[ir.Eqn], list[ir.Eqn]] | None:
    """The equations that read, compute and write, if they may run in this order."""
    reads, pure, writes = list[ir.Eqn](), list[ir.Eqn](), list[ir.Eqn]()
    computed, written = set[ir.Var](), set[ir.Var]()
    for eqn in jaxpr.eqns:
        used = ir.used_vars(eqn.invars)
        if ir.changed_refs(eqn):
            writes.append(eqn)
            written |= {*eqn.outvars, *ir.changed_refs(eqn)}
        elif not written.isdisjoint(used):
            return None
        elif any(a.aval.accumulates for a in (*eqn.invars, *eqn.outvars)) or eqn.effects:
            if not computed.isdisjoint(used):
                return None
            reads.append(eqn)
        else:
            pure.append(eqn)
            computed.update(eqn.outvars)
    return reads, pure, writes


def in_parts(
    eqns: Sequence[ir.Eqn],
    late: set[ir.Var],
    parts: Sequence[Parts | None],
    given: transforms.Policy | None,
    name: str = "",
) -> Sequence[ir.Eqn]:
    """Equations, of which some are loops with bodies that follow plans: one for each, or none; `late` is unknown."""
    if not any(parts):
        return eqns

    def each(eqn: ir.Eqn, plan: Parts | None) -> ir.Eqn:
        body = plan and body_of(eqn, tuple(isinstance(a, ir.Var) and a in late for a in eqn.invars))
        if not body or plan is None:
            return eqn
        new = body.in_parts(plan, given, name)
        old = body.whole.jaxpr
        return eqn.replace(params=ir.with_jaxprs(eqn.params, lambda j: new if j is old else j))

    return list(map(each, eqns, parts))
