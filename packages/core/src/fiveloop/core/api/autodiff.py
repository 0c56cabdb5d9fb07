"""Derivatives of a function at a point: jvp, linearize, vjp and the transpose of a linear function, as pytrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, Self, TypeVar, TypeVarTuple, cast, overload

import numpy as np

from fiveloop.core import ad, arrays, ir, prims, pytree, trace, transforms, util
from fiveloop.core.api import flat_function, flatten, staging
from fiveloop.core.arrays import Value
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.index import access

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class _Form:
    """A derivative without what it keeps: its jaxpr, and the structures and types of arguments and results.

    The first `num_outs` of `outs` are the results; `in_tree` is the structure of `(args, kwargs)`.
    """

    jaxpr: ir.Jaxpr
    out_nonzero: util.Mask
    in_tree: pytree.TreeDef
    out_tree: pytree.TreeDef
    primals: tuple[ir.Aval, ...]
    outs: tuple[ir.Aval, ...]
    num_outs: int


class Derivative:
    """A derivative at a point. It is a pytree of the values that it keeps, so that it may go in and out of `jit`."""

    def __init__(
        self,
        linear: transforms.Linear,
        flat: flat_function.FlatFunction,
        primals: ad.Values,
        outs: ad.Values,
    ) -> None:
        assert flat.out_tree is not None, "unreachable: the function has run"
        self._form = _Form(
            linear.jaxpr,
            linear.out_nonzero,
            flat.in_tree,
            flat.out_tree,
            tuple([x.aval for x in primals]),
            tuple([x.aval for x in outs]),
            flat.num_outs,
        )
        self._residuals: Sequence[Any] = linear.residuals
        # What is kept lives from now on, so that no other value gets the number of one that is.
        self._numbers = {id(x): k for k, x in enumerate(primals)}

    @property
    def parts(self) -> tuple[Sequence[Any], _Form]:
        """The values that it keeps, and the rest."""
        kept, form = self._lifted_parts()
        return [*map(flatten.as_result, kept)], form

    def _lifted_parts(self) -> tuple[list[Any], _Form]:
        # What was computed on values is full of constants: these are kept, too.
        jaxpr, consts = _lifted(self._form.jaxpr)
        form = replace(self._form, jaxpr=jaxpr) if consts else self._form
        return [*consts, *self._residuals], form

    @classmethod
    def of_parts(cls, form: _Form, residuals: Sequence[Any]) -> Self:
        """The derivative that has these parts."""
        self = cls.__new__(cls)
        self._form, self._residuals = form, residuals
        return self

    @property
    def _linear(self) -> transforms.Linear:
        residuals = [arrays.as_value(x) for x in self._residuals]
        return transforms.Linear(self._form.jaxpr, residuals, self._form.out_nonzero)


@ir.once_per_jaxpr
def _lifted(jaxpr: ir.Jaxpr) -> tuple[ir.Jaxpr, list[Value]]:
    """A jaxpr that takes its constants, scalars aside, and these: [*consts, *ins] -> [*outs]."""
    found: dict[int, tuple[ir.Var, Value]] = {}

    def variable(atom: ir.Atom) -> ir.Atom:
        if not isinstance(atom, ir.Literal) or not atom.aval.shape:
            return atom
        value: Any = atom.value
        return found.setdefault(id(value), (ir.Var(atom.aval), value))[0]

    eqns = [eqn.replace(invars=[*map(variable, eqn.invars)]) for eqn in jaxpr.eqns]
    outs = [*map(variable, jaxpr.outvars)]
    binders = [binder for binder, _ in found.values()]
    return ir.Jaxpr([*binders, *jaxpr.invars], eqns, outs), [value for _, value in found.values()]


class Pushforward(Derivative):
    """A derivative: call it with tangents of the arguments."""

    @trace.boundary
    def __call__(self, *tangents: Any) -> Any:
        """The tangent of the result."""
        form = self._form
        in_tree = form.in_tree.children()[0]
        checked = like_values("linearize: tangents", tangents, in_tree, form.primals, "primals")
        pairs = zip(checked, form.primals, strict=True)
        given = [transforms.instantiate(t) for t, a in pairs if a.differentiable]
        dots = self._linear(given, form.outs)[: form.num_outs]
        return pytree.tree_unflatten(
            form.out_tree, [flatten.as_result(transforms.instantiate(t)) for t in dots]
        )


@dataclass(frozen=True, slots=True)
class NotNeeded:
    """The entry of `args_res` for an argument that a pullback does not save."""


class Pullback(Derivative, Generic[A]):
    """A derivative turned round: call it with a cotangent of the result.

    `args_res` are those of the values that it keeps which are arguments, in their places, numbers aside, and
    `NotNeeded()` for the others; `opaque_residuals` are the rest. An argument may be taken out, `f_vjp.args_res[0] =
    None`, so that it is not kept twice, and put back before the call.

    >>> w = as_value(np.ones((2, 2), np.float32))
    >>> _, f_vjp = vjp(lambda w, x: (w * x, x), w, w)
    >>> f_vjp.args_res[1] = None
    >>> [str(x) for x in tree_leaves(f_vjp)] == [str(w)]
    True
    """

    @cached_property
    def args_res(self) -> list[Any]:
        """The arguments that it keeps, in their places."""
        kept, form = self._lifted_parts()
        self._form, self._residuals = form, ()
        self._slots = [self._numbers.get(id(x)) for x in kept]
        pairs = [*zip(self._slots, kept, strict=True)]
        self.opaque_residuals = [flatten.as_result(x) for k, x in pairs if k is None]
        found = {k: flatten.as_result(x) for k, x in pairs}
        leaves = [found.get(k, NotNeeded()) for k in range(len(form.primals))]
        return list(cast(Any, self._arguments(leaves)))

    @cached_property
    def opaque_residuals(self) -> list[Any]:
        """What it keeps besides the arguments."""
        return [self.args_res, self.opaque_residuals][1]

    @property
    def parts(self) -> tuple[Sequence[Any], Any]:
        """The values that it keeps, and the rest."""
        args_res = self.args_res
        return (args_res, self.opaque_residuals), (self._form, tuple(self._slots))

    @classmethod
    def of_parts(cls, form: Any, residuals: Sequence[Any]) -> Self:
        """The derivative that has these parts."""
        self = cls.__new__(cls)
        self._form, self._slots = form[0], list(form[1])
        self.args_res, self.opaque_residuals = residuals
        return self

    @property
    def _linear(self) -> transforms.Linear:
        if "args_res" not in self.__dict__:
            return super()._linear
        skeleton = self._arguments(range(len(self._form.primals)))
        given = pytree.broadcast_prefix(tuple(self.args_res), skeleton, is_leaf=_is_missing)
        rest = iter(self.opaque_residuals)
        kept = [next(rest) if k is None else self._kept(k, given[k]) for k in self._slots]
        return transforms.Linear(
            self._form.jaxpr, [*map(arrays.as_value, kept)], self._form.out_nonzero
        )

    def _kept(self, k: int, x: Any) -> Any:
        """A part of an argument that the derivative needs, if it is in its place."""
        aval, given = self._form.primals[k], None if _is_missing(x) else arrays.as_value(x).aval
        if given is None or (given.shape, given.dtype) != (aval.shape, aval.dtype):
            skeleton = self._arguments(range(len(self._form.primals)))
            path = pytree.keystr(pytree.tree_flatten_with_path(skeleton)[0][k][0])
            raise TypeError(
                f"vjp: args_res{path} must be the argument that the derivative needs, {aval}, got "
                f"{given or 'nothing'}; put it back before the call"
            )
        return x

    @trace.boundary
    def __call__(self, ct: Any) -> A:
        """The cotangents of the arguments."""
        return self._arguments(
            [flatten.as_result(transforms.instantiate(x)) for x in self._pulled(ct)]
        )

    @trace.boundary
    def with_refs(self, *refs: Any) -> Callable[[Any], A]:
        """A function that adds cotangents to Refs, and gives the Refs in their place.

        `refs` are like the arguments, or like prefixes of them: a Ref where the cotangent is to be added to it, and
        None where it is to be given. The function returns what the derivative turned round would, a cotangent for
        each argument, with the very Ref where the cotangent has been added to one; a compiled function that was given
        the Ref leaves that out of its own results.

        >>> total = new_ref(10.0)
        >>> _, back = vjp(lambda x, y: x * y, 2.0, 3.0)
        >>> back.with_refs(total, None)(1.0)
        (Ref(13.0, dtype=float32), Array(2., dtype=float32, weak_type=True))
        """
        count = len(self._form.in_tree.children()[0].children())
        if len(refs) != count:
            raise TypeError(
                f"with_refs: expected a Ref or None for each of {count} arguments, got {len(refs)}"
            )
        skeleton = self._arguments(self._form.primals)
        try:
            targets = pytree.broadcast_prefix(refs, skeleton, is_leaf=lambda x: x is None)
        except ValueError as error:
            where = str(error).removeprefix("the tree does not fit")
            raise TypeError(
                f"with_refs: the Refs must have the structure of the arguments, which differs{where}"
            ) from None
        for target, aval in zip(targets, self._form.primals, strict=True):
            _check_target(target, aval)

        @trace.boundary
        def add_to_refs(ct: Any) -> A:
            # What the derivative itself reads of a target is read before that changes.
            others = [*self._residuals, *targets]
            read = [isinstance(x, access.View) or sum(x is r for r in others) > 1 for x in targets]
            found = self._pulled(ct, [None if r else x for x, r in zip(targets, read, strict=True)])
            for target, x in zip(targets, found, strict=True):
                if target is not None:
                    transforms.add_into(target, x)
            given = [
                flatten.as_result(transforms.instantiate(x)) if t is None else t
                for t, x in zip(targets, found, strict=True)
            ]
            return self._arguments(given)

        return add_to_refs

    def _pulled(self, ct: Any, targets: Sequence[Value | None] = ()) -> list[ad.Tangent]:
        """A cotangent for each leaf of the arguments; `Zero` where it has been added to the target of the leaf."""
        form = self._form
        n, primals = form.num_outs, form.primals
        checked = like_values("vjp: cotangent", ct, form.out_tree, form.outs[:n], "result")
        cts = [*checked, *[ad.Zero(a.tangent()) for a in form.outs[n:]]]
        return self._linear.pull_back(primals, cts, targets)

    def _arguments(self, leaves: Sequence[Any]) -> A:
        args: A = pytree.tree_unflatten(self._form.in_tree, leaves)[0]
        return args


def _is_missing(x: object) -> bool:
    return x is None or isinstance(x, NotNeeded)


pytree.register_node(NotNeeded, lambda x: ((), None), lambda aux, children: NotNeeded())
pytree.register_node(Pullback, lambda f: f.parts, Pullback.of_parts)
pytree.register_node(Pushforward, lambda f: f.parts, Pushforward.of_parts)


def _check_target(target: Any, aval: ir.Aval) -> None:
    if target is None:
        return
    if not isinstance(target, Value) or not target.aval.accumulates:
        shown = target.aval if isinstance(target, Value) else type(target).__name__
        raise TypeError(
            f"with_refs: expected Refs and None, got {shown}; make a Ref with `new_ref(zeros_like(x))`"
        )
    if target.shape != aval.shape or target.dtype != aval.dtype:
        raise TypeError(
            f"with_refs: the Ref for an argument of type {aval} must have its shape and dtype, got {target.aval}"
        )


_FLOAT0 = np.dtype([("float0", np.void, 0)])


def like_values(
    what: str, given: Any, wanted: pytree.TreeDef, avals: ir.Avals, likes: str
) -> list[ad.Tangent]:
    """The leaves of tangents or cotangents, checked against the types of the values that they belong to.

    `wanted` is the structure of these values, and `likes` is what they are called.
    """
    if not all(aval.differentiable for aval in avals):
        # A tangent of an integer may be anything: also an array of the dtype that JAX has for them.
        number = lambda t: 0 if getattr(t, "dtype", None) == _FLOAT0 else t
        given = pytree.tree_map(number, given)
    leaves, tree = flatten.flatten_values(given, what)
    if tree != wanted:
        raise TypeError(f"{what} must have the structure of the {likes}, {wanted}, got {tree}")
    checked: list[ad.Tangent] = []
    for k, (aval, t) in enumerate(zip(avals, leaves, strict=True)):
        if aval.differentiable and t.weak_type and not t.shape and t.dtype != aval.dtype:
            t = prims.convert(t, aval.dtype)
        if aval.differentiable and (t.shape != aval.shape or t.dtype != aval.dtype):
            path = pytree.keystr(pytree.tree_flatten_with_path(given)[0][k][0])
            raise TypeError(f"{what}{path} must have the type of the {likes}, {aval}, got {t.aval}")
        checked.append(t if aval.differentiable else ad.Zero(aval.tangent()))
    return checked


Ts = TypeVarTuple("Ts")
R = TypeVar("R")
Aux = TypeVar("Aux")
No = Literal[False]
Yes = Literal[True]
Dots = tuple[Any, ...]


@overload
def jvp(
    fun: Callable[[*Ts], R], primals: tuple[*Ts], tangents: Dots, *, has_aux: No = False
) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[[*Ts], tuple[R, Aux]], primals: tuple[*Ts], tangents: Dots, *, has_aux: Yes
) -> tuple[R, R, Aux]: ...
@overload
def jvp(
    fun: Callable[..., R], primals: list[Any], tangents: list[Any], *, has_aux: No = False
) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[..., tuple[R, Aux]], primals: list[Any], tangents: list[Any], *, has_aux: Yes
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

    `tangents` has the structure, shapes and dtypes of `primals`; integer arguments take any tangent, which counts as
    zero. With `has_aux` the function returns a pair, whose second part is returned unchanged.

    Raises TypeError if `tangents` has another structure, shape or dtype.

    >>> jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    flatten.check_callable("jvp", fun)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise TypeError(
                f"jvp: {name} must be a tuple or a list with an entry for each argument, got {type(given).__name__}"
            )
    naming = lambda path: f"jvp: primals{pytree.keystr(path[1:])}"
    values, tree = flatten.flatten_values((tuple(primals), {}), naming)
    flat, values = flat_function.lending(fun, tree, values, has_aux)
    given_dots, lent_dots = flat_function.contents_of(tuple(tangents))
    wanted, avals = pytree.tree_structure(tuple(primals)), [x.aval for x in values]
    dots = like_values("jvp: tangents", given_dots, wanted, avals, "primals")
    outs, outs_dot = transforms.jvp_flat(flat, values, dots, fun)
    flat.give_back(outs)
    given = [transforms.instantiate(t) for t in outs_dot]
    flat.give_back(given, to=lent_dots)
    return flat.results(outs, flat.unflatten(given[: flat.num_outs]))


@overload
def linearize(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: No = False
) -> tuple[R, Callable[..., R]]: ...
@overload
def linearize(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Yes
) -> tuple[R, Callable[..., R], Aux]: ...
@trace.boundary
def linearize(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)`, and its derivative there as a function of tangents.

    With `has_aux` the function returns a pair, whose second part is returned unchanged as a third result.

    >>> y, f_lin = linearize(lambda x: x * x, 3.0)
    >>> f_lin(1.0)
    Array(6., dtype=float32, weak_type=True)
    """
    flatten.check_callable("linearize", fun)
    values, tree = flatten.flatten_values((primals, {}), flatten.argument_naming("linearize", fun))
    flat, values = flat_function.lending(fun, tree, values, has_aux)
    outs, linear = flat.linearized(values, fun)
    return flat.results(outs, Pushforward(linear, flat, values, outs))


