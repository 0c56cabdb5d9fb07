"""Compile and run a jaxpr: passes, lowering, compilation, the search for copies in loops, and the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import compress
from typing import Any

from fiveloop.core import ad, errors, ir, passes, rules, util
from fiveloop.core.arrays.array import Array, Value, copied, of_buffer, to_array
from fiveloop.core.arrays.sharing import Turn, leave, lent, take
from fiveloop.core.backend import client, native
from fiveloop.core.backend.call import forget_signatures
from fiveloop.core.backend.gate import array_copies
from fiveloop.core.dataclass import dataclass, field, replace
from fiveloop.core.lower.fingerprint import Form, form_of, opened
from fiveloop.core.lower.module import Emission, Lowered, lower_jaxpr


def ladder(platform: str) -> tuple[Emission, ...]:
    """The ways to try, best first."""
    if native.drops_barriers(platform):
        return (Emission.SCALAR_IF, Emission.GUARDED_IF, Emission.BARRIER)
    return (Emission.BARRIER, Emission.GUARDED_BARRIER, Emission.SCALAR_IF)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program ready to run: it takes constants first, then the arguments kept.

    After the program's own results come results for effects that act when it returns, and then the new contents of the
    arguments in `writes`. Each of `reads`, `turns` and `writes` is an argument's position and the rule of its type;
    `writing` marks the turns of written arguments.
    """

    executable: client.Executable
    consts: list[client.Buffer]
    kept: list[bool]
    num_outs: int
    reads: list[tuple[int, Callable[[Any], client.Buffer]]]
    turns: list[tuple[int, Callable[[Any], Turn]]]
    writing: list[bool]
    returning: list[type[ir.Effect]]
    writes: list[tuple[int, Callable[[Any, Value], None]]]
    emission: Emission
    copies: int

    def run(self, args: ad.Values) -> list[Value]:
        """Run on concrete arguments; contents are written back after the program has run without error."""
        if self.turns:
            return self.results(self._run_in_turn(args))
        return self.results(self.executable.execute(self._buffers(args)))

    def _run_in_turn(self, args: ad.Values) -> list[client.Buffer]:
        """Run on arguments that others may want, too; while Python is called, they are lent, not locked."""
        turns = [turn(args[k]) for k, turn in self.turns]
        written = [*compress(turns, self.writing)]
        if len(turns) > 1:
            turns.sort(key=id)
        if isinstance(self.executable, client.CallingExecutable):
            with lent(turns, written) as run, ExitStack() as stack:
                given = self.executable.execute(self._buffers(args), run)
                for turn in turns:
                    stack.enter_context(turn)
                self._write_back(args, given)
                return given
        take(turns, written)
        outs: list[client.Buffer] = []

        def use(made: list[client.Buffer]) -> None:
            outs.extend(made)
            self._write_back(args, made)

        try:
            self.executable.execute_for(self._buffers(args), use)
            return outs
        finally:
            leave(turns)

    def _buffers(self, args: ad.Values) -> list[client.Buffer]:
        """What the program takes; arguments that it updates in place give their own memory."""
        return [*self.consts, *[read(args[k]) for k, read in self.reads]]

    def _write_back(self, args: ad.Values, outs: Sequence[client.Buffer]) -> None:
        """Give arguments their new contents."""
        contents = outs[self.num_outs + len(self.returning) :]
        for (k, write), new in zip(self.writes, contents, strict=True):
            write(args[k], of_buffer(new))

    @property
    def needs_python(self) -> bool:
        """Whether more has to be done for a call than to run the executable, and `take` what it gives to effects."""
        return bool(self.writes or self.executable.calls_host)

    def on_buffers(self) -> OnBuffers:
        """The program as a function of its arguments' buffers, if it writes to none of them."""
        if all(self.kept) and not self.consts and not self.needs_python and not self.returning:
            return self.executable.run

        def run(buffers: Sequence[client.Buffer]) -> list[client.Buffer]:
            outs = self.executable.execute([*self.consts, *compress(buffers, self.kept)])
            return [x.buffer for x in map(to_array, self.results(outs))]

        return run

    def results(self, outs: Sequence[client.Buffer]) -> list[Value]:
        """The program's own results, from all of them, of which effects take theirs."""
        self.take(outs[self.num_outs :])
        return [of_buffer(out) for out in outs[: self.num_outs]]

    def take(self, contents: Sequence[client.Buffer]) -> None:
        """Hand effects what they take when the program returns: each its own, whatever another does."""
        if len(self.returning) == 1:
            return self.returning[0].at_return(of_buffer(contents[0]))
        with ExitStack() as stack:
            for effect, out in zip(self.returning, contents, strict=False):
                stack.callback(effect.at_return, of_buffer(out))


