"""Closures made arguments: `closure_convert`, and `custom_gradient`, whose rule is a closure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from fiveloop.core import arrays, ir, pytree, trace, transforms, util
from fiveloop.core.api import custom_checks, custom_vjp, flat_function, flatten, staging

P = ParamSpec("P")
R = TypeVar("R")


@trace.boundary
def closure_convert(
    fun: Callable[..., R], *example_args: Any
) -> tuple[Callable[..., R], list[Any]]:
    """`fun` as a function that takes what it closes over, if that may be differentiated, after its arguments.

    `fun` runs once, on arguments of the types of `example_args`, to which it is bound. What is given back is a function
    of such arguments followed by the closed-over values, and the list of these: traced values of floating types, which
    a function with a custom rule must be given as arguments to have derivatives by them.

    >>> def slope_by_scale(scale):
    ...     f, consts = closure_convert(lambda x: scale * x, 1.0)
    ...     return f(5.0, *[2.0 * c for c in consts])
    >>> grad(slope_by_scale)(3.0)  # doctest: +SKIP
    Array(10., dtype=float32, weak_type=True)
    """
    flatten.check_callable("closure_convert", fun)
    staged, flat = staging.stage_user(fun, example_args, {})
    hoisted = [x.aval.differentiable and not x.aval.accumulates for x in staged.captured]
    held, consts = util.partition(hoisted, staged.captured)
    what = f"closure_convert of {flatten.function_name(fun)}"
    avals = staged.jaxpr.in_avals[len(hoisted) :]

    @trace.boundary
    def converted(*args: Any) -> R:
        num = max(len(args) - len(consts), 0)
        values, tree = flatten.flatten_values((args[:num], {}), f"{what}: arguments")
        given, _ = flatten.flatten_values(args[num:], f"{what}: closed-over values")
        types = [(x.shape, x.dtype) for x in values]
        if tree != flat.in_tree or types != [(a.shape, a.dtype) for a in avals]:
            raise TypeError(
                f"{what}: expected arguments like the examples, {flat.in_tree} of {[*map(str, avals)]}, and then "
                f"{len(consts)} closed-over values, got {tree} of {[str(x.aval) for x in values]}"
            )
        operands = [*util.merge(hoisted, held, given), *values]
        out: R = flat.unflatten(transforms.eval_jaxpr(staged.jaxpr, operands))
        return out

    return converted, [flatten.as_result(x) for x in consts]


class _Rule:
    """A rule on the types of the cotangent: a jaxpr of what it closes over, which it keeps, and of the cotangent."""

    def __init__(
        self, form: tuple[ir.Jaxpr, flat_function.FlatFunction], kept: Sequence[Any]
    ) -> None:
        self.form = form
        self.kept = kept

    def __call__(self, ct: Any) -> Any:
        jaxpr, flat = self.form
        leaves, _ = flatten.flatten_values((self.kept, ct), "custom_gradient: the cotangent")
        return flat.unflatten(transforms.eval_jaxpr(jaxpr, leaves))


pytree.register_node(_Rule, lambda r: (r.kept, r.form), _Rule)


def custom_gradient(fun: Callable[P, tuple[R, Callable[[Any], Any]]]) -> Callable[P, R]:
    """A function that gives its result, and with it the function from a cotangent of it to cotangents of the arguments.

    The second may close over what the first has computed. It gives a tuple, one cotangent an argument, or of one
    argument its cotangent. It is staged when the result is computed, so it cannot branch on values.

    >>> @custom_gradient
    ... def f(x):
    ...     return x * x, lambda ct: (10.0 * x * ct,)
    >>> f(3.0), grad(f)(3.0)  # doctest: +SKIP
    (Array(9., dtype=float32, weak_type=True), Array(30., dtype=float32))
    """
    flatten.check_callable("custom_gradient", fun)
    name = custom_checks.RuleName("custom_gradient", fun, flatten.function_name(fun))

    def parts(args: Sequence[Any]) -> tuple[Any, Any]:
        return name.pair(fun(*args), "(result, function from its cotangent)")  # type: ignore[call-arg]

    primal: Any = wraps(fun)(lambda *args: parts(args)[0])

    def fwd(*args: Any) -> Any:
        out, rule = parts(args)
        types = pytree.tree_map(lambda x: arrays.as_value(x).aval.tangent(), out)
        staged, flat = staging.stage_user(rule, (types,), {})
        return out, _Rule((staged.jaxpr, flat), [flatten.as_result(x) for x in staged.captured])

    def bwd(rule: _Rule, ct: Any) -> Any:
        cts = rule(ct)
        return cts if isinstance(cts, (tuple, list)) else (cts,)

    wrapped: custom_vjp.custom_vjp[P, R] = custom_vjp.custom_vjp(primal)
    wrapped.defvjp(fwd, bwd)
    return wrapped
