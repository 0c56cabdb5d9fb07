"""`custom_derivative`: a rule for one mode or for both; the missing one is derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from fiveloop.core import ad, ir, trace
from fiveloop.core.api import custom_function, custom_jvp, custom_vjp, flatten
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.custom_rule.user_rules import VjpRule

P = ParamSpec("P")
R = TypeVar("R")


@trace.boundary
def custom_derivative(
    fun: Callable[P, R],
    *,
    jvp: Callable[..., Any] | None = None,
    fwd: Callable[..., Any] | None = None,
    bwd: Callable[..., Any] | None = None,
    nondiff_argnums: int | Sequence[int] = (),
    nondiff_argnames: str | Sequence[str] = (),
    symbolic_zeros: bool = False,
) -> Callable[P, R]:
    """`fun` with the derivative that is given: by a jvp, by `fwd` and `bwd`, or by both.

    With both, forward mode is `jvp`, and reverse mode is `fwd` and `bwd`. A missing reverse mode is the transpose of
    `jvp`; a missing forward mode is the transpose of `bwd`, and using it is an error that says why, where `bwd` cannot
    be transposed. The rules are those of `custom_jvp` and `custom_vjp`.

    >>> f = custom_derivative(lambda x: x * x, jvp=lambda x, t: (x[0] * x[0], 10.0 * x[0] * t[0]))
    >>> f(3.0)
    Array(9., dtype=float32, weak_type=True)
    """
    flatten.check_callable("custom_derivative", fun)
    what = f"custom_derivative of {flatten.function_name(fun)}"
    if (fwd is None) is not (bwd is None):
        given, missing = ("fwd", "bwd") if bwd is None else ("bwd", "fwd")
        raise TypeError(
            f"{what}: expected both fwd and bwd or neither, got only {given}; give {missing} too"
        )
    if jvp is None and fwd is None:
        raise TypeError(
            f"{what}: expected a rule, got none; give a jvp, or fwd and bwd, or all of them"
        )
    if fwd is None or bwd is None:
        forward = custom_jvp.custom_jvp(fun, nondiff_argnums, nondiff_argnames)
        forward.defjvp(jvp, symbolic_zeros)  # type: ignore[type-var]  # one of the two is given
        return forward
    both = _BothModes(fun, nondiff_argnums, nondiff_argnames)
    both.defvjp(fwd, bwd, symbolic_zeros)
    if jvp is not None:
        flatten.check_callable(f"{what}: jvp", jvp)
        both.forward = jvp
    return both


class _BothModes(custom_vjp.custom_vjp[P, R]):
    """A function with fwd and bwd, and perhaps a jvp as well."""

    what = "custom_derivative"
    forward: Callable[..., Any] | None = None

    def closed_parts(self) -> list[Any]:
        """The function and its rules."""
        return [*super().closed_parts(), self.forward]

    def rule_of(
        self, call: custom_function.Call
    ) -> tuple[custom_function.MakeRule, Callable[..., ad.Values]]:
        """The rule for one call, and a trial of it."""
        if self.forward is None:
            return super().rule_of(call)
        fwd = custom_vjp.flat_fwd(self.fwd, self.bwd, call, self.symbolic_zeros)
        jvp = custom_jvp.flat_jvp(self.forward, call, self.symbolic_zeros)
        bwd_name = ir.function_source(self.bwd)

        def make_rule(closure: Closure, home: trace.Trace | None) -> VjpRule:
            return VjpRule(call.flat, closure, home, fwd, bwd_name, jvp)

        return make_rule, custom_vjp.vjp_probe(fwd, jvp)
