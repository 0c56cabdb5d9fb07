"""The stages of a jitted function, traced, lowered, compiled; and why it was traced again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, Generic, NamedTuple, TypeAlias, TypedDict

from fiveloop.core import ad, arrays, errors, ir, prims, pytree, trace
from fiveloop.core.api import flat_function, flatten
from fiveloop.core.backend import call as backend_call
from fiveloop.core.backend import client
from fiveloop.core.backend.native import Option
from fiveloop.core.dataclass import dataclass, replace
from fiveloop.core.lower.dispatch import Build, Compiled, compiled, prepared
from fiveloop.core.util import R


@dataclass(frozen=True, slots=True)
class Entry:
    """A function traced for one structure and types of its arguments."""

    staged: trace.Staged
    flat: flat_function.FlatFunction
    build: Build
    uses_context: bool = False
    names: tuple[str, ...] = ()
    """What messages call the positional arguments that are not static."""

    @property
    def is_self_contained(self) -> bool:
        """Whether it closes over nothing that is traced, so that it may be used again."""
        return not any(isinstance(x, trace.Tracer) for x in self.staged.captured)

    def program(self) -> Compiled:
        """The compiled program."""
        return compiled(self.staged.jaxpr, self.build)

    def fast(self, program: Compiled, num_leaves: int) -> backend_call.Fast | None:
        """What later calls need to go fast; they know the arguments alone, and no values that can change."""
        changes = self.uses_context or self.flat.makes_refs or self.staged.captured
        if changes or program.needs_python:
            return None
        assert self.flat.out_tree is not None, "unreachable: the function has been traced"
        return backend_call.make_fast(
            program.executable,
            num_leaves,
            self.flat.out_tree,
            consts=program.consts,
            kept=[*[True] * len(program.consts), *program.kept],
            take=trace.guarded(program.take) if program.returning else None,
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
        return self._entry.flat.name

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
        return self.out_tree.unflatten(
            [flatten.ShapeDtype(a.shape, a.dtype) for a in self.out_avals]
        )


XlaOptions: TypeAlias = Mapping[str, Option]


class JitOptions(TypedDict, total=False):
    """What a type checker knows of the options of `jit`."""

    static_argnums: int | Sequence[int]
    static_argnames: str | Sequence[str]
    donate_argnums: int | Sequence[int]
    donate_argnames: str | Sequence[str]
    keep_unused: bool
    device: Any
    inline: bool
    compiler_options: XlaOptions | None


def with_options(
    what: str, choices: client.CompileChoices, options: XlaOptions | None
) -> client.CompileChoices:
    """The choices with XLA's options that a user gives by their names."""
    if not isinstance(options, Mapping | None):
        raise TypeError(
            f"{what}: compiler_options: expected a dict of XLA's options by their names, got {options!r} of type "
            f"{type(options).__name__}"
        )
    try:
        return choices.with_options(options)
    except ValueError as error:
        raise ValueError(f"{what}: compiler_options: {error}") from None


class TracedCall(_Stage[R]):
    """A function traced for arguments of given types, before it is lowered."""

    @trace.boundary
    def lower(self) -> LoweredCall[R]:
        """The program before compilation."""
        return LoweredCall(self._entry)


class LoweredCall(_Stage[R]):
    """A traced function before compilation."""

    @trace.boundary
    def as_text(self, dialect: str = "stablehlo", *, platform: str | None = None) -> str:
        """The program as StableHLO, or as XLA's own "hlo" before it is optimised; ValueError for other dialects.

        `platform`, "cpu" or "cuda", is this machine's unless it is given. The program for another platform shows what
        differs there, such as residuals that move to the host's memory.

        >>> from fiveloop.core import jit
        >>> jit(lambda x: x + 1).lower(2).as_text("hlo").split()[0]
        'HloModule'
        """
        if dialect not in ("stablehlo", "hlo"):
            raise ValueError(
                f"as_text: expected `dialect` to be 'stablehlo' or 'hlo', got {dialect!r}"
            )
        if platform not in (None, *client.PLATFORMS):
            known = " or ".join(map(repr, client.PLATFORMS))
            raise ValueError(
                f"as_text: expected `platform` to be {known}, got {platform!r}; leave it out for this machine's"
            )
        text = prepared(self.jaxpr, self._entry.build).lowered(platform=platform).text
        return text if dialect == "stablehlo" else client.hlo_text(text)

    @trace.boundary
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
        self._run = backend_call.DictCall(self._first)

    @trace.boundary
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        client.refuse_if_forked()
        result: R = self._run(*args, **kwargs)
        return result

    def _first(self, *args: Any, **kwargs: Any) -> tuple[Any, backend_call.Fast | None]:
        entry, donated = self._entry, self._entry.build.donated
        naming = self._naming
        values, tree = flatten.flatten_arguments((args, kwargs), naming)
        self._check(tree, values, flatten.leaf_naming((args, kwargs), naming))
        operands = [*entry.staged.captured, *values]
        arrays.part_from(x for x, d in zip(operands, donated, strict=False) if d)
        try:
            result = entry.flat.unflatten(self._program.run(operands))
        except RuntimeError as error:
            if client.tells_donated(error):
                given = [x for x, is_given in zip(operands, donated, strict=False) if is_given]
                flatten.refuse_donated((args, kwargs), given, naming, self._program.consts)
            raise
        simple = not donated and all(type(x) is arrays.Array for x in values)
        return result, entry.fast(self._program, len(values)) if simple else None

    def _naming(self, path: pytree.KeyPath) -> str:
        names = self._entry.names
        placed = lambda k: names[k] if k < len(names) else str(k)
        return flatten.call_naming(lambda: f"compiled {self.fun_name}", placed)(path)

    def _check(self, tree: pytree.TreeDef, values: ad.Values, called: Callable[[int], str]) -> None:
        if tree != self.in_tree:
            prims.bad_type(
                f"compiled {self.fun_name}: expected arguments of structure {self.in_tree}, got {tree}"
            )
        for k, (x, aval) in enumerate(zip(values, self.in_avals, strict=True)):
            if isinstance(x, trace.Tracer):
                wrong, advice = repr(x), "call the jitted function, which can be traced"
            elif x.aval.strong() is not aval.strong():
                wrong = str(x.aval)
                advice = "compile it for these types, or call the jitted function"
            else:
                continue
            prims.bad_type(f"{called(k)} must be {aval}, got {wrong}; {advice}")

    def memory_analysis(self) -> client.MemoryStats:
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


