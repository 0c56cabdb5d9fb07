"""The linear half of a function with a backward rule: `[*known, *dots] -> [*out_dots]`, given by its transpose.

Its forward computation is derived only if it is needed: by transposing the backward rule, or from the user's jvp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fiveloop.core import ad, errors, ir, prims, rules, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call import jvp_of
from fiveloop.core.custom_rule.primitive import Rule, RuleParams, custom_rule_p
from fiveloop.core.dataclass import dataclass, replace

Backward = Callable[[ad.Values, ad.Tangents], ad.Tangents]
"""From known values and cotangents of the results to cotangents of the linear operands."""
Forward = Callable[[ad.Values, ad.Values], ad.Tangents]
"""From known values and tangents to tangents of the results."""


@dataclass(eq=False, repr=False)
class LinearRule(Rule):
    """A linear function of its last operands by its transpose `backward`, and by itself if `forward` is given.

    `bwd` is what messages call the function behind `backward`.
    """

    kind = "bwd"
    transposes = True
    has_bwd = True
    backward: Backward
    forward: Forward | None
    num_known: int
    out_avals: list[ir.Aval]
    bwd: str
    home: trace.Trace | None
    holds_traced: bool
    _jaxpr: ir.Jaxpr | None = None

    def call(self, p: RuleParams, values: ad.Values) -> list[Value]:
        """The function itself, as it is given or derived."""
        if self._is_online():
            return self._now(p, values)
        return transforms.eval_jaxpr(self.jaxpr(p, [x.aval for x in values]), values)

    def _is_online(self) -> bool:
        return self.home is not None and not trace.is_staging(trace.current_trace())

    def narrowed(self, avals: ir.Avals, forward: Sequence[bool]) -> tuple[LinearRule, util.Mask]:
        """The same rule for the known operands that it uses, of types `avals`, and which those are.

        `forward` marks the operands that forward mode uses. All are used where operations run one by one, and if
        `backward` fails when it is traced: its error comes up when it runs.
        """
        everything = (True,) * len(avals)
        if self._is_online():
            return self, everything
        found: list[ad.Tangent] = []

        def flat(*args: Value) -> list[Value]:
            found[:] = self.backward(args[: self.num_known], args[self.num_known :])
            return transforms.nonzero_tangents(found)

        try:
            whole = trace.stage_closed(flat, [*avals, *[a.strong() for a in self.out_avals]])
        except Exception:
            return self, everything
        nonzero, types = transforms.nonzero_mask(found), [t.aval for t in found]
        keep = (*forward, *[True] * len(self.out_avals))
        # jaxpr : [*known that are used, *cts] -> [*nonzero in_cts]
        jaxpr, used = transforms.dce(whole, (True,) * len(whole.outvars), keep)

        def backward(known: ad.Values, cts: ad.Tangents) -> ad.Tangents:
            in_cts = transforms.eval_jaxpr(jaxpr, [*known, *map(transforms.instantiate, cts)])
            return transforms.with_zeros(nonzero, in_cts, types)

        used, given = used[: self.num_known], self.forward

        def as_given(known: ad.Values, dots: ad.Values) -> ad.Tangents:
            assert given is not None, "unreachable: it is given"
            unused: list[Any] = [None] * (len(used) - len(known))
            return given(util.merge(used, unused, known), dots)

        narrow = replace(self, backward=backward, forward=given and as_given, num_known=sum(used))
        return narrow, used

    def types(self, p: RuleParams, avals: ir.Avals) -> list[ir.Aval]:
        """The types of the tangents that come out."""
        return self.out_avals

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """Linear in the last operands; in the known ones, as what was derived is."""
        nonzero = transforms.nonzero_mask(tangents)
        if not any(nonzero[: self.num_known]):
            outs = trace.bind(custom_rule_p, *primals, params=p)
            dots = [transforms.instantiate(t) for t in tangents[self.num_known :]]
            known = primals[: self.num_known]
            return outs, list(trace.bind(custom_rule_p, *known, *dots, params=p))
        if self._is_online():
            return transforms.jvp_flat(lambda *xs: self._now(p, xs), primals, tangents)
        return jvp_of(self.jaxpr(p, [x.aval for x in primals]), primals, tangents)

    def transpose(self, p: RuleParams, cts: ad.Tangents, operands: ad.Operands) -> ad.Cotangents:
        """The backward rule; if it is a known operand that is linear, the transpose of what was derived."""
        known = operands[: self.num_known]
        if any(transforms.is_linear(x) for x in known):
            jaxpr = self.jaxpr(p, [x.aval for x in operands])
            return super().transpose(replace(p, jaxpr=jaxpr), cts, operands)
        found = self.backward([x for x in known if isinstance(x, Value)], cts)
        return [*[None] * self.num_known, *prims.of_linear(operands[self.num_known :], found)]

    def jaxpr(self, p: RuleParams, avals: ir.Avals) -> ir.Jaxpr:
        """What the equation computes, made once."""
        if self._jaxpr is None:
            self._jaxpr = self._given(p, avals) if self.forward else self._derived(p, avals)
        return self._jaxpr

    def _given(self, p: RuleParams, avals: ir.Avals) -> ir.Jaxpr:
        forward = self.forward
        assert forward is not None, "unreachable: it is given"

        def run(*args: Value) -> list[Value]:
            outs_dot = forward(args[: self.num_known], args[self.num_known :])
            return [transforms.instantiate(t) for t in outs_dot]

        return trace.stage_closed(run, avals, p.name)

    def _derived(self, p: RuleParams, avals: ir.Avals) -> ir.Jaxpr:
        """The transpose of the backward rule.

        backward : [*known, *cts]  -> [*in_cts]
        result   : [*known, *dots] -> [*out_dots]
        """

        def backward(*args: Value) -> list[Value]:
            in_cts = self.backward(args[: self.num_known], args[self.num_known :])
            return [transforms.instantiate(ct) for ct in in_cts]

        cts = [a.strong() for a in self.out_avals]
        jaxpr = trace.stage_closed(backward, [*avals[: self.num_known], *cts], p.name)
        linear = (False,) * self.num_known + (True,) * len(cts)
        self._check_linear(p, jaxpr, linear)
        try:
            return transposed(jaxpr, linear, avals, p.name)
        except errors.RuleError as error:
            raise self._no_forward_mode(p, errors.unlocated(error)) from None

    def _now(self, p: RuleParams, values: ad.Values) -> list[Value]:
        """As `_given` or `_derived`, with the user's rule running operation by operation, on values that are known."""
        known, dots = util.split_list(values, [self.num_known])
        if self.forward is not None:
            return [transforms.instantiate(t) for t in self.forward(known, dots)]
        tape = transforms.PartialTrace(trace.current_trace(), self.backward)
        cts = [tape.new_arg(a.strong()) for a in self.out_avals]
        with trace.running(tape):
            in_cts = self.backward(known, cts)
            atoms = [tape.atom(transforms.instantiate(ct)) for ct in in_cts]
        captured, binders = tape.captured
        # linear : [*captured, *cts] -> [*in_cts]
        linear = ir.Jaxpr([*binders, *[ct.binder for ct in cts]], tape.eqns, atoms)
        mask = [False] * len(captured) + [True] * len(cts)
        self._check_linear(p, linear, mask)
        unknown = [ad.UndefinedPrimal(ct.aval) for ct in cts]
        try:
            found = transforms.backward_pass(linear, [*captured, *unknown], dots)
        except errors.RuleError as error:
            raise self._no_forward_mode(p, errors.unlocated(error)) from None
        return [transforms.instantiate(t) for t in found]

    def _check_linear(self, p: RuleParams, jaxpr: ir.Jaxpr, linear: Sequence[bool]) -> None:
        if ir.mutated_positions(jaxpr.effects):
            raise self._no_forward_mode(p, "it writes to a Ref")
        reached = ir.reachable(jaxpr, util.select_by(linear, jaxpr.invars))
        for eqn in jaxpr.eqns:
            fixed = [a for a in eqn.invars if a not in reached]
            adds_one = eqn.primitive.name in ("add", "sub") and len(fixed) == 1
            if adds_one and not _is_zero(fixed[0], jaxpr):
                raise self._no_forward_mode(
                    p, "it adds something to the cotangent that does not depend on it"
                )
        for atom in jaxpr.outvars:
            if atom not in reached and not _is_zero(atom, jaxpr):
                raise self._no_forward_mode(
                    p, "it gives a cotangent that does not depend on the one it is given"
                )

    def _no_forward_mode(self, p: RuleParams, why: str) -> TypeError:
        return TypeError(
            f"{p.name} has no forward mode: it would be derived by transposing {self.bwd}, which must be linear in the "
            f"cotangent, but {why}; give it a jvp too, with `custom_derivative`"
        )