@overload
def vjp(
    fun: Callable[[*Ts], R], *primals: *Ts, has_aux: No = False
) -> tuple[R, Pullback[tuple[*Ts]]]: ...
@overload
def vjp(
    fun: Callable[[*Ts], tuple[R, Aux]], *primals: *Ts, has_aux: Yes
) -> tuple[R, Pullback[tuple[*Ts]], Aux]: ...
@trace.boundary
def vjp(fun: Callable[..., Any], *primals: *Ts, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)`, and a function from a cotangent of it to cotangents of the arguments.

    The cotangent has the structure, shapes and dtypes of the result. With `has_aux` the function returns a pair,
    whose second part is returned unchanged as a third result. The cotangent of a Ref is that of its contents before
    the call; `f_vjp.with_refs` adds cotangents to Refs. `f_vjp` is a pytree of its residuals, so jitted functions can
    take and return it.

    `f_vjp` raises TypeError if the cotangent has another structure, shape or dtype.

    >>> y, f_vjp = vjp(lambda x: x * x, 3.0)
    >>> f_vjp(1.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    flatten.check_callable("vjp", fun)
    name = flatten.argument_naming("vjp", fun)
    values, tree = flatten.flatten_values((primals, {}), name)
    flatten.check_mutable((primals, {}), values, name)
    flat, values = flat_function.lending(fun, tree, values, has_aux)
    outs, linear = flat.linearized(values, fun)
    flat.check_arrays(outs)
    f_vjp: Pullback[Any] = Pullback(linear, flat, values, outs)
    return flat.results(outs, f_vjp)


@trace.boundary
def linear_transpose(fun: Callable[[*Ts], object], *primals: Any) -> Callable[[Any], tuple[*Ts]]:
    """The transpose of a function that is linear in all its arguments: from a cotangent to a tuple of them.

    Only the types of `primals` matter: descriptions (`ShapeDtype`) will do. `fun` is traced and never run, and may use
    only operations that are linear in their traced operands: a RuleError names the first nonlinear one.

    >>> transposed = linear_transpose(lambda x: 3.0 * x, 1.0)
    >>> transposed(2.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    flatten.check_callable("linear_transpose", fun)
    staged, flat = staging.stage_user(fun, primals, {})
    avals = staged.jaxpr.in_avals[len(staged.captured) :]
    paths = pytree.tree_flatten_with_path((primals, {}), is_leaf=flatten.is_spec)[0]
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
        checked = like_values("linear_transpose: cotangent", ct, flat.out_tree, wanted, "result")
        operands: list[ad.Operand] = [*residuals, *[ad.UndefinedPrimal(a.tangent()) for a in avals]]
        in_cts = transforms.backward_pass(cut.staged, operands, checked)
        args: tuple[*Ts] = pytree.tree_unflatten(
            flat.in_tree, [flatten.as_result(transforms.instantiate(c)) for c in in_cts]
        )[0]
        return args

    return transposed