Tell = Callable[[str], object]


class Signature(NamedTuple):
    """The inputs of a trace beside the function: types of arguments, static arguments, and the context of the call."""

    tree: Any
    avals: tuple[ir.Aval, ...]
    static: tuple[tuple[int | str, Hashable], ...]
    context: tuple[tuple[Hashable, Hashable], ...]


_listeners: list[Tell] = []
_seen: weakref.WeakSet[CodeType] = weakref.WeakSet()


@contextmanager
def explain_cache_misses(tell: Tell = print) -> Iterator[None]:
    """Within the block, `tell` is called with the reason, in one line, for each call of a jitted function that must be
    traced.

    >>> import numpy as np
    >>> from fiveloop.core import jit
    >>> double = jit(lambda x: x * 2)
    >>> with explain_cache_misses(lambda line: print(line.partition(" at ")[0])):
    ...     ys = double(np.ones(2, "f4")), double(np.ones(2, "f4")), double(np.ones(3, "f4"))
    jit of <lambda> is traced: it has not been called before;
    jit of <lambda> is traced: argument `x` is f32[3] now, and was f32[2];
    """
    flatten.check_callable("explain_cache_misses: tell", tell)
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


def note_miss(
    fun: Callable[..., Any], naming: flatten.Naming, mine: Signature, known: Iterable[Signature]
) -> None:
    """Tell those who want to know why a function is traced."""
    code = getattr(fun, "__code__", None)
    if _listeners:
        others = [(_differences(fun, naming, mine, other), other) for other in known]
        if others:  # the nearest of them is one of the same structure
            reasons, _ = min(
                reversed(others), key=lambda pair: (mine.tree != pair[1].tree, len(pair[0]))
            )
        else:
            reasons = [_NEW if code in _seen else "it has not been called before"]
        why = "; ".join(reasons) or "it closes over traced values, which are others now"
        where = errors.at_source(ir.user_source()).replace("\n ", "")
        for tell in list(_listeners):
            tell(f"jit of {flatten.function_name(fun)} is traced: {why};{where}")
    if isinstance(code, CodeType):
        _seen.add(code)


_NEW = (
    "`jit` was called anew, on a function made anew whose code is known, but which may differ by what it reaches; call "
    "`jit` once, outside of the loop, and pass what changes as an argument"
)


def _differences(
    fun: Callable[..., Any], naming: flatten.Naming, mine: Signature, other: Signature
) -> list[str]:
    found: list[str] = []
    if mine.tree != other.tree:
        found.append(f"the arguments have the structure {mine.tree} now, and had {other.tree}")
    else:
        found += _of_types(naming, mine, other)
    if mine.static != other.static:
        values: dict[int | str, Hashable] = {**dict(other.static)}
        changed = [k for k, key in mine.static if values.get(k) != key]
        names = [flatten.argument_name(fun, k) if isinstance(k, int) else f"`{k}`" for k in changed]
        what = ", ".join(names) or "which of them are given"
        found.append(f"static argument {what} has another value")
    if mine.context != other.context:
        now: dict[Hashable, Hashable] = dict(mine.context)
        before: dict[Hashable, Hashable] = dict(other.context)
        names = [str(k) for k in {**now, **before} if now.get(k) != before.get(k)]
        found.append(f"the context has changed: {', '.join(names)}")
    return found


def _of_types(naming: flatten.Naming, mine: Signature, other: Signature) -> list[str]:
    paths: Sequence[Any] = []
    if not isinstance(mine.tree, flatten.OperandTree):
        leaves = mine.tree.unflatten(range(len(mine.avals)))
        paths = [path for path, _ in pytree.tree_flatten_with_path(leaves)[0]]
    found = []
    for k, (now, before) in enumerate(zip(mine.avals, other.avals, strict=True)):
        if now is before:
            continue
        name = naming(paths[k]).split(": ", 1)[1] if paths else f"operand {k}"
        text = f"{name} is {now} now, and was {before}"
        if now.strong() is before.strong():
            weak = "it" if now.weak_type else "the other"
            text += f" ({weak} is weakly typed, as a Python number is)"
        found.append(text)
    return found
