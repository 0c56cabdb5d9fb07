"""`FlatFunction`: a function of pytrees as a function of a flat list of values; takes and returns Refs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fiveloop.core import ad, arrays, ir, pytree, rules, transforms
from fiveloop.core.api import flatten
from fiveloop.core.arrays import Value
from fiveloop.core.backend.tree import TreeDef
from fiveloop.core.dataclass import dataclass
from fiveloop.core.index import access
from fiveloop.core.util import Fun

IS_PART = "is a part of another; return its contents, `part[...]`, or all of the other"
IS_GIVEN = (
    "was made outside of it, so the caller has it; leave it out, or return its contents, `ref[...]`"
)
IN_RULE = "a function with a derivative rule cannot return; return its contents, `ref[...]`, or pass the Ref in"
NO_DERIVATIVE = "has no derivative of its own; return its contents, `ref[...]`"
"""Why a function must not return a Ref."""

_VALUE = object()
"""Where a value goes among the leaves of an auxiliary result."""


@dataclass(eq=False, repr=False)
class FlatFunction:
    """A user's function on leaves. `out_tree` is known after it has run; `aux` is what `has_aux` splits off.

    `aux_others` has the leaves of `aux` that are no values, and `_VALUE` where one is. `user_fun` is the function that
    messages name, if `fun` only calls it.

    Refs may go in by what they hold: where `lenders` has a Ref and not None, the leaf is its contents, and the function
    works on a Ref of these. After the results come the final contents of the Refs that it has changed, which
    `give_back` writes to the lenders. With `returns_refs`, a Ref that the function has created comes out by what it
    holds, too, and `unflatten` creates another of that; else Refs among the results are left as they are.
    """

    fun: Fun
    in_tree: TreeDef
    has_aux: bool = False
    user_fun: object = None
    lenders: Sequence[Value | None] = ()
    returns_refs: bool = False
    out_tree: TreeDef | None = None
    aux_tree: TreeDef | None = None
    aux_others: Sequence[Any] = ()
    num_outs: int = 0
    changed: Sequence[int] = ()
    made: Sequence[ir.Aval | None] = ()

    def __post_init__(self) -> None:
        self.user_fun = self.user_fun or self.fun
        self.name = flatten.function_name(self.user_fun)

    def __call__(self, *leaves: Value) -> list[Value]:
        pairs = enumerate(zip(leaves, self.lenders, strict=True)) if self.lenders else ()
        lent = {k: flatten.stand_in(x, ref.aval) for k, (x, ref) in pairs if ref is not None}
        if lent:
            leaves = tuple([lent[k].value if k in lent else x for k, x in enumerate(leaves)])
        outs = self._run(leaves)
        if self.returns_refs:
            self.made = [x.aval if x.aval.accumulates else None for x in outs]
            outs = [self._held(k, x, outs) if x.aval.accumulates else x for k, x in enumerate(outs)]
        if not lent:
            return outs
        own = [each.value for each in lent.values()]
        for k, x in enumerate(outs):
            if any(access.base_of(x) is each for each in own):
                raise self.returned(k, x, IS_PART if isinstance(x, access.View) else IS_GIVEN)
        self.changed = [k for k, each in lent.items() if each.is_changed]
        return [*outs, *[lent[k].value[...] for k in self.changed]]

    def _run(self, leaves: ad.Values) -> list[Value]:
        """The leaves of the result, and then the values of the auxiliary one."""
        args, kwargs = pytree.tree_unflatten(self.in_tree, leaves)
        mutable = [x for x in leaves if x.aval.accumulates]
        if mutable:
            with flatten.giving(mutable):
                out = self.fun(*args, **kwargs)
        else:
            out = self.fun(*args, **kwargs)
        aux_leaves: ad.Values = ()
        if self.has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                given = out.aval if isinstance(out, Value) else type(out).__name__
                raise TypeError(
                    f"has_aux: {self._name} must return a pair (result, auxiliary), got {given}"
                )
            out, aux = out
            aux_leaves = self._aux_values(aux)
        out_leaves, self.out_tree = flatten.flatten_values(
            out, lambda path: f"the result{pytree.keystr(path)} of {self._name}"
        )
        self.num_outs = len(out_leaves)
        return [*out_leaves, *aux_leaves]

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The user's result from its leaves, with new Refs where the function has created some."""
        assert self.out_tree is not None, "unreachable: the function has run"
        if self.makes_refs:
            pairs = zip(leaves, self.made, strict=True)
            leaves = [x if aval is None else flatten.holding(x, aval) for x, aval in pairs]
        return pytree.tree_unflatten(self.out_tree, [flatten.as_result(x) for x in leaves])

    def unflatten_aux(self, leaves: Sequence[Any]) -> Any:
        """The auxiliary result, from all that follows the results."""
        assert self.aux_tree is not None, "unreachable: the function has run"
        given = iter(leaves[: len(leaves) - len(self.changed)])
        full = [flatten.as_result(next(given)) if x is _VALUE else x for x in self.aux_others]
        return pytree.tree_unflatten(self.aux_tree, full)

    def results(self, outs: ad.Values, *beside: Any) -> Any:
        """The user's result from what this function gave, and `beside`, and the auxiliary result if there is one."""
        n = self.num_outs
        aux = (self.unflatten_aux(outs[n:]),) if self.has_aux else ()
        found = (self.unflatten(outs[:n]), *beside, *aux)
        return found if len(found) > 1 else found[0]

    def check_arrays(self, outs: Sequence[ir.Atom | Value]) -> None:
        """Refuse results that are Refs, where a derivative is taken of each."""
        for k, x in enumerate(outs[: self.num_outs]):
            if x.aval.accumulates:
                raise self.returned(k, x, NO_DERIVATIVE)

    @property
    def makes_refs(self) -> bool:
        """Whether some result is a Ref that the function creates."""
        return any(aval is not None for aval in self.made)

    def give_back(self, outs: ad.Values, to: Sequence[Value | None] | None = None) -> None:
        """Write final contents, the last of what the function gave, to the lenders, or to others."""
        finals = outs[len(outs) - len(self.changed) :]
        for k, x in zip(self.changed, finals, strict=True):
            lender = (to or self.lenders)[k]
            if lender is not None:
                lender[...] = x

    def _held(self, k: int, x: Value, outs: ad.Values) -> Value:
        """What a Ref among the results holds; it must be the function's own."""
        if x._note is not None:
            x._note = x._note.handed_on(x)
        if isinstance(x, access.View):
            raise self.returned(k, x, IS_PART)
        if flatten.is_given(x):
            raise self.returned(k, x, IS_GIVEN)
        if any(x is y for y in outs[:k]):
            raise self.returned(k, x, "is returned twice; return it once")
        end = rules.type_rules(x.aval).accumulated
        assert end is not None, "unreachable: the value can change"
        return end(x)

    def _aux_values(self, aux: Any) -> list[Value]:
        """The values among the leaves of an auxiliary result; what is none is given back as it is."""
        leaves, self.aux_tree = flatten.flatten_located(aux)
        values: list[Value] = []
        others: list[Any] = []
        for x in leaves:
            try:
                values.append(arrays.as_value(x))
                others.append(_VALUE)
            except TypeError:
                others.append(x)
        self.aux_others = others
        return values

    def returned(self, k: int, x: ir.Atom | Value, why: str) -> TypeError:
        """The error for a mutable value that is result number `k`, and that the function must not return."""
        assert self.out_tree is not None, "unreachable: the function has run"
        path = pytree.leaf_paths(self.out_tree)[k] if k < self.num_outs else " (auxiliary)"
        return TypeError(f"the result{path} of {self._name} is a Ref of type {x.aval} that {why}")

    def linearized(self, values: ad.Values, fun: object) -> tuple[list[Value], transforms.Linear]:
        """Its results and its derivative in all floating arguments; Refs get their final contents."""
        nonzero = tuple([x.aval.differentiable for x in values])
        outs, linear = transforms.linearize_flat(self, values, nonzero, fun)
        self.give_back(outs)
        return outs, linear

    def release(self) -> None:
        """Let go of the function, which has been traced, and of what it closes over; its name and line stay."""
        self.user_fun = self._name
        self.fun = _released

    @property
    def _name(self) -> str:
        known = self.user_fun
        return known if isinstance(known, str) else ir.function_source(known)