def transposed(jaxpr: ir.Jaxpr, linear: util.Mask, avals: ir.Avals, name: str) -> ir.Jaxpr:
    """The transpose in the inputs that `linear` marks, the last ones, for inputs of the types `avals`.

    jaxpr  : [*known, *linear ins] -> [*outs]
    result : [*known, *cts]        -> [*in cts]
    """
    jaxpr_t, nonzero = transforms.transpose_jaxpr(
        transforms.parted(jaxpr, linear), linear, (True,) * len(jaxpr.outvars)
    )

    types = util.select_by(linear, jaxpr.in_avals)

    def run(*args: Value) -> list[Value]:
        found = transforms.eval_jaxpr(jaxpr_t, args)
        full = transforms.with_zeros(util.select_by(linear, nonzero), found, types)
        return [*map(transforms.instantiate, full)]

    return trace.stage_closed(run, avals, name)


def _is_zero(atom: ir.Atom, jaxpr: ir.Jaxpr) -> bool:
    """Whether an atom is zero whatever the inputs are: a number written out, and what linear operations make of it."""
    if isinstance(atom, ir.Literal):
        return not np.any(atom.value.numpy())  # type: ignore[attr-defined]  # every concrete value has it
    for eqn in jaxpr.eqns:
        if atom in eqn.outvars:
            floats = [a for a in eqn.invars if a.aval.differentiable]
            known = [_is_zero(a, jaxpr) for a in floats]
            if eqn.primitive.name in ("mul", "dot_general") and any(known):
                return True
            # What can be transposed gives zero for zeros.
            rule = rules.transpose_rules.cell(eqn.primitive)
            refused = rule is None or isinstance(rule, rules.Refusal) or ir.jaxprs_in(eqn.params)
            return bool(known) and all(known) and not refused
    return False
