"""The stages of a jitted function for arguments of given types: traced, lowered, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from fiveloop.core import ad, arrays, ir, pytree
from fiveloop.core.api import flat_function, flatten
from fiveloop.core.api.operands import flatten_arguments
from fiveloop.core.api.staging import ShapeDtype
from fiveloop.core.backend.call import DictCall, Fast, make_fast
from fiveloop.core.backend.client import CompileChoices, MemoryStats, hlo_text
from fiveloop.core.backend.options import Option
from fiveloop.core.lower.dispatch import Build, Compiled, compiled, prepared
from fiveloop.core.trace.boundary import boundary, guarded
from fiveloop.core.trace.stage import Staged
from fiveloop.core.trace.tracer import Tracer

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Entry:
    """A function traced for one structure and types of its arguments."""

    staged: Staged
    flat: flat_function.FlatFunction
    build: Build
    uses_context: bool = False

    @property
    def is_self_contained(self) -> bool:
        """Whether it closes over nothing that is traced, so that it may be used again."""
        return not any(isinstance(x, Tracer) for x in self.staged.captured)

    def program(self) -> Compiled:
        """The compiled program."""
        return compiled(self.staged.jaxpr, self.build)

    def fast(self, program: Compiled, num_leaves: int) -> Fast | None:
        """What later calls need to go fast; they know the arguments alone, and no values that can change."""
        changes = self.uses_context or self.flat.makes_refs or self.staged.captured
        if changes or program.needs_python:
            return None
        assert self.flat.out_tree is not None, "unreachable: the function has been traced"
        return make_fast(
            program.executable,
            num_leaves,
            self.flat.out_tree,
            consts=program.consts,
            kept=[*[True] * len(program.consts), *program.kept],
            take=guarded(program.take) if program.returning else None,
        )


class _Stage(Generic[R]):
    """What every stage knows of the function."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    @property
    def jaxpr(self) -> ir.Jaxpr:
        """The program as it was traced."""
        return self._entry.staged.jaxpr

    @property
    def fun_name(self) -> str:
        """The name of the function."""
        return flatten.function_name(self._entry.flat.user_fun)

    @property
    def in_tree(self) -> pytree.TreeDef:
        """The structure of the arguments that are not static, `(args, kwargs)`."""
        return self._entry.flat.in_tree

    @property
    def out_tree(self) -> pytree.TreeDef:
        """The structure of the result."""
        assert self._entry.flat.out_tree is not None, "unreachable: the function has been traced"
        return self._entry.flat.out_tree

    @property
    def in_avals(self) -> tuple[ir.Aval, ...]:
        """The types of the leaves of the arguments."""
        staged = self._entry.staged
        return tuple(staged.jaxpr.in_avals[len(staged.captured) :])

    @property
    def out_avals(self) -> tuple[ir.Aval, ...]:
        """The types of the leaves of the result."""
        return tuple(self.jaxpr.out_avals)

    @property
    def out_info(self) -> Any:
        """The shapes and dtypes of the result."""
        return self.out_tree.unflatten([ShapeDtype(a.shape, a.dtype) for a in self.out_avals])


XlaOptions: TypeAlias = Mapping[str, Option]


def with_options(what: str, choices: CompileChoices, options: XlaOptions | None) -> CompileChoices:
    """The choices with XLA's options that a user gives by their names."""
    try:
        return choices.with_options(options)
    except ValueError as error:
        raise ValueError(f"{what}: compiler_options: {error}") from None


class TracedCall(_Stage[R]):
    """A function traced for arguments of given types, before it is lowered."""

    @boundary
    def lower(self) -> LoweredCall[R]:
        """The program before compilation."""
        return LoweredCall(self._entry)


class LoweredCall(_Stage[R]):
    """A traced function before compilation."""

    @boundary
    def as_text(self, dialect: str = "stablehlo") -> str:
        """The program as StableHLO, or as XLA's own "hlo" before it is optimised; ValueError for other dialects.

        >>> from fiveloop.core import jit
        >>> jit(lambda x: x + 1).lower(2).as_text("hlo").split()[0]
        'HloModule'
        """
        if dialect not in ("stablehlo", "hlo"):
            raise ValueError(
                f"as_text: expected `dialect` to be 'stablehlo' or 'hlo', got {dialect!r}"
            )
        text = prepared(self.jaxpr, self._entry.build).lowered().text
        return text if dialect == "stablehlo" else hlo_text(text)

    def compile(self, compiler_options: XlaOptions | None = None) -> CompiledCall[R]:
        """The program compiled for the device, with XLA's options by their names beside those of `jit`."""
        build = self._entry.build
        chosen = replace(build, choices=with_options("compile", build.choices, compiler_options))
        return CompiledCall(replace(self._entry, build=chosen))


class CompiledCall(_Stage[R]):
    """A compiled function for arguments of fixed types."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self._program = entry.program()
        self._run = DictCall(self._first)

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        result: R = self._run(*args, **kwargs)
        return result

    def _first(self, *args: Any, **kwargs: Any) -> tuple[Any, Fast | None]:
        entry, donated = self._entry, self._entry.build.donated
        naming = lambda path: f"compiled call: argument{pytree.keystr(path)}"
        values, tree = flatten_arguments((args, kwargs), naming)
        self._check(tree, values)
        operands = [*entry.staged.captured, *values]
        arrays.part_from(x for x, d in zip(operands, donated, strict=False) if d)
        result = entry.flat.unflatten(self._program.run(operands))
        simple = not donated and all(type(x) is arrays.Array for x in values)
        return result, entry.fast(self._program, len(values)) if simple else None

    def _check(self, tree: pytree.TreeDef, values: ad.Values) -> None:
        if tree != self.in_tree:
            raise TypeError(
                f"the compiled function takes arguments of structure {self.in_tree}, got {tree}"
            )
        for k, (x, aval) in enumerate(zip(values, self.in_avals, strict=True)):
            if x.aval.strong() is not aval.strong():
                raise TypeError(
                    f"the compiled function takes {aval} as array {k} of its arguments, got {x.aval}; compile it for "
                    f"these types, or call the jitted function"
                )

    def memory_analysis(self) -> MemoryStats:
        """Bytes of arguments, results, temporaries and code, as XLA planned them."""
        return self._program.executable.memory_analysis()

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimates of operations and bytes."""
        return self._program.executable.cost_analysis()

    def as_text(self) -> str:
        """The optimised program."""
        return self._program.executable.optimized_text()

    @property
    def copies(self) -> int:
        """How many instructions in loops copy or select a whole array that is updated at indices."""
        return self._program.copies

    @property
    def emission(self) -> str:
        """How reads and writes of loops were ordered."""
        return self._program.emission.value
