"""The base class of functions with custom rules, and the checks of the values that a rule returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial, update_wrapper
from types import FunctionType
from typing import Any, Generic, cast

import numpy as np

from fiveloop.core import ad, arrays, ir, prims, pytree, trace, transforms, util
from fiveloop.core.api import arguments, flat_function, flatten
from fiveloop.core.arrays import Value
from fiveloop.core.backend.tree import TreeDef
from fiveloop.core.custom_rule import closure, primitive
from fiveloop.core.dataclass import dataclass
from fiveloop.core.util import P, R


@dataclass(frozen=True)
class SymbolicZero:
    """A tangent or cotangent that is zero, without an array: rules with `symbolic_zeros` take it and may return it."""

    aval: ir.Aval

    @classmethod
    def from_primal_value(cls, val: Any) -> SymbolicZero:
        """The zero that stands for the tangent of a value.

        >>> SymbolicZero.from_primal_value(np.ones(3, np.float32)).shape
        (3,)
        """
        return cls(arrays.as_value(val, "SymbolicZero.from_primal_value: val").aval.tangent())

    @property
    def shape(self) -> ir.Shape:
        """The shape of the zeros."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the zeros."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.aval.ndim


def is_zero(x: object) -> bool:
    """Whether a leaf that a rule returns stands for zero."""
    return x is None or isinstance(x, SymbolicZero)


def as_given(t: ad.Tangent, symbolic_zeros: bool) -> Any:
    """A tangent or cotangent as a rule gets it: zeros as arrays, unless the rule asked for `SymbolicZero`."""
    if symbolic_zeros and isinstance(t, ad.Zero):
        return SymbolicZero(t.aval)
    return transforms.instantiate(t)


@dataclass(frozen=True)
class RuleName:
    """A rule as messages name it: what it is, the user's function, and whose rule it is."""

    what: str
    rule: object
    of: str

    def __str__(self) -> str:
        return f"the {self.what} rule of {self.of}, {ir.function_source(self.rule)}"

    def pair(self, result: Any, parts: str) -> tuple[Any, Any]:
        """The two parts of what a rule returned."""
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise self.error(f"must return a pair {parts}, got {shown(result)}")
        return result[0], result[1]

    def error(self, what: str) -> TypeError:
        """The error of what a rule returned."""
        return TypeError(f"{self}: it {what}")


def shown(x: object) -> str:
    """Something that a rule returned, by its type."""
    if isinstance(x, Value):
        return str(x.aval)
    size = f" of length {len(x)}" if isinstance(x, (tuple, list)) else ""
    return f"{type(x).__name__}{size}"


def check_outs(
    name: RuleName, out: Any, tree: TreeDef | None, avals: ir.Avals | None
) -> tuple[list[Value], TreeDef]:
    """The leaves of a rule's result, which must have the structure and types of the function's result, if known."""
    leaves, given = flatten.flatten_values(
        out, lambda path: f"{name}: the result{pytree.keystr(path)}"
    )
    if tree is not None and given != tree:
        raise name.error(
            f"must give a result of the structure that {name.of} gives, {tree}, got {given}"
        )
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(out)[0]]
    for path, x, aval in zip(paths, leaves, avals or [x.aval for x in leaves], strict=True):
        if x.aval.strong() is not aval.strong():
            raise name.error(
                f"must give what {name.of} gives, {aval}, as the result{path}, got {x.aval}"
            )
    return leaves, given


def check_tangents(name: RuleName, dots: Any, outs: ad.Values, tree: TreeDef) -> list[ad.Tangent]:
    """The leaves of the tangents that a rule gives, which must be like its results."""
    pairs, given = pytree.tree_flatten_with_path(
        dots, is_leaf=lambda x: isinstance(x, SymbolicZero)
    )
    if given != tree:
        full = _filled(name, "the tangent of the result", "results", dots, tree, outs)
    else:
        full = [(pytree.keystr(path), t) for path, t in pairs]
    return [
        check_like(name, f"the tangent of the result{path}", "the result", t, x.aval)
        for (path, t), x in zip(full, outs, strict=True)
    ]