def _released(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("unreachable: the function has been traced")


def lending(
    fun: Fun, tree: TreeDef, values: ad.Values, has_aux: bool = False, user_fun: object = None
) -> tuple[FlatFunction, list[Value]]:
    """A function to be differentiated, and its arguments, with the contents of Refs in their place."""
    if not any(x.aval.accumulates for x in values):
        return FlatFunction(fun, tree, has_aux, user_fun), list(values)
    lenders = [x if x.aval.accumulates else None for x in values]
    contents = [x[...] if x.aval.accumulates else x for x in values]
    return FlatFunction(fun, tree, has_aux, user_fun, lenders), contents


def contents_of(tree: Any) -> tuple[Any, list[Value | None]]:
    """A tree with what Refs hold in their place, and these Refs; None stands for other leaves."""
    leaves, treedef = pytree.tree_flatten(tree)
    lenders = [x if isinstance(x, Value) and x.aval.accumulates else None for x in leaves]
    held = [x if lender is None else lender[...] for x, lender in zip(leaves, lenders, strict=True)]
    return pytree.tree_unflatten(treedef, held), lenders


def call_as_python(
    fun: Fun, args: Any, kwargs: Any, what: flatten.Naming, user_fun: object = None
) -> Any:
    """A function run as it is, with its arguments and results made arrays as if it had been traced."""
    values, tree = flatten.flatten_values((args, kwargs), what)
    flatten.check_mutable((args, kwargs), values, what)
    flat = FlatFunction(fun, tree, user_fun=user_fun)
    return flat.unflatten(flat(*map(flatten.as_result, values)))
