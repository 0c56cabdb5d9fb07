"""Functions with custom rules: `custom_jvp`, `custom_vjp`, `custom_derivative` and `custom_vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fiveloop.core import ad, arrays, ir, prims, pytree, trace, transforms, util
from fiveloop.core.api import custom_function, flat_function, flatten, staging
from fiveloop.core.api.custom_function import RuleName
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule.user_rules import FlatBwd, FlatFwd, FlatJvp, JvpRule, VjpRule
from fiveloop.core.custom_rule.vmap_rule import FlatVmap, VmapRule
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import access
from fiveloop.core.util import P, R

JvpFunction = TypeVar("JvpFunction", bound=Callable[..., tuple[Any, Any]])


class custom_jvp(custom_function.CustomFunction[P, R]):
    """A function whose derivative is defined by `defjvp`.

    The rule takes the arguments as a tuple, and their tangents as another, and returns the result and its tangent,
    which must be linear in the tangents: reverse mode is its transpose. Arguments in `nondiff_argnums` are static, and
    so are those in `nondiff_argnames`; the rule takes them first. Without differentiation, the function itself runs.

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
            pairs = zip(rules, tangents, strict=True)
            parts = [rule(t, out, *primals) for rule, t in pairs if rule is not None]
            if not parts:
                return out, pytree.tree_map(custom_function.SymbolicZero.from_primal_value, out)
            return out, pytree.tree_map(lambda *xs: reduce(prims.add, xs), *parts)

        self.rule, self.symbolic_zeros = rule_of_all, False

    def static_argument(self, k: int, x: Any) -> Any:
        """Arrays among static arguments have no derivative."""
        return pytree.tree_map(
            lambda leaf: prims.stop_gradient(leaf) if isinstance(leaf, Value) else leaf, x
        )

    def rule_of(self, call: custom_function.Call) -> custom_function.Tried:
        flat = flat_jvp(self.rule, call, self.symbolic_zeros)

        def probe(*values: Value) -> list[Value]:
            # On tangents that are zero.
            zeros = [transforms.instantiate(transforms.zero_like(x)) for x in values]
            outs, dots = flat(values, zeros)
            return [*outs, *map(transforms.instantiate, dots)]

        make_rule = partial(JvpRule, call.flat, flat_jvp=flat, symbolic_zeros=self.symbolic_zeros)
        return make_rule, probe


def flat_jvp(rule: Any, call: custom_function.Call, symbolic_zeros: bool) -> FlatJvp:
    """A user's rule as a function of leaves, whose results are checked."""
    name = RuleName("jvp", rule, call.name)

    def flat(primals: ad.Values, tangents: ad.Tangents) -> ad.Duals:
        given = [custom_function.as_given(t, symbolic_zeros) for t in tangents]
        dots = flatten.with_tangents(call.tree, primals, given)
        result = rule(*call.static.values(), call.dynamic(primals), call.dynamic(dots))
        out, dots = name.pair(result, "(result, tangent of the result)")
        outs, tree = custom_function.check_outs(name, out, call.flat.out_tree, call.out_avals)
        call.flat.out_tree = tree
        return outs, custom_function.check_tangents(name, dots, outs, tree)

    return flat


class CustomVJPPrimal(NamedTuple):
    """An argument as `fwd` gets it with `symbolic_zeros`: its value, and whether a derivative by it is needed."""

    value: Any
    perturbed: bool


