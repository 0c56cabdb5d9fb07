"""`custom_vmap`: a function whose batch the user writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fiveloop.core import ad, pytree, trace, transforms
from fiveloop.core.api import custom_checks, custom_function, flatten
from fiveloop.core.arrays import Value
from fiveloop.core.custom_rule.closure import Closure
from fiveloop.core.custom_rule.vmap_rule import FlatVmap, VmapRule

P = ParamSpec("P")
R = TypeVar("R")
VmapFunction = TypeVar("VmapFunction", bound=Callable[..., tuple[Any, Any]])


class custom_vmap(custom_function.CustomFunction[P, R]):
    """A function that under `vmap` is what `def_vmap` says.

    The rule takes the size of the batch, a list that says for each argument which of its leaves have the batch, in
    front, and the arguments. It returns the result and, in the same structure, which of its leaves have the batch.
    Derivatives of the batch are those of the rule; for a derivative rule beside it, give that to the whole:
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
        """Give the rule: `vmap_rule(axis_size, in_batched, *args)` returns the result and what of it is batched."""
        flatten.check_callable(f"def_vmap of {self.name}", vmap_rule)
        self.rule = vmap_rule
        return vmap_rule

    def rule_of(
        self, call: custom_function.Call
    ) -> tuple[custom_function.MakeRule, Callable[..., ad.Values]]:
        """The rule for one call, and a trial of it on a batch of one."""
        flat = _flat_vmap(self.rule, call)

        def make_rule(closure: Closure, home: trace.Trace | None) -> VmapRule:
            return VmapRule(closure, flat)

        def probe(*values: Value) -> list[Value]:
            return flat(
                1, [True] * len(values), [transforms.move_batch(x, 1, None) for x in values]
            )[0]

        return make_rule, probe


def _flat_vmap(rule: Any, call: custom_function.Call) -> FlatVmap:
    """A user's rule as a function of leaves, whose results are checked."""
    name = custom_checks.RuleName("vmap", rule, call.name)

    def flat(
        size: int, batched: Sequence[bool], values: ad.Values
    ) -> tuple[list[Value], list[bool]]:
        flags = list(pytree.tree_unflatten(call.tree, batched)[0])
        result = rule(size, flags, *call.dynamic(values))
        out, told = name.pair(result, "(result, which of its leaves are batched)")
        found, tree = pytree.tree_flatten(told)
        if tree != call.flat.out_tree or not all(isinstance(b, (bool, np.bool_)) for b in found):
            raise name.error(
                f"must say of each leaf of the result whether it is batched, in the structure that {call.name} gives, "
                f"{call.flat.out_tree}, got {told!r}"
            )
        avals = [
            a.batched(size) if b else a for a, b in zip(call.out_avals or (), found, strict=True)
        ]
        return custom_checks.check_outs(name, out, call.flat.out_tree, avals)[0], [
            *map(bool, found)
        ]

    return flat