def check_cotangents(
    name: RuleName, cts: Any, args: ir.Avals, tree: TreeDef, perturbed: util.Mask
) -> list[ad.Tangent]:
    """The leaves of what bwd gives: a tuple with one entry an argument, None for zeros.

    For an argument of one leaf, the cotangent of the leaf does. `perturbed` marks what is differentiated.
    """
    count = len(pytree.tree_unflatten(tree, args)[0])
    if not isinstance(cts, (tuple, list)):
        raise name.error(
            f"must return a tuple with a cotangent for each of {count} arguments, got {shown(cts)}"
        )
    if len(cts) != count:
        raise name.error(
            f"must return a tuple with a cotangent for each of {count} arguments, got one of length {len(cts)}"
        )
    leaves = _filled(name, "the cotangent of argument ", "arguments", tuple(cts), tree, args)
    for (path, ct), is_part in zip(
        leaves, flatten.parts_among(tree, len(leaves), perturbed), strict=True
    ):
        if is_part and not is_zero(ct):
            raise name.error(
                f"must return None for argument {path}, a part of a Ref whose contents are differentiated; pass the "
                f"whole Ref, and the index beside it"
            )
    full = flatten.spread(tree, leaves, len(args), ("", None))
    return [
        check_like(name, f"the cotangent of argument {path}", "the argument", ct, x)
        for (path, ct), x in zip(full, args, strict=True)
    ]


def _filled(
    name: RuleName, what: str, likes: str, given: Any, tree: TreeDef, values: Sequence[Any]
) -> list[tuple[str, Any]]:
    """Path and leaf for each of `values`, whose tree is `tree`; a None counts for all leaves at its place."""
    skeleton = pytree.tree_unflatten(tree, values)
    if likes == "arguments":
        skeleton = skeleton[0]
    leaves, treedef = pytree.tree_flatten(given, is_leaf=is_zero)
    numbers = pytree.tree_unflatten(treedef, range(len(leaves)))
    try:
        places = pytree.broadcast_prefix(numbers, skeleton)
        subtrees = treedef.flatten_up_to(skeleton)
    except (ValueError, TypeError):
        differs = _difference(skeleton, given)
        raise name.error(
            f"must return the structure of the {likes}, which differs{differs}"
        ) from None
    for x, subtree, (path, _) in zip(
        leaves, subtrees, pytree.tree_flatten_with_path(numbers)[0], strict=True
    ):
        alone = likes == "arguments" and pytree.tree_structure(subtree).num_leaves == 1
        if not is_zero(x) and not alone and pytree.tree_structure(subtree) != pytree.LEAF:
            raise name.error(
                f"must return the structure of the {likes}; for {what}{pytree.keystr(path)} it is "
                f"{pytree.tree_structure(subtree)}, got {shown(x)}"
            )
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(skeleton)[0]]
    return [(path, leaves[k]) for path, k in zip(paths, places, strict=True)]


def _difference(wanted: Any, given: Any) -> str:
    """Where and how a tree first differs from what is wanted."""
    found = pytree.mismatch(wanted, given)
    if found is not None:
        return found
    subtrees = pytree.tree_structure(wanted).flatten_up_to(given)
    for (path, _), subtree in zip(pytree.tree_flatten_with_path(wanted)[0], subtrees, strict=True):
        if not is_zero(subtree) and pytree.tree_structure(subtree) != pytree.LEAF:
            return f" at {pytree.keystr(path)}: expected an array, got {shown(subtree)}"
    return ""


def check_like(name: RuleName, what: str, likes: str, t: Any, aval: ir.Aval) -> ad.Tangent:
    """A tangent or cotangent of a value; what does not count, since the value has none, is zero."""
    if is_zero(t) or isinstance(t, ad.Zero):
        if t is not None and aval.differentiable and t.aval.strong() is not aval.tangent():
            raise name.error(
                f"must give {what} the type of {likes}, {aval}, got a zero of type {t.aval}"
            )
        return ad.Zero(aval.tangent())
    if not aval.differentiable:
        return ad.Zero(aval.tangent())
    value = arrays.as_value(t, f"{name}: {what}")
    if value.aval.accumulates and aval.accumulates:
        return value
    if value.weak_type and not value.shape and not value.aval.accumulates:
        value = prims.convert(value, aval.dtype)
    if value.aval.strong() is not aval.tangent():
        raise name.error(f"must give {what} the type of {likes}, {aval}, got {value.aval}")
    return value


MakeRule = Callable[[closure.Closure, trace.Trace | None], primitive.Rule]
Probe = Callable[..., ad.Values]
Tried = tuple[MakeRule, Probe]
"""What makes the rule of one call, and a function that tries it on the leaves of the arguments."""