class custom_vjp(custom_function.CustomFunction[P, R]):
    """A function whose derivative is defined by `defvjp`.

    `fwd` takes the function's arguments, and returns its result and residuals: any pytree of arrays. `bwd` takes
    the residuals and the cotangent of the result, and returns a tuple of cotangents, one per argument; None stands
    for zero. For a Ref, `bwd` returns the cotangent of its contents before the call; values that `fwd` writes have no
    derivative but that by the contents of Refs. Arguments in `nondiff_argnums` and `nondiff_argnames` are static: `fwd`
    takes them in their positions, `bwd` takes them first. Forward mode transposes `bwd`, which must be linear in the
    cotangent. Without differentiation, the function itself runs.

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
    forward: Callable[..., Any] | None = None
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
        return [self.fun, self.fwd, self.bwd, self.forward]

    def check_rule(self) -> None:
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

    def rule_of(self, call: custom_function.Call) -> custom_function.Tried:
        fwd, jvp = flat_fwd(self.fwd, self.bwd, call, self.symbolic_zeros), None
        if self.forward is not None:
            jvp = flat_jvp(self.forward, call, self.symbolic_zeros)
        bwd_name = ir.function_source(self.bwd)
        make_rule = partial(
            VjpRule,
            call.flat,
            fwd=fwd,
            bwd_name=bwd_name,
            flat_jvp=jvp,
            symbolic_zeros=self.symbolic_zeros,
        )

        def probe(*values: Value) -> list[Value]:
            # All rules, on a cotangent that is zero.
            outs, res, back = fwd(values, tuple(x.aval.differentiable for x in values))
            cts = back(res, [transforms.instantiate(transforms.zero_like(x)) for x in outs])
            found = [*outs, *[transforms.instantiate(ct) for ct in cts if not ct.aval.accumulates]]
            if jvp is not None:
                zeros = [transforms.instantiate(transforms.zero_like(x)) for x in values]
                found += jvp(values, zeros)[0]
            return found

        return make_rule, probe


def flat_fwd(fwd: Any, bwd: Any, call: custom_function.Call, symbolic_zeros: bool) -> FlatFwd:
    """The user's rules as functions of leaves, whose results are checked."""
    name = RuleName("fwd", fwd, call.name)

    def flat(values: ad.Values, perturbed: util.Mask) -> tuple[list[Value], list[Value], FlatBwd]:
        leaves: Sequence[Any] = values
        if symbolic_zeros:
            leaves = [CustomVJPPrimal(x, u) for x, u in zip(values, perturbed, strict=True)]
        out, res = name.pair(call.with_all(fwd, leaves), "(result, residuals)")
        outs, tree = custom_function.check_outs(name, out, call.flat.out_tree, call.out_avals)
        call.flat.out_tree = tree
        res_leaves, res_tree = flatten.flatten_values(
            res, lambda path: f"{name}: the residual{pytree.keystr(path)}"
        )
        _refuse_new_refs(name, res, res_leaves, values)

        def back(res: ad.Values, cts: ad.Tangents) -> list[ad.Tangent]:
            given = [custom_function.as_given(ct, symbolic_zeros) for ct in cts]
            residuals, ct = pytree.tree_unflatten(res_tree, res), pytree.tree_unflatten(tree, given)
            result = bwd(*call.static.values(), residuals, ct)
            return custom_function.check_cotangents(
                bwd_name, result, arg_avals, call.tree, perturbed
            )

        # Of a Ref, bwd speaks of what it holds.
        held = [x.aval.accumulates and x.aval.differentiable for x in values]
        pairs = zip(values, held, strict=True)
        arg_avals = [ir.ShapedArray(x.shape, x.dtype) if h else x.aval for x, h in pairs]
        return outs, res_leaves, back

    bwd_name = RuleName("bwd", bwd, call.name)
    return flat


