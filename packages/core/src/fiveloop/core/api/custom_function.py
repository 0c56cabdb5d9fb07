"""Base of all functions with custom rules: arguments by place, static arguments, and the call."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from operator import index
from typing import Any, Generic, ParamSpec, TypeVar, cast

from fiveloop.core import ad, ir, pytree, trace
from fiveloop.core.api import arguments, flat_function, flatten, mutable
from fiveloop.core.api.operands import flatten_arguments, refuse_closed_over
from fiveloop.core.arrays import Value
from fiveloop.core.backend.tree import TreeDef
from fiveloop.core.custom_rule import closure, primitive

P = ParamSpec("P")
R = TypeVar("R")
MakeRule = Callable[[closure.Closure, trace.Trace | None], primitive.Rule]


class _Probing(threading.local):
    """The functions whose rules are on a trial run, in which they are called without their rules."""

    functions: tuple[object, ...] = ()


_probing = _Probing()


@dataclass(eq=False)
class Call:
    """One call of a function with rules: its arguments apart from the static ones, and what it returns."""

    fun: Callable[..., Any]
    name: str
    static: dict[int, Any]
    tree: TreeDef
    flat: flat_function.FlatFunction
    out_avals: list[ir.Aval] | None = None

    @classmethod
    def of(
        cls, what: str, fun: Callable[..., Any], args: Sequence[Any], nums: Sequence[int]
    ) -> tuple[Call, list[Value]]:
        """The call, and the leaves of the arguments that are not static."""
        chosen = arguments.Chosen(tuple(nums))
        others = chosen.others(tuple(args), {})
        values, tree = flatten_arguments(others, chosen.naming(what, fun, len(args)))
        flat = flat_function.FlatFunction(chosen.of_others(fun, args, {}), tree, user_fun=fun)
        return cls(fun, flatten.function_name(fun), chosen.of(args, {})[0], tree, flat), values

    def dynamic(self, leaves: Iterable[Any]) -> tuple[Any, ...]:
        """The arguments that are not static, from their leaves."""
        args: tuple[Any, ...] = pytree.tree_unflatten(self.tree, leaves)[0]
        return args

    def with_all(self, fun: Callable[..., Any], leaves: Iterable[Any]) -> Any:
        """A function of all arguments, called with these."""
        args = self.dynamic(leaves)
        places = arguments.Chosen(tuple(self.static)).other_places(len(self.static) + len(args))
        return arguments.of_places(fun, self.static, {}, places)(*args)


class CustomFunction(Generic[P, R]):
    """A function with a rule of its own for derivatives; the base of `custom_jvp` and `custom_vjp`."""

    what = "custom rule"
    given_by = "its decorator"
    staged = False
    rule: Callable[..., Any] | None = None

    @trace.boundary
    def __init__(
        self,
        fun: Callable[P, R],
        nondiff_argnums: int | Sequence[int] = (),
        nondiff_argnames: str | Sequence[str] = (),
    ) -> None:
        flatten.check_callable(self.what, fun)
        update_wrapper(self, fun)
        self.fun = fun
        self.name = flatten.function_name(fun)
        what = f"{self.what} of {self.name}"
        nums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        named = _numbers_of(what, fun, nondiff_argnames)
        self.nondiff_argnums = tuple(sorted({*_positions(what, fun, nums), *named}))

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else partial(cast(Any, self), instance)

    @trace.boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if any(self is other for other in _probing.functions):
            return self.fun(*args, **kwargs)
        self.check_rule()
        placed = _by_place(f"{self.what} of {self.name}", self.fun, args, kwargs)
        for k in self.nondiff_argnums:
            if k < len(placed):
                placed[k] = self.static_argument(k, placed[k])
        nums = [k for k in self.nondiff_argnums if k < len(placed)]
        call, values = Call.of(self.what, self.fun, placed, nums)
        out: R = call.flat.unflatten(run_custom(call, values, *self.rule_of(call), self))
        return out

    def closed_parts(self) -> list[Any]:
        """The function and its rule, which may close over traced values."""
        return [self.fun, self.rule]

    def check_rule(self) -> None:
        """Raise if there is no rule yet."""
        if self.rule is None:
            raise TypeError(
                f"{self.what} of {self.name}: expected a rule before the first call, got none; give one with "
                f"`{self.name}.{self.given_by}`"
            )

    def static_argument(self, k: int, x: Any) -> Any:
        """An argument that is not differentiated, as the function and its rules get it."""
        return x

    def rule_of(self, call: Call) -> tuple[MakeRule, Callable[..., ad.Values]]:
        """The rule for one call, and a function that tries it on the leaves of the arguments."""
        raise TypeError(f"{self.what} has no rule")


def run_custom(
    call: Call, values: ad.Values, make_rule: MakeRule, probe: Callable[..., ad.Values], owner: Any
) -> list[Value]:
    """Bind a call with its rule: staged if something is staged, else operation by operation."""
    scope = trace.axis_scope()
    if not (owner.staged or trace.is_staging(trace.current_trace())) and all(
        map(_is_known, values)
    ):
        rule = make_rule(closure.Closure(), trace.current_trace())
        rule.holds_traced = trace.current_trace().parent is not None and closure.may_hold_tracers(
            owner
        )
        params = primitive.CustomRuleParams(rule, name=call.name, axes=scope.axes, scope=scope)
        outs = trace.bind(primitive.custom_rule_p, *values, params=params)
        _refuse_refs(call, outs)
        return outs
    avals = [x.aval for x in values]
    staged = trace.stage(call.flat, avals, call.name, call.fun)
    call.out_avals = staged.jaxpr.out_avals
    _refuse_refs(call, staged.jaxpr.outvars)
    closed, held = list(staged.captured), list(staged.originals)
    extra = _found_by(probe, values, owner, held)
    n = len(closed)
    # jaxpr : [*captured, *closed over by rules alone, *args] -> [*outs]
    invars = [*staged.jaxpr.invars[:n], *[ir.Var(x.aval) for x in extra], *staged.jaxpr.invars[n:]]
    jaxpr = staged.jaxpr.replace(invars=invars)
    operands = [*closed, *extra]
    refuse_closed_over(flatten.argument_naming(owner.what, call.fun), operands, values, call.tree)
    rule = make_rule(closure.Closure((*held, *extra)), None)
    params = primitive.CustomRuleParams(
        rule, jaxpr, name=call.name, num_closed=len(operands), axes=scope.axes, scope=scope
    )
    return trace.bind(primitive.custom_rule_p, *operands, *values, params=params)


def _refuse_refs(call: Call, outs: Sequence[Any]) -> None:
    """A rule speaks of values: it has no derivative for what is written to a Ref later."""
    for k, x in enumerate(outs):
        if x.aval.accumulates:
            raise call.flat.returned(k, x, flat_function.IN_RULE)


def _found_by(
    probe: Callable[..., ad.Values], values: ad.Values, owner: Any, held: ad.Values
) -> list[Value]:
    """What the rule closes over, but the function does not."""
    before, _probing.functions = _probing.functions, (*_probing.functions, owner)
    try:
        found = closure.closed_over([owner], probe, [x.aval for x in values])
    finally:
        _probing.functions = before
    return [x for x in found if not any(x is y for y in held)]


def _is_known(x: Value) -> bool:
    """Whether a value's elements are known while operations run one by one, tangents aside."""
    return not isinstance(mutable.innermost(x), trace.StageTracer)


