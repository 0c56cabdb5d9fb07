"""`jit`: compile a function once per types of its arguments, and run the compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from operator import call
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from fiveloop.core import ad, arrays, ir, pytree
from fiveloop.core.api import arguments, flat_function, flatten, numpy_arguments, staging
from fiveloop.core.api.numpy_arguments import NumpyCall
from fiveloop.core.api.operands import flatten_arguments, refuse_closed_over, refuse_donated, spread
from fiveloop.core.api.static import exact, inexact
from fiveloop.core.arrays import Value
from fiveloop.core.backend.call import (
    MANY_LEAVES,
    DictCall,
    Retargetable,
    fast_function,
    make_fast,
)
from fiveloop.core.backend.client import MemoryStats, hlo_text, tells_donated
from fiveloop.core.closed_call.bind import call_jaxpr
from fiveloop.core.lower.dispatch import Compiled, Prepared, compiled, prepared
from fiveloop.core.trace.axes import trace_context
from fiveloop.core.trace.boundary import boundary, guarded, pass_out
from fiveloop.core.trace.leaks import checks_leaks
from fiveloop.core.trace.modes import SPECIAL, finds_nans, inlines_jit, looking_for_nans
from fiveloop.core.trace.same_function import traced_once
from fiveloop.core.trace.settings import chosen_settings
from fiveloop.core.trace.stage import Staged, stage
from fiveloop.core.trace.tracer import Tracer, context_uses, is_eager

P = ParamSpec("P")
Q = ParamSpec("Q")
S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A function traced for one structure and types of its arguments."""

    staged: Staged
    flat: flat_function.FlatFunction
    donated: tuple[bool, ...]
    uses_context: bool = False

    @property
    def is_self_contained(self) -> bool:
        """Whether it closes over nothing that is traced, so that it may be used again."""
        return not any(isinstance(x, Tracer) for x in self.staged.captured)


class _Untyped:
    """Nothing is one: to the type checker, the result of a function without types alone."""


