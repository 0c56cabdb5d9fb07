"""`custom_jvp`: a function whose forward mode the user writes; reverse mode is its transpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from fiveloop.core import ad, prims, pytree, trace, transforms
from fiveloop.core.api import custom_checks, custom_function, flatten, operands
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.custom_rule.user_rules import FlatJvp, JvpRule

P = ParamSpec("P")
R = TypeVar("R")
JvpFunction = TypeVar("JvpFunction", bound=Callable[..., tuple[Any, Any]])


class custom_jvp(custom_function.CustomFunction[P, R]):
    """A function whose derivative is what `defjvp` says.

    The rule takes the arguments as a tuple, and their tangents as another, and returns the result and its tangent,
    which must be linear in the tangents: reverse mode is its transpose. Arguments in `nondiff_argnums` are static,
    and so are those in `nondiff_argnames`; the rule takes them first. Without derivatives, the function itself runs.

    >>> @custom_jvp
    ... def f(x):
    ...     return x * x
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return f(x), 10.0 * x * t
    >>> grad(f)(3.0)  # doctest: +SKIP
    Array(30., dtype=float32)
    """

    what = "custom_jvp"
    given_by = "defjvp(rule)"
    symbolic_zeros = False

    def defjvp(self, rule: JvpFunction, symbolic_zeros: bool = False) -> JvpFunction:
        """Give the rule: `rule(*static, primals, tangents)` returns the result and its tangent.

        With `symbolic_zeros`, tangents that are known to be zero are `SymbolicZero`, and may be returned as such.
        """
        flatten.check_callable(f"defjvp of {self.name}", rule)
        self.rule, self.symbolic_zeros = rule, symbolic_zeros
        return rule

    @trace.boundary
    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Give a rule for each argument: `rule(tangent, result, *primals)` is its part of the tangent; None is zero.

        >>> f = custom_jvp(lambda x, y: x * y)
        >>> f.defjvps(lambda x_dot, out, x, y: x_dot * y, None)
        """
        if self.nondiff_argnums:
            raise TypeError(
                f"defjvps of {self.name}: expected a function without nondiff_argnums; use `defjvp`"
            )
        for rule in rules:
            if rule is not None:
                flatten.check_callable(f"defjvps of {self.name}", rule)

        def rule_of_all(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
            if len(rules) != len(primals):
                raise TypeError(
                    f"defjvps of {self.name}: expected a rule for each of its {len(primals)} arguments, or None, got "
                    f"{len(rules)}"
                )
            out = self(*primals)  # type: ignore[call-arg]  # the arguments that it was called with
            parts = [
                rule(t, out, *primals)
                for rule, t in zip(rules, tangents, strict=True)
                if rule is not None
            ]
            if not parts:
                return out, pytree.tree_map(custom_checks.SymbolicZero.from_primal_value, out)
            return out, pytree.tree_map(_sum, *parts)

        self.rule, self.symbolic_zeros = rule_of_all, False

    def static_argument(self, k: int, x: Any) -> Any:
        """Arrays among static arguments have no derivative."""
        return pytree.tree_map(
            lambda leaf: prims.stop_gradient(leaf) if isinstance(leaf, Value) else leaf, x
        )

    def rule_of(
        self, call: custom_function.Call
    ) -> tuple[custom_function.MakeRule, Callable[..., ad.Values]]:
        """The rule for one call, and a trial of it."""
        flat = flat_jvp(self.rule, call, self.symbolic_zeros)

        def make_rule(closure: Closure, home: trace.Trace | None) -> JvpRule:
            return JvpRule(call.flat, closure, home, flat, self.symbolic_zeros)

        return make_rule, jvp_probe(flat)


def _sum(*parts: Any) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = prims.add(total, part)
    return total


def jvp_probe(flat: FlatJvp) -> Callable[..., ad.Values]:
    """A trial of a rule, on tangents that are zero."""

    def probe(*values: Value) -> list[Value]:
        outs, dots = flat(values, [transforms.instantiate(transforms.zero_like(x)) for x in values])
        return [*outs, *[transforms.instantiate(t) for t in dots]]

    return probe


def flat_jvp(rule: Any, call: custom_function.Call, symbolic_zeros: bool) -> FlatJvp:
    """A user's rule as a function of leaves, whose results are checked."""
    name = custom_checks.RuleName("jvp", rule, call.name)

    def flat(primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        given = [custom_checks.as_given(t, symbolic_zeros) for t in tangents]
        dots = operands.with_tangents(call.tree, primals, given)
        result = rule(*call.static.values(), call.dynamic(primals), call.dynamic(dots))
        out, dots = name.pair(result, "(result, tangent of the result)")
        outs, tree = custom_checks.check_outs(name, out, call.flat.out_tree, call.out_avals)
        call.flat.out_tree = tree
        return outs, custom_checks.check_tangents(name, dots, outs, tree)

    return flat