@dataclass(frozen=True, slots=True)
class Build:
    """How a jaxpr is made a program.

    Results may take the buffers of the `donated` arguments. `keep_unused` keeps arguments that nothing uses. Other
    arrays can take the place of `open_consts`.
    """

    donated: tuple[bool, ...] = ()
    keep_unused: bool = False
    open_consts: bool = False
    choices: client.CompileChoices = client.NO_CHOICES


@dataclass(slots=True)
class Prepared:
    """A jaxpr on its way to a program: each stage is made once, when it is asked for."""

    jaxpr: ir.Jaxpr
    name: str = "main"
    build: Build = Build()
    _discharged: ir.Jaxpr | None = field(default=None)
    _lowered: dict[tuple[str, Emission], Lowered] = field(default_factory=dict)

    @property
    def written(self) -> list[int]:
        """The positions of the arguments whose new contents follow the results."""
        return sorted(ir.mutated_positions(self.jaxpr.effects))

    @property
    def in_place(self) -> bool:
        """Whether arguments are updated in place: not by a program that may fail, and then leaves them as they were."""
        return not any(e.may_fail for e in self.jaxpr.effects)

    @property
    def returning(self) -> list[type[ir.Effect]]:
        """The effects that take a result when the program returns."""
        return ir.returning(self.jaxpr.effects)

    def ready(self, *after_each: Callable[[ir.Jaxpr], ir.Jaxpr]) -> ir.Jaxpr:
        """The jaxpr after all passes, if it is not known with what is done after each."""
        if self._discharged is None:
            self._discharged = passes.run_passes(self.jaxpr, *after_each)
        return self._discharged

    def check_axes(self) -> None:
        """Refuse a program of lanes that no `vmap` has bound: there are none to run in."""
        if self.jaxpr.effects and (axes := ir.axes_of(self.jaxpr.effects)):
            error = ir.unbound(self.jaxpr.name or "the program", axes)
            errors.add_source(error, ir.user_source())
            raise error

    def lowered(self, emission: Emission | None = None, platform: str | None = None) -> Lowered:
        """The module for a platform, or this one, with a way to order reads and writes, or the platform's first."""
        platform = platform or client.platform()
        key = platform, emission or ladder(platform)[0]
        if key not in self._lowered:
            self.check_axes()
            first = len(self.jaxpr.outvars) + len(self.returning)
            written = self.written if self.in_place else []
            aliased = {position: first + k for k, position in enumerate(written)}
            # What is updated in place is still there after the call: it is never given away.
            in_avals = self.jaxpr.in_avals
            donated = self.build.donated
            given = [d and not a.accumulates for d, a in zip(donated, in_avals, strict=False)]
            build = self.build
            self._lowered[key] = lower_jaxpr(
                self.ready(), *key, self.name, given, aliased, build.keep_unused, build.open_consts
            )
        return self._lowered[key]

    def compile(self) -> Compiled:
        """Compile; where loops update arrays, in the way that leaves the fewest copies of these."""
        best: Compiled | None = None
        texts = set[str]()
        for emission in ladder(client.platform()):
            if self.lowered(emission).text in texts:
                continue
            texts.add(self.lowered(emission).text)
            tried = self._compile_as(emission)
            if best is None or tried.copies < best.copies:
                best = tried
            if best.copies == 0:
                break
        assert best is not None, "unreachable: a ladder has at least one rung"
        return best

    def _compile_as(self, emission: Emission) -> Compiled:
        lowered = self.lowered(emission)
        # A pass may put an operand in the place of a result, and a weak one where a strong one was traced.
        results = [*self.jaxpr.out_avals, *lowered.out_avals[len(self.jaxpr.outvars) :]]
        executable = client.compile_text(
            lowered.text, results, options=self.build.choices, host_functions=lowered.host_functions
        )
        copies = array_copies(executable.optimized_text()) if lowered.updates_in_loops else []
        consts = [to_array(c).buffer for c in lowered.consts]  # type: ignore[arg-type]  # constants are values
        kept, avals = lowered.kept, self.jaxpr.in_avals
        of_types = [rules.type_rules(aval) for aval in avals]
        written, in_place = self.written, self.in_place
        own = [in_place and k in written for k in range(len(of_types))]
        reads = [(k, r.own_buffer if own[k] else r.buffer) for k, r in enumerate(of_types)]
        turns = [(k, r.turn) for k, r in enumerate(of_types) if avals[k].accumulates]
        return Compiled(
            executable,
            consts,
            kept,
            len(self.jaxpr.outvars),
            [read for read, is_kept in zip(reads, kept, strict=True) if is_kept],
            turns,
            [k in written for k, _ in turns],
            self.returning,
            [(k, of_types[k].write_back) for k in written],
            emission,
            len(copies),
        )


