"""Rules of `custom_root` (implicit function theorem) and `custom_linear_solve`."""

from __future__ import annotations

from collections.abc import Callable

from fiveloop.core import ad, errors, ir, prims, trace, transforms, util
from fiveloop.core.arrays import Value
from fiveloop.core.closed_call import jvp_of
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.custom_rule.linear import transposed
from fiveloop.core.custom_rule.primitive import Rule, RuleParams, custom_rule_p
from fiveloop.core.custom_rule.user_rules import UserRule
from fiveloop.core.dataclass import dataclass, replace

Operator = Callable[[ad.Values], list[Value]]
"""A function of the leaves of the unknown."""
Solver = Callable[[Operator, ad.Values], list[Value]]
"""From an operator, and a guess or a right-hand side, to a solution and whatever comes with it."""


def applied(jaxpr: ir.Jaxpr, params: ad.Values) -> Operator:
    """The function of the last inputs of a jaxpr."""
    return lambda xs: transforms.eval_jaxpr(jaxpr, [*params, *xs])


def tangent_of(
    jaxpr: ir.Jaxpr, params: ad.Values, dots: ad.Tangents, x: ad.Values
) -> list[ad.Tangent]:
    """How `jaxpr : [*params, *x] -> [*y]` changes with its parameters, at fixed x."""
    return jvp_of(jaxpr, [*params, *x], [*dots, *map(transforms.zero_like, x)])[1]


@dataclass(eq=False, repr=False)
class RootRule(UserRule):
    """`[*closed, *params, *guess] -> [*x, *aux]` with f(params, x) = 0.

    f : [*params, *x] -> [*residual]
    """

    kind = "root"
    ignores_closed = True
    f: ir.Jaxpr
    num_params: int
    tangent_solve: Solver

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """Solve, and then the linearised equation for the tangent; the guess does not matter."""
        outs = trace.bind(custom_rule_p, *primals, params=p)
        closed, params, guess = util.split_list(primals, [p.num_closed, self.num_params])
        dots = tangents[p.num_closed :][: self.num_params]
        x, aux = util.split_list(outs, [len(guess)])
        changed = tangent_of(self.f, params, dots, x)
        if all(isinstance(t, ad.Zero) for t in changed):
            return outs, [transforms.zero_like(y) for y in outs]
        x_dot = self._solved(closed, params, x, changed)
        return outs, [*x_dot, *[transforms.zero_like(y) for y in aux]]

    def _solved(
        self, closed: ad.Values, params: ad.Values, x: ad.Values, changed: ad.Tangents
    ) -> list[ad.Tangent]:
        nonzero = (*(False,) * len(params), *(True,) * len(x))
        # known : [*params, *x] -> [*residual, *saved] ; linear : [*saved, *x_dot] -> [*residual_dot]
        known, linear, out_nonzero, num_saved = transforms.linearize_jaxpr(self.f, nonzero)
        results = transforms.eval_jaxpr(known, [*params, *x])
        saved = results[len(results) - num_saved :]

        def solve(values: ad.Values, rhs: ad.Tangents) -> ad.Duals:
            def operator(x_dot: ad.Values) -> list[Value]:
                found = transforms.eval_jaxpr(linear, [*values, *x_dot])
                full = transforms.with_zeros(out_nonzero, found, [y.aval for y in x_dot])
                return [*map(transforms.instantiate, full)]

            return [], [*self.tangent_solve(operator, [*map(transforms.instantiate, rhs)])]

        rhs = [t if isinstance(t, ad.Zero) else prims.neg(t) for t in changed]
        return self.closure.run(solve, closed, saved, rhs)[1]


@dataclass(frozen=True, eq=False)
class System:
    """A linear system: its operator and the operator's transpose, and how each is solved.

    matvec, vecmat : [*params, *x] -> [*y]
    """

    matvec: ir.Jaxpr
    solve: Solver
    vecmat: ir.Jaxpr | None
    transpose_solve: Solver | None

    def transposed(self) -> System:
        """The system of the transposed operator, if it can be solved."""
        assert self.vecmat is not None and self.transpose_solve is not None, "unreachable: asked"
        return System(self.vecmat, self.transpose_solve, self.matvec, self.solve)