def _by_place(what: str, fun: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
    """All arguments by place, defaults filled in."""
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        if not kwargs:
            return list(args)
        raise TypeError(
            f"{what}: expected arguments by place, since the function tells no signature, got the keywords "
            f"{sorted(kwargs)}"
        ) from None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{what}: expected arguments for {fun_text(fun, signature)}, but: {error}"
        ) from None
    bound.apply_defaults()
    if unplaced := sorted(set(bound.kwargs) & set(kwargs)):
        raise TypeError(
            f"{what}: expected arguments that have a place, since rules take them by place, got the keyword-only "
            f"{unplaced}; bind them with `functools.partial` before giving the rule"
        )
    return list(bound.args)


def fun_text(fun: object, signature: inspect.Signature) -> str:
    """A function and its signature, as messages show it."""
    return f"{flatten.function_name(fun)}{signature}"


def _positions(what: str, fun: Callable[..., Any], nums: Sequence[Any]) -> tuple[int, ...]:
    for k in nums:
        if not hasattr(k, "__index__") or isinstance(k, bool):
            raise TypeError(f"{what}: nondiff_argnums must hold argument numbers, got {k!r}")
    known = flatten.parameters(fun)
    if known is None:
        return tuple(sorted(map(index, nums)))
    count = len(known.placed)
    for k in nums:
        if not -count <= k < count and not (known.takes_more and k >= 0):
            raise ValueError(
                f"{what}: nondiff_argnums must name some of its {count} positional arguments by number, got {k}"
            )
    return tuple(sorted({index(k) % count if k < 0 else index(k) for k in nums}))


def _numbers_of(what: str, fun: Callable[..., Any], names: str | Sequence[str]) -> list[int]:
    """The positions of arguments that are named."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    if not wanted:
        return []
    known = flatten.parameters(fun)
    placed = known.placed if known is not None else []
    for name in wanted:
        if name not in placed:
            raise ValueError(
                f"{what}: nondiff_argnames must name some of its positional arguments {placed}, got {name!r}"
            )
    return [placed.index(name) for name in wanted]