_BUILD = Build()
_once_per_build = ir.once_per(lambda jaxpr, build=_BUILD: (jaxpr, build))


@_once_per_build
def prepared(jaxpr: ir.Jaxpr, build: Build = _BUILD) -> Prepared:
    """The stages of a jaxpr, remembered on it."""
    return Prepared(jaxpr, jaxpr.name or "main", build)


@_once_per_build
def compiled(jaxpr: ir.Jaxpr, build: Build = _BUILD) -> Compiled:
    """The program of a jaxpr, remembered on it."""
    return prepared(jaxpr, build).compile()


@dataclass(frozen=True, slots=True)
class _Shared:
    """A program without its constants, and which constant of the form each of them is.

    The numbers at the places `open` are constants of it, after the form's own; all others are `numbers`.
    """

    program: Compiled
    places: list[int]
    numbers: tuple[bytes, ...]
    open: tuple[int, ...] = ()

    def of(self, form: Form) -> Compiled:
        """The program for a jaxpr of the form."""
        consts = [*form.consts, *[form.scalars[k].value for k in self.open]]
        buffers = [to_array(consts[k]).buffer for k in self.places]  # type: ignore[arg-type]  # constants are values
        return replace(self.program, consts=buffers)

    def differs(self, form: Form) -> tuple[int, ...]:
        """The places at which a form has other numbers, but those that are open."""
        pairs = enumerate(zip(self.numbers, form.numbers, strict=True))
        return tuple([k for k, (mine, its) in pairs if mine != its and k not in self.open])


_shared: util.BoundedTable[_Shared] = util.BoundedTable(256)
util.FORGET.append(forget_signatures)


def shared_program(jaxpr: ir.Jaxpr, opens: bool = False) -> Compiled:
    """The program of a jaxpr, shared with another jaxpr of the same form, if there is one.

    With `opens`, numbers that differ from the numbers of an earlier program become constants, which programs take.
    """
    form = form_of(jaxpr)
    if form is None:
        return compiled(jaxpr)
    key = (form.skeleton, None if opens else form.numbers)
    found = _shared.find(key)
    differing = () if found is None else found.differs(form)
    if found is not None and not differing:
        return found.of(form)
    made = _share(jaxpr, form, (*found.open, *differing) if found is not None else ())
    if isinstance(made, Compiled):
        return made
    _shared.add(key, made)
    return made.of(form)