class JitFunction(Retargetable, Generic[P, R]):
    """A function that is compiled at its first call with arguments of given types.

    A call goes at C speed to what serves it best: the C++ path, a dictionary, or, in a mode, a check of it.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return super().__new__(cls, call)

    def __init__(
        self, fun: Callable[P, R], static: arguments.Chosen, donated: arguments.Chosen, inline: bool
    ) -> None:
        update_wrapper(self, fun)
        self._fun = fun
        self._name = flatten.function_name(fun)
        self._inline = inline
        self._donated = donated
        if donated:
            SPECIAL.note_donation()
        self._static = static
        self._entries: dict[Any, _Entry] = {}
        self._many = DictCall(self._miss_of_arrays, static.nums, static.names)
        # Nothing stands between the user and C++, so the boundary is where C++ asks.
        slow, first = guarded(self._call_slowly), guarded(self._first)
        self._fast = fast_function(self._name, slow, first, static.nums, static.names)
        self._numpy = NumpyCall(self._name, guarded(self._miss), slow, static)
        self._best: Callable[..., Any] = self._fast
        SPECIAL.listen(self)

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Run the function."""

    def __repr__(self) -> str:
        return f"<jit of {self._name}>"

    def __reduce__(self) -> str:  # as functions are pickled and copied
        return getattr(self._fun, "__qualname__", self._name)

    def modes_changed(self) -> None:
        """Take the way that serves calls best, with or without modes."""
        target = self._best
        if SPECIAL.count:
            target = guarded(self._in_mode)
        elif not self._entries:
            target = guarded(self._checked)
        elif self._static or SPECIAL.donates:
            target = self._telling(target)
        self.retarget(self._parting(target) if self._donated else target)

    def _parting(self, target: Callable[..., Any]) -> Callable[..., Any]:
        """The call, before which mutable values take copies of what is donated."""

        def parting(*args: Any, **kwargs: Any) -> Any:
            arrays.part_from(pytree.tree_leaves(self._donated.of(args, kwargs)))
            return target(*args, **kwargs)

        return parting

    def _take(self, best: Callable[..., Any]) -> None:
        self._best = best
        self.modes_changed()

    def _checked(self, *args: Any, **kwargs: Any) -> Any:
        """The first call."""
        out = self._telling(self._best)(*args, **kwargs)
        self.modes_changed()
        return out

    def _telling(self, best: Callable[..., Any]) -> Callable[..., Any]:
        """The call where C++ may refuse arguments, which is then told in our words: static ones, or donated ones."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                given, named = self._static.changed(exact, args, kwargs)
                return best(*given, **named)
            except (TypeError, ValueError, RuntimeError) as error:
                guarded(self._tell)(error, args, kwargs)
                pass_out(error)
                raise

        return call

    def _tell(self, error: Exception, args: Any, kwargs: Any) -> None:
        if not isinstance(error, RuntimeError):
            self._static_key(args, kwargs)
            flatten.flatten_located(self._static.others(args, kwargs))
        if tells_donated(error):
            given_away = self._donated.of(args, kwargs)
            refuse_donated(self._static.others(args, kwargs), given_away, self._naming(args))

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(
        self: JitFunction[..., _Untyped], instance: object, owner: type | None = None
    ) -> _Bound[..., Any]: ...

    @overload
    def __get__(
        self: JitFunction[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> _Bound[Q, R]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _Bound(self, instance)

    @property
    def depends_on(self) -> tuple[Any, ...]:
        """The function and how it is compiled: two that agree in these are the same function."""
        return self._fun, self._static, self._donated, self._inline

    @boundary
    def lower(self, *args: P.args, **kwargs: P.kwargs) -> LoweredCall[R]:
        """The program for these arguments, or for descriptions of them (`ShapeDtype`), before compilation."""
        entry, _ = self._entry(args, kwargs)
        return LoweredCall(prepared(entry.staged.jaxpr, entry.donated), entry)

    def clear_cache(self) -> None:
        """Forget all programs."""
        self._entries.clear()
        self._fast._clear_cache()
        self._many = DictCall(self._miss_of_arrays, self._static.nums, self._static.names)
        self._numpy.clear()
        self._take(self._fast)

    def _in_mode(self, *args: Any, **kwargs: Any) -> Any:
        """The call where bodies run as Python, or where nans are refused."""
        if inlines_jit():
            return self._call_as_python(args, kwargs)
        if checks_leaks():
            # Leaks are made while tracing: it is traced again.
            again = JitFunction(self._fun, self._static, self._donated, self._inline)
            return again._call_slowly(*args, **kwargs)
        if not finds_nans():
            slowly = chosen_settings()  # the fast way knows the arguments alone
            return (self._call_slowly if slowly else self._checked)(*args, **kwargs)
        return looking_for_nans(
            lambda: self._call_slowly(*args, **kwargs), lambda: self._call_as_python(args, kwargs)
        )

    def _call_as_python(self, args: Any, kwargs: Any) -> Any:
        of_others = self._static.of_others(self._fun, args, kwargs)
        others = self._static.others(args, kwargs)
        return flat_function.call_as_python(of_others, *others, self._naming(args), self._fun)

    def _call_slowly(self, *args: Any, **kwargs: Any) -> Any:
        return self._miss(*args, **kwargs)[0]

    def _first(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        result, fast = self._miss_of_arrays(*args, **kwargs)
        if fast is not None and len(fast.in_shardings) >= MANY_LEAVES:
            self._take_for_arrays(guarded(self._many))
            return result, None, True
        return result, fast, False

    def _take_for_arrays(self, best: Callable[..., Any]) -> None:
        if self._best is self._numpy.run:
            self._numpy.call_arrays(best)
        else:
            self._take(best)

    def _miss_of_arrays(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The same where later calls go fast only with arrays; who gives NumPy's or numbers gets a way for these."""
        result, fast = self._miss(*args, **kwargs)
        if fast is None:
            return result, None
        leaves = pytree.tree_leaves(self._static.others(args, kwargs))
        if all(type(x) is arrays.Array for x in leaves):
            return result, fast
        if self._best is not self._numpy.run and all(map(numpy_arguments.takes, leaves)):
            self._numpy.call_arrays(self._best)
            self._take(self._numpy.run)
        return result, None

    def _miss(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        args, kwargs = self._static.changed(inexact, args, kwargs)
        entry, values = self._entry(args, kwargs)
        staged = entry.staged
        operands = [*staged.captured, *values]
        refuse_closed_over(self._naming(args), staged.captured, values, entry.flat.in_tree)
        if not is_eager() or any(isinstance(x, Tracer) for x in operands):
            outs = call_jaxpr(staged.jaxpr, operands, self._name, self._inline)
            return entry.flat.unflatten(outs), None
        program = compiled(staged.jaxpr, entry.donated)
        result = entry.flat.unflatten(self._run(program, operands))
        # The fast ways know the arguments alone, and no values that can change.
        if entry.uses_context or entry.flat.makes_refs or staged.captured or program.needs_python:
            return result, None
        return result, self._fast_path(program, entry, len(values))

    def _run(self, program: Compiled, operands: ad.Values) -> list[Value]:
        """Run a program, which may call Python, which may call this function; C++ knows no such calls."""
        if not program.executable.calls_host:
            return program.run(operands)
        best = self._best
        self._take(guarded(self._call_slowly))
        try:
            return program.run(operands)
        finally:
            self._take(best)

    def _fast_path(self, program: Compiled, entry: _Entry, num_leaves: int) -> Any:
        assert entry.flat.out_tree is not None, "unreachable: the function has been traced"
        kept = [*[True] * len(program.consts), *program.kept]
        return make_fast(
            program.executable,
            num_leaves,
            entry.flat.out_tree,
            consts=program.consts,
            kept=kept,
            take=guarded(program.take) if program.returning else None,
        )

    def _entry(self, args: Any, kwargs: Any) -> tuple[_Entry, list[Value]]:
        dynamic = self._static.others(args, kwargs)
        leaves, tree = pytree.tree_flatten(dynamic, is_leaf=staging.is_spec)
        if any(staging.is_spec(x) for x in leaves):
            values: list[Value] = []
            avals = [staging.aval_of(x) for x in leaves]
        else:
            values, tree = flatten_arguments(dynamic, self._naming(args))
            avals = [x.aval for x in values]
        key = (tree, *avals, self._static_key(args, kwargs), trace_context())
        entry = self._entries.get(key)
        if entry is None:
            entry = self._trace(args, kwargs, tree, avals)
            if entry.is_self_contained:
                self._entries[key] = entry
        return entry, values

    def _trace(self, args: Any, kwargs: Any, tree: Any, avals: Sequence[Any]) -> _Entry:
        key = ("jit", tree, *avals, self._static_key(args, kwargs), self._donated)
        trace = lambda: self._trace_anew(args, kwargs, tree, avals)
        return traced_once(key, [self._fun], trace)

    def _trace_anew(self, args: Any, kwargs: Any, tree: Any, avals: Sequence[Any]) -> _Entry:
        of_others = self._static.of_others(self._fun, args, kwargs)
        flat = flat_function.FlatFunction(of_others, tree, user_fun=self._fun, returns_refs=True)
        uses = context_uses()
        staged = stage(flat, avals, self._name, self._fun)
        uses_context = context_uses() != uses
        donated = self._donated_mask(args, kwargs, staged, tree)
        return _Entry(staged, flat, donated, uses_context)

    def _donated_mask(self, args: Any, kwargs: Any, staged: Staged, tree: Any) -> tuple[bool, ...]:
        """One flag an operand; nothing at all if no argument is donated."""
        nums, names = self._donated.nums, self._donated.names
        if not self._donated:
            return ()
        positional, named = self._static.others(args, kwargs)
        places = self._static.other_places(len(args))
        chosen = [(k in nums, arg) for k, arg in zip(places, positional, strict=True)]
        chosen += [(k in names, named[k]) for k in sorted(named)]
        flags = [
            donated for donated, arg in chosen for _ in pytree.tree_leaves(arg, staging.is_spec)
        ]
        num = len(staged.captured)
        return (*[False] * num, *spread(tree, flags, len(staged.jaxpr.invars) - num, False))

    def _naming(self, args: Any) -> flatten.Naming:
        """What the leaves of the arguments that are not static are called."""
        return self._static.naming("jit", self._fun, len(args))

    def _static_key(self, args: Any, kwargs: Any) -> Any:
        return self._static.key("jit", self._fun, args, kwargs)


class _Bound(Generic[Q, R]):
    """A jitted method bound to its object, which is passed as the first argument."""

    def __init__(self, function: JitFunction[..., R], instance: object) -> None:
        self._function = function
        self._instance = instance

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> R:
        return self._function(self._instance, *args, **kwargs)

    def lower(self, *args: Q.args, **kwargs: Q.kwargs) -> LoweredCall[R]:
        """The program for these arguments before compilation."""
        return self._function.lower(self._instance, *args, **kwargs)


class Decorator(Protocol):
    """`jit` with its options chosen."""

    def __call__(self, fun: Callable[P, R], /) -> JitFunction[P, R]:
        """The function, compiled at its first call."""


class LoweredCall(Generic[R]):
    """A traced function before compilation."""

    def __init__(self, stages: Prepared, entry: _Entry) -> None:
        self._stages = stages
        self._entry = entry

    @property
    def jaxpr(self) -> ir.Jaxpr:
        """The program as it was traced."""
        return self._stages.jaxpr

    @boundary
    def as_text(self, dialect: str = "stablehlo") -> str:
        """The program as StableHLO, or as XLA's own "hlo" before it is optimised; ValueError for other dialects.

        >>> jit(lambda x: x + 1).lower(2).as_text("hlo").split()[0]
        'HloModule'
        """
        if dialect not in ("stablehlo", "hlo"):
            raise ValueError(
                f"as_text: expected `dialect` to be 'stablehlo' or 'hlo', got {dialect!r}"
            )
        text = self._stages.lowered().text
        return text if dialect == "stablehlo" else hlo_text(text)

    def compile(self) -> CompiledCall[R]:
        """The program compiled for the device."""
        self._stages.lowered()
        return CompiledCall(compiled(self._stages.jaxpr, self._entry.donated), self._entry)


class CompiledCall(Generic[R]):
    """A compiled function for arguments of fixed types."""

    def __init__(self, program: Compiled, entry: _Entry) -> None:
        self._program = program
        self._entry = entry

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        naming = lambda path: f"compiled call: argument{pytree.keystr(path)}"
        values, tree = flatten_arguments((args, kwargs), naming)
        self._check(tree, values)
        operands = [*self._entry.staged.captured, *values]
        arrays.part_from(x for x, d in zip(operands, self._entry.donated, strict=False) if d)
        outs = self._program.run(operands)
        result: R = self._entry.flat.unflatten(outs)
        return result

    def _check(self, tree: Any, values: ad.Values) -> None:
        staged, flat = self._entry.staged, self._entry.flat
        if tree != flat.in_tree:
            raise TypeError(
                f"the compiled function takes arguments of structure {flat.in_tree}, got {tree}"
            )
        wanted = staged.jaxpr.in_avals[len(staged.captured) :]
        for k, (x, aval) in enumerate(zip(values, wanted, strict=True)):
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


@overload
def jit(
    fun: Callable[P, R],
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    inline: bool = False,
) -> JitFunction[P, R]: ...


@overload
def jit(
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    inline: bool = False,
) -> Decorator: ...


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    inline: bool = False,
) -> JitFunction[..., Any] | Decorator:
    """`fun`, traced and compiled at its first call with arguments of given shapes and dtypes.

    Arguments and results are pytrees of arrays. Static arguments are hashable Python values that the trace may
    depend on; each value is compiled for. The buffers of donated arguments may be used for results, after which the
    arguments are gone; a Ref that shares such a buffer takes a copy first. Within other transforms it is one
    `closed_call`. Without `fun` it is a decorator: `@jit(...)`.

    >>> jit(lambda x: x * 2.0)(np.arange(3.0, dtype="float32"))
    Array([0., 2., 4.], dtype=float32)
    """

    @boundary
    def compiled_at_first_call(fun: Callable[P, R], /) -> JitFunction[P, R]:
        flatten.check_callable("jit", fun)
        donated = arguments.chosen_arguments("jit", fun, donate_argnums, donate_argnames, "donate")
        static = arguments.chosen_arguments("jit", fun, static_argnums, static_argnames)
        return JitFunction(fun, static, donated, inline)

    return compiled_at_first_call if fun is None else compiled_at_first_call(fun)
