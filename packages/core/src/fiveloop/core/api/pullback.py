"""Pushforwards and pullbacks: the derivatives that `linearize` and `vjp` return, as pytrees of their residuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np

from fiveloop.core import ad, arrays, ir, prims, pytree, trace, transforms, util
from fiveloop.core.api import flat_function, flatten
from fiveloop.core.arrays import Value
from fiveloop.core.index import views

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

    @property
    def parts(self) -> tuple[Sequence[Any], _Form]:
        """The values that it keeps, and the rest."""
        kept, form = self._lifted_parts()
        return [*map(flatten.as_result, kept)], form

    def _lifted_parts(self) -> tuple[list[Any], _Form]:
        # What was computed on values is full of constants: these are kept, too.
        jaxpr, consts = self._form.jaxpr.remember("lifted", lambda: _lifted(self._form.jaxpr))
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
    """Stands in `args_res` for what a pullback does not keep of the arguments."""


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

    def __init__(
        self,
        linear: transforms.Linear,
        flat: flat_function.FlatFunction,
        primals: ad.Values,
        outs: ad.Values,
    ) -> None:
        super().__init__(linear, flat, primals, outs)
        # What is kept lives from now on, so that no other value gets the number of one that is.
        self._numbers = {id(x): k for k, x in enumerate(primals)}

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
        aval = self._form.primals[k]
        if _is_missing(x) or (arrays.as_value(x).shape, arrays.as_value(x).dtype) != (
            aval.shape,
            aval.dtype,
        ):
            skeleton = self._arguments(range(len(self._form.primals)))
            given = "nothing" if _is_missing(x) else arrays.as_value(x).aval
            path = pytree.keystr(pytree.tree_flatten_with_path(skeleton)[0][k][0])
            raise TypeError(
                f"vjp: args_res{path} must be the argument that the derivative needs, {aval}, got {given}; "
                f"put it back before the call"
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
            read = [isinstance(x, views.View) or sum(x is r for r in others) > 1 for x in targets]
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
        return pull_back(self._linear, primals, cts, targets)

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
        given = pytree.tree_map(_number_for_float0, given)
    leaves, tree = flatten.flatten_values(given, what)
    if tree != wanted:
        raise TypeError(f"{what} must have the structure of the {likes}, {wanted}, got {tree}")
    return [
        _check_like(what, given, k, aval, t, likes)
        for k, (aval, t) in enumerate(zip(avals, leaves, strict=True))
    ]


def _number_for_float0(t: Any) -> Any:
    """A tangent of an integer, which may be anything: also an array of the dtype that JAX has for them."""
    return 0 if getattr(t, "dtype", None) == _FLOAT0 else t


def _check_like(what: str, tree: Any, k: int, aval: ir.Aval, t: Value, likes: str) -> ad.Tangent:
    if not aval.differentiable:
        return ad.Zero(aval.tangent())
    if t.weak_type and not t.shape and t.dtype != aval.dtype:
        t = prims.convert(t, aval.dtype)
    if t.shape != aval.shape or t.dtype != aval.dtype:
        path = pytree.keystr(pytree.tree_flatten_with_path(tree)[0][k][0])
        raise TypeError(f"{what}{path} must have the type of the {likes}, {aval}, got {t.aval}")
    return t


def linearized(
    flat: flat_function.FlatFunction, values: ad.Values, fun: object
) -> tuple[list[Value], transforms.Linear]:
    """The results of a function and its derivative in all floating arguments; Refs get their final contents."""
    nonzero = tuple([x.aval.differentiable for x in values])
    outs, linear = transforms.linearize_flat(flat, values, nonzero, fun)
    flat.give_back(outs)
    return outs, linear


def pull_back(
    linear: transforms.Linear,
    avals: ir.Avals,
    cts: ad.Tangents,
    targets: Sequence[Value | None] = (),
) -> list[ad.Tangent]:
    """The cotangents of the arguments, from those of all results; one that has a target is added to it, and zero."""
    inputs = zip(avals, targets or [None] * len(avals), strict=True)
    unknowns = [ad.UndefinedPrimal(a.tangent(), into) for a, into in inputs if a.differentiable]
    given = [ct for ct, nz in zip(cts, linear.out_nonzero, strict=True) if nz]
    found = iter(transforms.backward_pass(linear.jaxpr, [*linear.residuals, *unknowns], given))
    return [next(found) if a.differentiable else ad.Zero(a.tangent()) for a in avals]
