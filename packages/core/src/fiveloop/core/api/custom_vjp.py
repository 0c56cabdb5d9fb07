"""`custom_vjp`: a function whose reverse mode the user writes; forward mode is derived from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from fiveloop.core import ad, ir, pytree, trace, transforms, util
from fiveloop.core.api import custom_checks, custom_function, flatten
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.custom_rule.user_rules import FlatBwd, FlatFwd, FlatJvp, VjpRule
from fiveloop.core.index import views

P = ParamSpec("P")
R = TypeVar("R")


class CustomVJPPrimal(NamedTuple):
    """An argument as `fwd` gets it with `symbolic_zeros`: its value, and whether a derivative by it is wanted."""

    value: Any
    perturbed: bool


class custom_vjp(custom_function.CustomFunction[P, R]):
    """A function whose derivative is what `defvjp` says.

    `fwd` takes the function's arguments, and returns its result and residuals: any pytree of arrays. `bwd` takes
    the residuals and the cotangent of the result, and returns a tuple of cotangents, one an argument; None counts
    as zero. Of a Ref, it gives the cotangent of what the Ref held at the call; what `fwd` writes has no derivative.
    Arguments in `nondiff_argnums` and `nondiff_argnames` are static: `fwd` takes them in their places, `bwd` takes them
    first.
    Forward mode is derived by transposing `bwd`, which is linear in the cotangent. Without derivatives, the function
    itself runs.

    >>> @custom_vjp
    ... def f(x):
    ...     return x * x
    >>> f.defvjp(lambda x: (f(x), x), lambda x, ct: (10.0 * x * ct,))
    >>> grad(f)(3.0)  # doctest: +SKIP
    Array(30., dtype=float32)
    """

    what = "custom_vjp"
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None
    symbolic_zeros = False

    def defvjp(
        self, fwd: Callable[..., Any], bwd: Callable[..., Any], symbolic_zeros: bool = False
    ) -> None:
        """Give the rules: `fwd(*args)` returns `(result, residuals)`, `bwd(*static, residuals, ct)` cotangents.

        With `symbolic_zeros`, each array among the arguments of `fwd` is a `CustomVJPPrimal`, and cotangents that are
        known to be zero are `SymbolicZero`.
        """
        flatten.check_callable(f"defvjp of {self.name}: fwd", fwd)
        flatten.check_callable(f"defvjp of {self.name}: bwd", bwd)
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    def closed_parts(self) -> list[Any]:
        """The function and its rules."""
        return [self.fun, self.fwd, self.bwd]

    def check_rule(self) -> None:
        """Raise if there is no rule yet."""
        if self.fwd is None:
            raise TypeError(
                f"custom_vjp of {self.name}: expected rules before the first call, got none; give them with "
                f"`{self.name}.defvjp(fwd, bwd)`"
            )

    def static_argument(self, k: int, x: Any) -> Any:
        """Traced values cannot be static."""
        for leaf in pytree.tree_leaves(x):
            if isinstance(leaf, trace.Tracer):
                raise TypeError(
                    f"custom_vjp of {self.name}: expected Python values and concrete arrays as the arguments that "
                    f"nondiff_argnums names, got {leaf!r} as number {k}; take it out of nondiff_argnums, and let bwd "
                    f"return None for it"
                )
        return x

    def rule_of(
        self, call: custom_function.Call
    ) -> tuple[custom_function.MakeRule, Callable[..., ad.Values]]:
        """The rule for one call, and a trial of it."""
        fwd = flat_fwd(self.fwd, self.bwd, call, self.symbolic_zeros)
        bwd_name = ir.function_source(self.bwd)

        def make_rule(closure: Closure, home: trace.Trace | None) -> VjpRule:
            return VjpRule(call.flat, closure, home, fwd, bwd_name)

        return make_rule, vjp_probe(fwd)


def vjp_probe(fwd: FlatFwd, jvp: FlatJvp | None = None) -> Callable[..., ad.Values]:
    """A trial of both rules, on a cotangent that is zero."""

    def probe(*values: Value) -> list[Value]:
        outs, res, back = fwd(values, tuple(x.aval.differentiable for x in values))
        cts = back(res, [transforms.instantiate(transforms.zero_like(x)) for x in outs])
        found = [*outs, *[transforms.instantiate(ct) for ct in cts if not ct.aval.accumulates]]
        if jvp is not None:
            found += jvp(values, [transforms.instantiate(transforms.zero_like(x)) for x in values])[
                0
            ]
        return found

    return probe


def flat_fwd(fwd: Any, bwd: Any, call: custom_function.Call, symbolic_zeros: bool) -> FlatFwd:
    """The user's rules as functions of leaves, whose results are checked."""
    name = custom_checks.RuleName("fwd", fwd, call.name)

    def flat(values: ad.Values, perturbed: util.Mask) -> tuple[list[Value], list[Value], FlatBwd]:
        leaves: Sequence[Any] = values
        if symbolic_zeros:
            leaves = [CustomVJPPrimal(x, u) for x, u in zip(values, perturbed, strict=True)]
        out, res = name.pair(call.with_all(fwd, leaves), "(result, residuals)")
        outs, tree = custom_checks.check_outs(name, out, call.flat.out_tree, call.out_avals)
        call.flat.out_tree = tree
        res_leaves, res_tree = flatten.flatten_values(
            res, lambda path: f"{name}: the residual{pytree.keystr(path)}"
        )
        _refuse_new_refs(name, res, res_leaves, values)

        def back(res: ad.Values, cts: ad.Tangents) -> list[ad.Tangent]:
            given = [custom_checks.as_given(ct, symbolic_zeros) for ct in cts]
            residuals, ct = pytree.tree_unflatten(res_tree, res), pytree.tree_unflatten(tree, given)
            result = bwd(*call.static.values(), residuals, ct)
            return custom_checks.check_cotangents(bwd_name, result, arg_avals, call.tree, perturbed)

        # Of a Ref, bwd speaks of what it holds.
        arg_avals: list[ir.Aval] = [
            ir.ShapedArray(x.shape, x.dtype)
            if x.aval.accumulates and x.aval.differentiable
            else x.aval
            for x in values
        ]
        return outs, res_leaves, back

    bwd_name = custom_checks.RuleName("bwd", bwd, call.name)
    return flat


def _refuse_new_refs(
    name: custom_checks.RuleName, res: Any, leaves: ad.Values, args: ad.Values
) -> None:
    given = {id(x) for x in args}
    for k, x in enumerate(leaves):
        if x.aval.accumulates and id(views.base_of(x)) not in given:
            path = pytree.keystr(pytree.tree_flatten_with_path(res)[0][k][0])
            raise name.error(
                f"must keep only Refs that are arguments of {name.of}, got one of type {x.aval} as the residual{path} "
                f"that is not: each pull would find what the one before it wrote; keep what it holds, `ref[...]`, "
                f"or pass the Ref as an argument"
            )
