"""Derivatives of a function at a point: jvp, linearize and vjp; and the transpose of a linear function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from fiveloop.core import ad, pytree, trace, transforms
from fiveloop.core.api import flat_function, flatten, pullback, staging
from fiveloop.core.api.operands import check_mutable

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
Aux = TypeVar("Aux")


@overload
def jvp(
    fun: Callable[[*Ts], R],
    primals: tuple[*Ts],
    tangents: tuple[Any, ...],
    *,
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...


@overload
def jvp(
    fun: Callable[[*Ts], tuple[R, Aux]],
    primals: tuple[*Ts],
    tangents: tuple[Any, ...],
    *,
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...


@overload
def jvp(
    fun: Callable[..., R],
    primals: list[Any],
    tangents: list[Any],
    *,
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...


@overload
def jvp(
    fun: Callable[..., tuple[R, Aux]],
    primals: list[Any],
    tangents: list[Any],
    *,
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...


@trace.boundary
def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: bool = False,
) -> Any:
    """The result of `fun(*primals)` and its derivative in the direction `tangents`.

    `tangents` has the structure, shapes and dtypes of `primals`; integer arguments take any tangent, which
    counts as zero. With `has_aux` the function returns a pair, whose second part is given back as it is.

    >>> jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    flatten.check_callable("jvp", fun)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise TypeError(
                f"jvp: {name} must be a tuple or a list with one entry an argument, got {type(given).__name__}"
            )
    values, tree = flatten.flatten_values((tuple(primals), {}), _inner("jvp: primals"))
    flat, values = flat_function.lending(fun, tree, values, has_aux)
    given_dots, lent_dots = flat_function.contents_of(tuple(tangents))
    dots = pullback.like_values(
        "jvp: tangents",
        given_dots,
        pytree.tree_structure(tuple(primals)),
        [x.aval for x in values],
        "primals",
    )
    outs, outs_dot = transforms.jvp_flat(flat, values, dots, fun)
    flat.give_back(outs)
    given = [transforms.instantiate(t) for t in outs_dot]
    flat.give_back(given, to=lent_dots)
    return flat.results(outs, flat.unflatten(given[: flat.num_outs]))


def _inner(what: str) -> flatten.Naming:
    """Names for the leaves of `(args, {})`, where `args` goes by one name."""
    return lambda path: f"{what}{pytree.keystr(path[1:])}"


@overload
def linearize(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, Callable[..., R]]: ...


@overload
def linearize(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, Callable[..., R], Aux]: ...


@trace.boundary
def linearize(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)`, and its derivative there as a function of tangents.

    With `has_aux` the function returns a pair, whose second part is given back as it is, third.

    >>> y, f_lin = linearize(lambda x: x * x, 3.0)
    >>> f_lin(1.0)
    Array(6., dtype=float32, weak_type=True)
    """
    flatten.check_callable("linearize", fun)
    values, tree = flatten.flatten_values((primals, {}), flatten.argument_naming("linearize", fun))
    flat, values = flat_function.lending(fun, tree, values, has_aux)
    outs, linear = pullback.linearized(flat, values, fun)
    return flat.results(outs, pullback.Pushforward(linear, flat, values, outs))


@overload
def vjp(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: Literal[False] = False
) -> tuple[R, pullback.Pullback[tuple[*Ts]]]: ...


@overload
def vjp(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Literal[True]
) -> tuple[R, pullback.Pullback[tuple[*Ts]], Aux]: ...


@trace.boundary
def vjp(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)`, and a function from a cotangent of it to cotangents of the arguments.

    The cotangent has the structure, shapes and dtypes of the result. With `has_aux` the function returns a
    pair, whose second part is given back as it is, third. The cotangent of a Ref is that of what it held before
    the call; `f_vjp.with_refs` adds cotangents to Refs. `f_vjp` is a pytree of what it keeps: `jit` takes and gives it.

    >>> y, f_vjp = vjp(lambda x: x * x, 3.0)
    >>> f_vjp(1.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    flatten.check_callable("vjp", fun)
    name = flatten.argument_naming("vjp", fun)
    values, tree = flatten.flatten_values((primals, {}), name)
    check_mutable((primals, {}), values, name)
    flat, values = flat_function.lending(fun, tree, values, has_aux)
    outs, linear = pullback.linearized(flat, values, fun)
    flat.check_arrays(outs)
    f_vjp: pullback.Pullback[Any] = pullback.Pullback(linear, flat, values, outs)
    return flat.results(outs, f_vjp)


@trace.boundary
def linear_transpose(fun: Callable[[*Ts], object], *primals: Any) -> Callable[[Any], tuple[*Ts]]:
    """The transpose of a function that is linear in all its arguments: from a cotangent to a tuple of them.

    Of `primals` only the types matter: descriptions (`ShapeDtype`) will do. `fun` is traced and never run, and
    must use only operations that are linear in their traced operands; one that is not is named in the error.

    >>> transposed = linear_transpose(lambda x: 3.0 * x, 1.0)
    >>> transposed(2.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    flatten.check_callable("linear_transpose", fun)
    staged, flat = staging.stage_user(fun, primals, {})
    avals = staged.jaxpr.in_avals[len(staged.captured) :]
    paths = pytree.tree_flatten_with_path((primals, {}), is_leaf=staging.is_spec)[0]
    name = flatten.argument_naming("linear_transpose", fun)
    for (path, _), aval in zip(paths, avals, strict=True):
        if not aval.differentiable or aval.accumulates:
            raise TypeError(
                f"{name(path)} must be floating or complex, got {aval}; close over what the function is not linear "
                f"in"
            )

    flat.check_arrays(staged.jaxpr.outvars)
    num = len(staged.captured)
    unknown = (False,) * num + (True,) * len(avals)
    late = (True,) * len(staged.jaxpr.outvars)
    # What does not depend on the arguments is computed first, also where a loop computes it along with the rest.
    # known : [*captured] -> [*residuals];  staged : [*residuals, *args] -> [*outs]
    cut = transforms.split(
        staged.jaxpr, unknown, (False,) * len(unknown), transforms.SAVE_EVERYTHING, late
    )
    residuals = transforms.eval_jaxpr(cut.known, staged.captured)

    @trace.boundary
    def transposed(ct: Any) -> tuple[*Ts]:
        wanted = staged.jaxpr.out_avals
        assert flat.out_tree is not None, "unreachable: the function has been traced"
        checked = pullback.like_values(
            "linear_transpose: cotangent", ct, flat.out_tree, wanted, "result"
        )
        operands: list[ad.Operand] = [*residuals, *[ad.UndefinedPrimal(a.tangent()) for a in avals]]
        in_cts = transforms.backward_pass(cut.staged, operands, checked)
        args: tuple[*Ts] = pytree.tree_unflatten(
            flat.in_tree, [flatten.as_result(transforms.instantiate(c)) for c in in_cts]
        )[0]
        return args

    return transposed
