"""`jit`: compile a function once per types of its arguments, and run the compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from operator import call
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, Self, Unpack, overload

from fiveloop.core import ad, arrays, errors, pytree, transforms
from fiveloop.core.api import arguments, flat_function, flatten, stages
from fiveloop.core.arrays import Value
from fiveloop.core.backend import call as backend_call
from fiveloop.core.backend import client
from fiveloop.core.closed_call import call_jaxpr
from fiveloop.core.dataclass import dataclass
from fiveloop.core.lower import dispatch
from fiveloop.core.primitives import check
from fiveloop.core.trace import modes, same_function, tracer
from fiveloop.core.trace.boundary import boundary, guarded, pass_out
from fiveloop.core.trace.stage import Staged, StageTrace, stage
from fiveloop.core.util import P, Q, R, T

_AS_DECORATOR: Any = object()


@dataclass(frozen=True, slots=True)
class Options:
    """What was chosen for a jitted function: static and donated arguments, and how its programs are built."""

    static: arguments.Chosen
    donated: arguments.Chosen
    inline: bool = False
    keep_unused: bool = False
    choices: client.CompileChoices = client.NO_CHOICES


class _Untyped:
    """Nothing is one: to the type checker, the result of a function without types alone."""


class JitFunction(backend_call.Retargetable, Generic[P, R]):
    """A function that is compiled at its first call with arguments of given types.

    Calls are dispatched at C speed: by the C++ path, by a dictionary of programs, or, in a mode such as `debug_nans`,
    to a function that checks the mode.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        return super().__new__(cls, call)

    def __init__(self, fun: Callable[P, R], options: Options) -> None:
        update_wrapper(self, fun)
        self._fun = fun
        self._name = flatten.function_name(fun)
        self._options = options
        self._static, self._donated = options.static, options.donated
        if self._donated:
            modes.SPECIAL.note_donation()
        static = self._static
        self._entries: dict[stages.Signature, stages.Entry] = {}
        self._takes_numbers = False
        self._many = self._by_dictionary()
        # Nothing stands between the user and C++, so the boundary is where C++ asks.
        slow, first = guarded(self._call_slowly), guarded(self._first)
        self._fast = backend_call.fast_function(self._name, slow, first, static.nums, static.names)
        self._numpy = arguments.NumpyCall(self._name, guarded(self._miss), slow, static)
        self._best: Callable[..., Any] = self._fast
        modes.SPECIAL.listen(self)

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Run the function."""

    def __repr__(self) -> str:
        return f"<jit of {self._name}>"

    def __reduce__(self) -> str:  # as functions are pickled and copied
        return getattr(self._fun, "__qualname__", self._name)

    def modes_changed(self) -> None:
        """Choose how calls are dispatched, after a mode was switched on or off."""
        target = self._best
        if modes.SPECIAL.count:
            target = guarded(self._in_mode)
        elif not self._entries:
            target = guarded(self._checked)
        elif self._static or self._takes_numbers or modes.SPECIAL.donates:
            target = self._telling(target)
        self.retarget(self._parting(target) if self._donated else target)

    def _parting(self, target: Callable[..., Any]) -> Callable[..., Any]:
        """The call, before which mutable values take copies of what is donated."""

        def parting(*args: Any, **kwargs: Any) -> Any:
            try:
                arrays.part_from(pytree.tree_leaves(self._donated.of(args, kwargs)))
            except TypeError:  # dict keys without an order
                return guarded(self._call_slowly)(*args, **kwargs)
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
        """The call where what C++ refuses is told in our words; of arrays alone it is not, for a tenth of the time."""

        static, as_is = self._static, self._static.as_is
        plain = not static

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                if plain or as_is(args, kwargs):
                    return best(*args, **kwargs)
                given, named = static.changed(arguments.exact, args, kwargs)
                return best(*given, **named)
            except (TypeError, ValueError, RuntimeError) as error:
                guarded(self._tell)(error, args, kwargs)
                pass_out(error)
                raise

        return call

    def _tell(self, error: Exception, args: Any, kwargs: Any) -> None:
        if not isinstance(error, RuntimeError):
            self._static_key(args, kwargs)
            flatten.flatten_located(self._static.others(args, kwargs), what=self._naming(args))
        if client.tells_donated(error):
            given_away, others = self._donated.of(args, kwargs), self._static.others(args, kwargs)
            # Of an error of our own, the function may not have been traced to its end.
            ours = isinstance(error, errors.DonatedError)
            consts = () if ours else self._entry(args, kwargs)[0].program().consts
            flatten.refuse_donated(others, given_away, self._naming(args), consts)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: JitFunction[..., _Untyped], instance: object, owner: type | None = None
    ) -> _Bound[..., Any]: ...
    @overload
    def __get__(
        self: JitFunction[Concatenate[T, Q], R], instance: T, owner: type | None = None
    ) -> _Bound[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else _Bound(self, instance)

    @property
    def depends_on(self) -> tuple[Any, ...]:
        """The function and how it is compiled: two that agree in these are the same function."""
        return self._fun, self._options

    @boundary
    def trace(self, *args: P.args, **kwargs: P.kwargs) -> stages.TracedCall[R]:
        """The function traced for these arguments, or for descriptions of them (`ShapeDtype`)."""
        return stages.TracedCall(self._entry(args, kwargs, flatten.is_spec)[0])

    @boundary
    def lower(self, *args: P.args, **kwargs: P.kwargs) -> stages.LoweredCall[R]:
        """The program for these arguments, or for descriptions of them (`ShapeDtype`), before compilation."""
        return self.trace(*args, **kwargs).lower()

    @boundary
    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The shapes and dtypes of the result for these arguments, without computing anything."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget all programs."""
        self._entries.clear()
        self._fast._clear_cache()
        self._many = self._by_dictionary()
        self._numpy.clear()
        self._take(self._fast)

    def _in_mode(self, *args: Any, **kwargs: Any) -> Any:
        """The call where bodies run as Python, or where nans are refused."""
        if modes.inlines_jit():
            return self._call_as_python(args, kwargs)
        if tracer.checks_leaks():
            # Leaks are made while tracing: it is traced again.
            again = JitFunction(self._fun, self._options)
            return again._call_slowly(*args, **kwargs)
        if not modes.finds_nans():
            slowly = modes.chosen_settings()  # the fast way knows the arguments alone
            return (self._call_slowly if slowly else self._checked)(*args, **kwargs)
        return modes.looking_for_nans(
            lambda: self._call_slowly(*args, **kwargs), lambda: self._call_as_python(args, kwargs)
        )

    def _call_as_python(self, args: Any, kwargs: Any) -> Any:
        of_others = self._static.of_others(self._fun, args, kwargs)
        others = self._static.others(args, kwargs)
        return flat_function.call_as_python(of_others, *others, self._naming(args), self._fun)

    def _call_slowly(self, *args: Any, **kwargs: Any) -> Any:
        return self._miss(*args, **kwargs)[0]

    def _first(self, *args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
        """A call that C++ does not know."""
        result, fast = self._miss(*args, **kwargs)
        if fast is None:
            return result, None, False
        leaves = self._leaves(args, kwargs)
        if not arguments.are_arrays(leaves):
            if not all(map(arguments.read_by_cpp, leaves)):
                self._take_for_numpy(leaves)
                return result, None, False
            if not self._takes_numbers:
                self._takes_numbers = True
                self.modes_changed()
        elif len(fast.in_shardings) >= backend_call.MANY_LEAVES:
            self._take_for_arrays(self._many)
            return result, None, True
        return result, fast, False

    def _by_dictionary(self) -> Callable[..., Any]:
        nums, names = self._static.nums, self._static.names
        # The bound method is called in less time than the object.
        return backend_call.DictCall(self._miss_of_arrays, nums, names, pass_out).__call__

    def _take_for_arrays(self, best: Callable[..., Any]) -> None:
        if self._best is self._numpy.run:
            self._numpy.call_arrays(best)
        else:
            self._take(best)

    def _take_for_numpy(self, leaves: Sequence[Any]) -> None:
        """Who gives NumPy's arrays or numbers gets a way for them."""
        if self._best is not self._numpy.run and all(map(arguments.takes, leaves)):
            self._numpy.call_arrays(self._best)
            self._take(self._numpy.run)

    def _miss_of_arrays(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """A call that is not known where later ones go fast only with arrays."""
        result, fast = self._miss(*args, **kwargs)
        if fast is None:
            return result, None
        leaves = self._leaves(args, kwargs)
        if arguments.are_arrays(leaves):
            return result, fast
        self._take_for_numpy(leaves)
        return result, None

    def _leaves(self, args: Any, kwargs: Any) -> list[Any]:
        """The leaves of the arguments that are not static."""
        return pytree.tree_leaves(self._static.others(args, kwargs))

    def _miss(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        args, kwargs = self._static.changed(arguments.inexact, args, kwargs)
        entry, values = self._entry(args, kwargs)
        staged = entry.staged
        operands = [*staged.captured, *values]
        flatten.refuse_closed_over(self._naming(args), staged.captured, values, entry.flat.in_tree)
        if not tracer.is_eager() or any(isinstance(x, tracer.Tracer) for x in operands):
            inline = self._options.inline
            if inline and type(tracer.current_trace()) is StageTrace:
                return entry.flat.unflatten(transforms.eval_jaxpr(staged.jaxpr, operands)), None
            outs = call_jaxpr(staged.jaxpr, operands, self._name, inline)
            return entry.flat.unflatten(outs), None
        program = entry.program()
        result = entry.flat.unflatten(self._run(program, operands))
        return result, entry.fast(program, len(values))

    def _run(self, program: dispatch.Compiled, operands: ad.Values) -> list[Value]:
        """Run a program, which may call Python, which may call this function; C++ knows no such calls."""
        if not program.executable.calls_host:
            return program.run(operands)
        best = self._best
        self._take(guarded(self._call_slowly))
        try:
            return program.run(operands)
        finally:
            self._take(best)

    def _entry(
        self, args: Any, kwargs: Any, is_spec: Callable[[object], bool] | None = None
    ) -> tuple[stages.Entry, list[Value]]:
        """The function traced for these arguments, of which some may be descriptions, and their values if none is."""
        dynamic, naming = self._static.others(args, kwargs), self._naming(args)
        leaves, tree = flatten.flatten_located(dynamic, is_spec, naming)
        if is_spec is not None and any(map(is_spec, leaves)):
            values: list[Value] = []
            pairs = pytree.tree_flatten_with_path(dynamic, is_spec)[0]
            avals = [flatten.aval_of(x, naming(path)) for path, x in pairs]
        else:
            values, tree = flatten.flatten_arguments(dynamic, naming)
            avals = [x.aval for x in values]
        key = stages.Signature(
            tree, tuple(avals), self._static_key(args, kwargs), modes.trace_context()
        )
        entry = self._entries.get(key)
        if entry is None:
            entry = self._trace(args, kwargs, key)
            if entry.is_self_contained:
                self._entries[key] = entry
        return entry, values

    def _trace(self, args: Any, kwargs: Any, key: stages.Signature) -> stages.Entry:
        trace = lambda: self._trace_anew(args, kwargs, key)
        return same_function.traced_once(("jit", key, self._options), [self._fun], trace)

    def _trace_anew(self, args: Any, kwargs: Any, key: stages.Signature) -> stages.Entry:
        stages.note_miss(self._fun, self._naming(args), key, self._entries)
        tree, avals = key.tree, key.avals
        of_others = self._static.of_others(self._fun, args, kwargs)
        flat = flat_function.FlatFunction(of_others, tree, user_fun=self._fun, returns_refs=True)
        uses = tracer.context_uses()
        staged = stage(flat, avals, self._name, self._fun)
        uses_context = tracer.context_uses() != uses
        flat.release()
        donated = self._donated_mask(args, kwargs, staged, tree)
        build = dispatch.Build(donated, self._options.keep_unused, choices=self._options.choices)
        places = self._static.other_places(len(args))
        names = tuple([flatten.argument_name(self._fun, k) for k in places])
        return stages.Entry(staged, flat, build, uses_context, names)

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
            donated for donated, arg in chosen for _ in pytree.tree_leaves(arg, flatten.is_spec)
        ]
        num = len(staged.captured)
        return (*[False] * num, *flatten.spread(tree, flags, len(staged.jaxpr.invars) - num, False))

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

    def trace(self, *args: Q.args, **kwargs: Q.kwargs) -> stages.TracedCall[R]:
        """The function traced for these arguments."""
        return self._function.trace(self._instance, *args, **kwargs)

    def lower(self, *args: Q.args, **kwargs: Q.kwargs) -> stages.LoweredCall[R]:
        """The program for these arguments before compilation."""
        return self._function.lower(self._instance, *args, **kwargs)

    def eval_shape(self, *args: Q.args, **kwargs: Q.kwargs) -> Any:
        """The shapes and dtypes of the result for these arguments."""
        return self._function.eval_shape(self._instance, *args, **kwargs)


class Decorator(Protocol):
    """`jit` with its options chosen."""

    def __call__(self, fun: Callable[P, R], /) -> JitFunction[P, R]:
        """The function, compiled at its first call."""


@overload
def jit(fun: Callable[P, R], **options: Unpack[stages.JitOptions]) -> JitFunction[P, R]: ...
@overload
def jit(**options: Unpack[stages.JitOptions]) -> Decorator: ...
def jit(
    fun: Any = _AS_DECORATOR,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    keep_unused: bool = False,
    device: Any = None,
    inline: bool = False,
    compiler_options: stages.XlaOptions | None = None,
) -> JitFunction[..., Any] | Decorator:
    """`fun`, traced and compiled at its first call with arguments of given shapes and dtypes.

    Arguments and results are pytrees of arrays. Static arguments are hashable Python values that the trace may depend
    on; there is a program for each value. The buffers of donated arguments may be used for results; the arguments
    cannot be used afterwards. A Ref that shares such a buffer takes a copy first. `keep_unused` leaves unused
    arguments in the program. `device` names the device to run on. Within other transforms, the function is one
    `closed_call`; with `inline` its equations become equations of the jaxpr that is being traced. `compiler_options`
    are options of XLA, by name. Without `fun` it is a decorator: `@jit(...)`.

    Raises TypeError if a static argument is not hashable, or another argument is neither an array nor a scalar.

    >>> jit(lambda x: x * 2.0)(np.arange(3.0, dtype="float32"))
    Array([0., 2., 4.], dtype=float32)
    """

    @boundary
    def compiled_at_first_call(fun: Callable[P, R], /) -> JitFunction[P, R]:
        flatten.check_callable("jit", fun)
        of = f"jit of {flatten.function_name(fun)}"
        _check_device(of, device)
        inlines = check.known_bool(of, "inline", inline)
        keeps = check.known_bool(of, "keep_unused", keep_unused)
        donated = arguments.chosen_arguments("jit", fun, donate_argnums, donate_argnames, "donate")
        static = arguments.chosen_arguments("jit", fun, static_argnums, static_argnames)
        _check_apart(of, static, donated)
        choices = stages.with_options(of, client.NO_CHOICES, compiler_options)
        return JitFunction(fun, Options(static, donated, inlines, keeps, choices))

    return compiled_at_first_call if fun is _AS_DECORATOR else compiled_at_first_call(fun)


def _check_apart(what: str, static: arguments.Chosen, donated: arguments.Chosen) -> None:
    both = [*{*static.names} & {*donated.names}, *{*static.nums} & {*donated.nums}]
    if both:
        raise ValueError(
            f"{what}: expected no argument to be static and donated, got {both[0]!r} as both; a static argument is a "
            f"Python value without a buffer that could be donated: make it one of the two"
        )


def _check_device(what: str, device: Any) -> None:
    if device is not None and device not in client.devices():
        raise ValueError(
            f"{what}: expected `device` to be one of {client.devices()}, got {device!r}; leave it out, as "
            f"there is no other"
        )