def transposed_operator(matvec: ir.Jaxpr, num_params: int) -> ir.Jaxpr:
    """The transpose of `matvec : [*params, *x] -> [*x]` in x."""
    linear = (False,) * num_params + (True,) * len(matvec.outvars)
    return transposed(matvec, linear, [a.strong() for a in matvec.in_avals], "vecmat")


@dataclass(eq=False, repr=False)
class SolveRule(Rule):
    """`[*closed, *params, *b] -> [*x, *aux]` with A(params) x = b: linear in b, and so is its transpose."""

    kind = "linear_solve"
    transposes = True
    ignores_closed = True
    system: System
    closure: Closure
    home: trace.Trace | None
    num_params: int
    aux_avals: list[ir.Aval] | None = None

    def call(self, p: RuleParams, values: ad.Values) -> list[Value]:
        """Solve by the user's function."""
        if p.jaxpr is not None:
            return super().call(p, values)
        closed, params, b = util.split_list(values, [p.num_closed, self.num_params])

        def run(values: ad.Values, _: ad.Tangents) -> ad.Duals:
            params, b = util.split_list(values, [self.num_params])
            return self.system.solve(applied(self.system.matvec, params), b), []

        outs = self.closure.run(run, closed, [*params, *b])[0]
        self.aux_avals = [x.aval for x in outs[len(b) :]]
        return outs

    def types(self, p: RuleParams, avals: ir.Avals) -> list[ir.Aval]:
        """Those of the right-hand side; the solver runs for those of what comes with the solution, if it has not."""
        if self.aux_avals is None:
            return super().types(p, avals)
        found = [a.strong() for a in avals[p.num_closed + self.num_params :]]
        return [*found, *self.aux_avals]

    def jvp(self, p: RuleParams, primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        """A x_dot = b_dot - A_dot x."""
        outs = trace.bind(custom_rule_p, *primals, params=p)
        closed, params, b = util.split_list(primals, [p.num_closed, self.num_params])
        _, dots, b_dot = util.split_list(tangents, [p.num_closed, self.num_params])
        x, aux = util.split_list(outs, [len(b)])
        rhs: list[ad.Tangent] = list(b_dot)
        if any(transforms.nonzero_mask(dots)):
            moved = tangent_of(self.system.matvec, params, dots, x)
            rhs = [
                transforms.add_tangents(t, m if isinstance(m, ad.Zero) else prims.neg(m))
                for t, m in zip(b_dot, moved, strict=True)
            ]
        if not any(transforms.nonzero_mask(rhs)):
            return outs, [transforms.zero_like(y) for y in outs]
        args = [*closed, *params, *[transforms.instantiate(t) for t in rhs]]
        found = trace.bind(custom_rule_p, *args, params=p)
        return outs, [*found[: len(b)], *[transforms.zero_like(y) for y in aux]]

    def transpose(self, p: RuleParams, cts: ad.Tangents, operands: ad.Operands) -> ad.Cotangents:
        """Solve the transposed system."""
        first = p.num_closed + self.num_params
        known = [x for x in operands[:first] if isinstance(x, Value)]
        unknown = [x for x in operands[first:] if isinstance(x, ad.UndefinedPrimal)]
        if len(known) + len(unknown) < len(operands):
            raise errors.RuleError(
                f"the linear solve of {p.name} is linear in its right-hand side alone, got other linear operands"
            )
        if self.system.transpose_solve is None:
            raise errors.RuleError(
                f"the linear solve of {p.name} has no transpose: expected transpose_solve or symmetric=True, got "
                f"neither; give one"
            )
        b_bar = [transforms.instantiate(ct) for ct in cts[: len(operands) - first]]
        rule = SolveRule(self.system.transposed(), self.closure, self.home, self.num_params)
        rule.holds_traced, rule.aux_avals = self.holds_traced, self.aux_avals and None
        params = RuleParams(rule, name=p.name, num_closed=p.num_closed, axes=p.axes, scope=p.scope)
        if p.jaxpr is not None:
            avals = [x.aval for x in [*known, *b_bar]]
            jaxpr = trace.stage_closed(lambda *xs: rule.call(params, xs), avals, p.name)
            params = replace(params, jaxpr=jaxpr)
        found = trace.bind(custom_rule_p, *known, *b_bar, params=params)[: len(b_bar)]
        return [*[None] * first, *prims.of_linear(operands[first:], found)]
