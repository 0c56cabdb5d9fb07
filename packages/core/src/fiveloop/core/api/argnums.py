"""Arguments that a derivative is taken in: `argnums`, and the function of these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from fiveloop.core import ir, pytree
from fiveloop.core.api import arguments, flat_function, flatten, operands
from fiveloop.core.api.mutable import giving
from fiveloop.core.arrays import Value
from fiveloop.core.backend.tree import TreeDef

Argnums = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Differentiated:
    """The arguments that are differentiated: their leaves, their structure, and the function of them."""

    values: list[Value]
    tree: TreeDef
    flat: flat_function.FlatFunction


@dataclass(frozen=True, slots=True)
class Differentiation:
    """What a derivative is asked of: `what` names the transform in messages."""

    what: str
    fun: Callable[..., Any]
    argnums: Argnums
    has_aux: bool = False
    holomorphic: bool = False
    allow_int: bool = False
    real: bool = False

    def choose(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Differentiated:
        """The arguments that `argnums` names, checked; the others are constants."""
        wanted = self._wanted(len(args))
        chosen = tuple(args[k] for k in wanted)

        others = {k: x for k, x in enumerate(args) if k not in wanted}
        of_wanted = arguments.of_places(self.fun, others, kwargs, wanted)

        def of_chosen(*given: Any) -> Any:
            with giving(mutable):
                return of_wanted(*given)

        naming = flatten.argument_naming(self.what, self.fun, wanted)
        values, tree = flatten.flatten_values((chosen, {}), naming)
        paths = pytree.tree_flatten_with_path(chosen)[0]
        for (path, _), x in zip(paths, values, strict=True):
            name = flatten.argument_name(self.fun, wanted[path[0].idx])
            self._check(f"{self.of}: argument {name}{pytree.keystr(path[1:])}", x.aval)
        mutable = operands.check_places(
            (args, kwargs), flatten.argument_naming(self.what, self.fun)
        )
        flat, contents = flat_function.lending(of_chosen, tree, values, self.has_aux, self.fun)
        return Differentiated(contents, tree, flat)

    @property
    def of(self) -> str:
        """What messages begin with: "grad of f"."""
        return f"{self.what} of {flatten.function_name(self.fun)}"

    def one(self, parts: Any) -> Any:
        """The part of a single argument, or all of them."""
        return parts[0] if hasattr(self.argnums, "__index__") else parts

    def _wanted(self, num_args: int) -> list[int]:
        wanted = []
        given: Any = self.argnums
        several = isinstance(given, Sequence) and not isinstance(given, str)
        for k in given if several else (given,):
            if not hasattr(k, "__index__") or not -num_args <= index(k) < num_args:
                raise ValueError(
                    f"{self.of}: argnums must name some of its {num_args} positional arguments by number, got {k!r}"
                )
            wanted.append(index(k) % num_args)
        twice = next((k for k in wanted if wanted.count(k) > 1), None)
        if twice is not None:
            raise ValueError(
                f"{self.of}: argnums must name each argument once, got {self.argnums!r}, which names argument "
                f"{flatten.argument_name(self.fun, twice)} twice"
            )
        return wanted

    def _check(self, name: str, aval: ir.Aval) -> None:
        if self.holomorphic and aval.dtype.kind != "c":
            raise TypeError(
                f"{name} must be complex for a holomorphic derivative, got {aval}; convert it first, or leave "
                f"holomorphic out"
            )
        if not aval.differentiable and not self.allow_int:
            raise TypeError(
                f"{name} must be floating to be differentiated, got {aval}; convert it first, or leave it out of "
                f"argnums"
            )
        if self.real and not self.holomorphic and aval.dtype.kind == "c":
            raise TypeError(
                f"{name} must be real, got {aval}; say holomorphic=True if the function is, or use `jvp`"
            )