def _share(jaxpr: ir.Jaxpr, form: Form, places: tuple[int, ...]) -> _Shared | Compiled:
    """A program that others may run, with the numbers at some places as constants; or one that none may."""
    numbers = [copied(to_array(form.scalars[k].value)) for k in places]  # type: ignore[arg-type]  # constants are values
    if numbers:
        values = {id(form.scalars[k]): x for k, x in zip(places, numbers, strict=True)}
        jaxpr = opened(jaxpr, values)
    stages = prepared(jaxpr, Build(open_consts=True))
    program = stages.compile()
    known = {id(c): k for k, c in enumerate([*form.consts, *numbers])}
    taken = [known.get(id(c)) for c in stages.lowered(program.emission).consts]
    if None in taken:
        return program
    return _Shared(
        replace(program, consts=[]), [k for k in taken if k is not None], form.numbers, places
    )


def _one_equation(prim: ir.Primitive[Any], avals: ir.Avals, params: Any) -> ir.Jaxpr:
    out_avals, effects = rules.abstract_eval_rules[prim](avals, params)
    invars, outvars = [ir.Var(a) for a in avals], [ir.Var(a) for a in out_avals]
    return ir.Jaxpr(invars, [ir.Eqn(prim, invars, outvars, params, effects)], outvars, str(prim))


@util.remembered(4096)
def one_equation(prim: ir.Primitive[Any], avals: tuple[ir.Aval, ...], params: Any) -> ir.Jaxpr:
    """The jaxpr of one equation; remembered, and with it its program."""
    return _one_equation(prim, avals, params)


# What a body needs is remembered on it, and dies with it.
@ir.once_per(lambda prim, avals, params: (ir.jaxprs_in(params)[0], prim, avals, params))
def _program_of_bodies(prim: ir.Primitive[Any], avals: ir.Avals, params: Any) -> Compiled:
    return shared_program(_one_equation(prim, avals, params), opens=True)


def run_eagerly(prim: ir.Primitive[Any], args: ad.Values, params: Any) -> list[Value]:
    """The default impl: compile and run the one-equation jaxpr."""
    if params is not ir.NO_PARAMS and ir.jaxprs_in(params):
        return _program_of_bodies(prim, tuple([a.aval for a in args]), params).run(args)
    types: list[ir.Aval] = []
    buffers: list[client.Buffer] = []
    for a in args:
        x = a if type(a) is Array else _on_device(a)
        if x is None:
            return compiled(one_equation(prim, tuple([a.aval for a in args]), params)).run(args)
        types.append(x._a.aval)
        buffers.append(x._a)
    try:
        return [*map(of_buffer, _eager(prim, params, tuple(types))(buffers))]
    except Exception as error:
        explain(error, buffers, prim.name)
        raise


def _on_device(x: Value) -> Array | None:
    """A number as an array; None for a Ref."""
    return None if x.aval.accumulates else to_array(x)


def explain(error: Exception, buffers: Sequence[client.Buffer], what: str) -> None:
    """If an operation failed because an operand has no contents, say so, with the user's line."""
    try:
        client.require_alive(buffers, what)
    except errors.DonatedError as gone:
        errors.add_source(gone, ir.user_source())
        raise


OnBuffers = Callable[[Sequence[client.Buffer]], list[client.Buffer]]
"""A program from buffers to buffers."""


@util.remembered(4096)
def _eager(prim: ir.Primitive[Any], params: Any, avals: tuple[ir.Aval, ...]) -> OnBuffers:
    return compiled(one_equation(prim, avals, params)).on_buffers()


def eager_program(
    jaxpr_of: Callable[[tuple[ir.Aval, ...]], ir.Jaxpr], *, donates_first: bool = False
) -> Callable[..., list[client.Buffer]]:
    """A callable on buffers that runs the jaxpr of their types, compiled once for each.

    With `donates_first` results may take the memory of the first buffer.
    """

    @lru_cache(256)
    def program(*avals: ir.Aval) -> OnBuffers:
        donated = (True, *[False] * (len(avals) - 1)) if donates_first else ()
        return compiled(jaxpr_of(avals), Build(donated)).on_buffers()

    return lambda *buffers: program(*[b.aval for b in buffers])(buffers)