def _refuse_new_refs(name: RuleName, res: Any, leaves: ad.Values, args: ad.Values) -> None:
    given = {id(x) for x in args}
    for k, x in enumerate(leaves):
        if x.aval.accumulates and id(access.base_of(x)) not in given:
            path = pytree.keystr(pytree.tree_flatten_with_path(res)[0][k][0])
            raise name.error(
                f"must keep only Refs that are arguments of {name.of}, got one of type {x.aval} as the residual{path} "
                f"that is not: each pull would find what the one before it wrote; keep its contents, `ref[...]`, "
                f"or pass the Ref as an argument"
            )


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
    """`fun` with a custom derivative: a jvp, `fwd` and `bwd`, or both.

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
        forward = custom_jvp(fun, nondiff_argnums, nondiff_argnames)
        forward.defjvp(jvp, symbolic_zeros)  # type: ignore[type-var]  # one of the two is given
        return forward
    both = _BothModes(fun, nondiff_argnums, nondiff_argnames)
    both.defvjp(fwd, bwd, symbolic_zeros)
    if jvp is not None:
        flatten.check_callable(f"{what}: jvp", jvp)
        both.forward = jvp
    return both


class _BothModes(custom_vjp[P, R]):
    """A function with fwd and bwd, and perhaps a jvp as well."""

    what = "custom_derivative"


VmapFunction = TypeVar("VmapFunction", bound=Callable[..., tuple[Any, Any]])


class custom_vmap(custom_function.CustomFunction[P, R]):
    """A function whose batching is defined by `def_vmap`.

    The rule takes the size of the batch, a list that says which leaves of each argument have a batch axis in front,
    and the arguments. It returns the result and, in the same structure, which of its leaves have a batch axis.
    Derivatives of the batched function differentiate the rule. To define a derivative as well, use
    `custom_vjp(custom_vmap(f))`.

    >>> @custom_vmap
    ... def f(x, y):
    ...     return x + y
    >>> @f.def_vmap
    ... def f_vmap(axis_size, in_batched, xs, ys):
    ...     return xs + ys, any(in_batched)
    >>> vmap(f, (0, None))(np.arange(3), 10)  # doctest: +SKIP
    Array([10, 11, 12], dtype=int64)
    """

    what = "custom_vmap"
    given_by = "def_vmap(rule)"
    staged = True

    def __init__(self, fun: Callable[P, R]) -> None:
        super().__init__(fun)

    def def_vmap(self, vmap_rule: VmapFunction) -> VmapFunction:
        """Give the rule: `vmap_rule(axis_size, in_batched, *args)` returns the result and which leaves are batched."""
        flatten.check_callable(f"def_vmap of {self.name}", vmap_rule)
        self.rule = vmap_rule
        return vmap_rule

    def rule_of(self, call: custom_function.Call) -> custom_function.Tried:
        """The rule for one call, and a trial of it on a batch of one."""
        flat = _flat_vmap(self.rule, call)

        def probe(*values: Value) -> list[Value]:
            lanes = [transforms.move_batch(x, 1, None) for x in values]
            return flat(1, [True] * len(lanes), lanes)[0]

        return (lambda closure, home: VmapRule(closure, flat)), probe


def _flat_vmap(rule: Any, call: custom_function.Call) -> FlatVmap:
    """A user's rule as a function of leaves, whose results are checked."""
    name = RuleName("vmap", rule, call.name)

    def flat(size: int, batched: Sequence[bool], xs: ad.Values) -> tuple[list[Value], list[bool]]:
        flags = list(pytree.tree_unflatten(call.tree, batched)[0])
        result = rule(size, flags, *call.dynamic(xs))
        out, told = name.pair(result, "(result, which of its leaves are batched)")
        found, tree = pytree.tree_flatten(told)
        if tree != call.flat.out_tree or not all(isinstance(b, (bool, np.bool_)) for b in found):
            raise name.error(
                f"must say of each leaf of the result whether it is batched, in the structure that {call.name} gives, "
                f"{call.flat.out_tree}, got {told!r}"
            )
        pairs = zip(call.out_avals or (), found, strict=True)
        avals = [a.batched(size) if b else a for a, b in pairs]
        outs, _ = custom_function.check_outs(name, out, call.flat.out_tree, avals)
        return outs, [*map(bool, found)]

    return flat


@trace.boundary
def closure_convert(
    fun: Callable[..., R], *example_args: Any
) -> tuple[Callable[..., R], list[Any]]:
    """`fun` as a function that takes the differentiable values it closes over as further arguments.

    `fun` is traced once, on arguments of the types of `example_args`; the result takes arguments of these types only.
    Returns a function of such arguments followed by the closed-over values, and the list of these values: traced
    values of floating types. Pass them to a function with a custom rule as arguments, so that it has derivatives with
    respect to them.

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


@dataclass(eq=False)
class _Rule:
    """A rule on the types of the cotangent: a jaxpr of what it closes over, which it keeps, and of the cotangent."""

    form: tuple[ir.Jaxpr, flat_function.FlatFunction]
    kept: Sequence[Any]

    def __call__(self, ct: Any) -> Any:
        jaxpr, flat = self.form
        leaves, _ = flatten.flatten_values((self.kept, ct), "custom_gradient: the cotangent")
        return flat.unflatten(transforms.eval_jaxpr(jaxpr, leaves))


pytree.register_node(_Rule, lambda r: (r.kept, r.form), _Rule)


def custom_gradient(fun: Callable[P, tuple[R, Callable[[Any], Any]]]) -> Callable[P, R]:
    """A custom derivative: `fun` returns its result and a function from its cotangent to cotangents of the arguments.

    The inner function may close over values that the outer one has computed. It returns a tuple with a cotangent for
    each argument, or for one argument its cotangent. It is staged when the result is computed, so it cannot branch on
    values.

    >>> @custom_gradient
    ... def f(x):
    ...     return x * x, lambda ct: (10.0 * x * ct,)
    >>> f(3.0), grad(f)(3.0)  # doctest: +SKIP
    (Array(9., dtype=float32, weak_type=True), Array(30., dtype=float32))
    """
    flatten.check_callable("custom_gradient", fun)
    name = RuleName("custom_gradient", fun, flatten.function_name(fun))

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

    wrapped: custom_vjp[P, R] = custom_vjp(primal)
    wrapped.defvjp(fwd, bwd)
    return wrapped