_probing: util.OfThread[tuple[object, ...]] = util.OfThread(())
"""The functions whose rules are on a trial run, in which they are called without their rules."""


@dataclass(eq=False)
class Call:
    """A call of a function with rules: its arguments without static arguments, and its result."""

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
        values, tree = flatten.flatten_arguments(others, chosen.naming(what, fun, len(args)))
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
        given = nondiff_argnums, nondiff_argnames
        chosen = arguments.chosen_arguments(self.what, fun, *given, "nondiff")
        known = flatten.parameters(fun)
        placed = known.placed if known is not None else []
        for name in chosen.names:
            if name not in placed:
                raise ValueError(
                    f"{self.what} of {self.name}: nondiff_argnames must name some of its positional arguments "
                    f"{placed}, got {name!r}"
                )
        self.nondiff_argnums = chosen.nums

    def __init_subclass__(cls) -> None:
        """Python's errors about the arguments name what the user called."""
        init = cast(FunctionType, inspect.unwrap(cls.__init__))
        copy = FunctionType(
            init.__code__, init.__globals__, "", init.__defaults__, init.__closure__
        )
        update_wrapper(copy, init).__qualname__ = cls.what
        setattr(cls, "__init__", trace.boundary(copy))  # noqa: B010  # a method is not assigned to

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else partial(cast(Any, self), instance)

    @trace.boundary
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if any(self is other for other in _probing.value):
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

    def rule_of(self, call: Call) -> Tried:
        """The rule for one call, and a trial of it."""
        raise TypeError(f"{self.what} has no rule")


def run_custom(
    call: Call, values: ad.Values, make_rule: MakeRule, probe: Probe, owner: Any
) -> list[Value]:
    """Bind a call with its rule: staged if something is staged, else operation by operation."""
    scope = trace.axis_scope()
    # Elements are known while operations run one by one, tangents aside.
    known = not any(isinstance(flatten.innermost(x), trace.StageTracer) for x in values)
    if known and not owner.staged and not trace.is_staging(trace.current_trace()):
        rule = make_rule(closure.Closure(), trace.current_trace())
        rule.holds_traced = trace.current_trace().parent is not None and closure.may_hold_tracers(
            owner
        )
        params = primitive.RuleParams(rule, name=call.name, axes=scope.axes, scope=scope)
        outs = trace.bind(primitive.custom_rule_p, *values, params=params)
        _refuse_refs(call, outs)
        return outs
    avals = [x.aval for x in values]
    staged = trace.stage(call.flat, avals, call.name, call.fun)
    call.out_avals = staged.jaxpr.out_avals
    _refuse_refs(call, staged.jaxpr.outvars)
    closed, held = list(staged.captured), list(staged.originals)
    with _probing.to((*_probing.value, owner)):
        found = closure.closed_over([owner], probe, avals)
    extra = [x for x in found if not any(x is y for y in held)]
    n = len(closed)
    # jaxpr : [*captured, *closed over by rules alone, *args] -> [*outs]
    invars = [*staged.jaxpr.invars[:n], *[ir.Var(x.aval) for x in extra], *staged.jaxpr.invars[n:]]
    jaxpr = staged.jaxpr.replace(invars=invars)
    operands = [*closed, *extra]
    flatten.refuse_closed_over(
        flatten.argument_naming(owner.what, call.fun), operands, values, call.tree
    )
    rule = make_rule(closure.Closure((*held, *extra)), None)
    params = primitive.RuleParams(
        rule, jaxpr, name=call.name, num_closed=len(operands), axes=scope.axes, scope=scope
    )
    return trace.bind(primitive.custom_rule_p, *operands, *values, params=params)


def _refuse_refs(call: Call, outs: Sequence[Any]) -> None:
    """A rule speaks of values: it has no derivative for what is written to a Ref later."""
    for k, x in enumerate(outs):
        if x.aval.accumulates:
            raise call.flat.returned(k, x, flat_function.IN_RULE)


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
            f"{what}: expected arguments for {flatten.function_name(fun)}{signature}, but: {error}"
        ) from None
    bound.apply_defaults()
    if unplaced := sorted(set(bound.kwargs) & set(kwargs)):
        raise TypeError(
            f"{what}: expected arguments that have a place, since rules take them by place, got the keyword-only "
            f"{unplaced}; bind them with `functools.partial` before giving the rule"
        )
    return list(bound.args)
