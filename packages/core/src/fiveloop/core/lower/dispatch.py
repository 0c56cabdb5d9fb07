"""Compile and run: a jaxpr through the passes, lowered, compiled, checked for copies in loops, and called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fiveloop.core.array import Array, Value, to_array
from fiveloop.core.backend import client
from fiveloop.core.backend.call import eager_function, make_eager_fast
from fiveloop.core.backend.client import Executable
from fiveloop.core.backend.gate import array_copies
from fiveloop.core.errors import add_source
from fiveloop.core.ir.avals import Aval
from fiveloop.core.ir.axes import axes_of, unbound
from fiveloop.core.ir.effects import mutated_positions
from fiveloop.core.ir.jaxpr import Eqn, Jaxpr, Primitive, Var
from fiveloop.core.ir.source import user_source
from fiveloop.core.lower.emission import Emission, ladder
from fiveloop.core.lower.module import Lowered, lower_jaxpr
from fiveloop.core.passes import run_passes
from fiveloop.core.rules import abstract_eval_rules, type_rules


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program ready to run: hidden constants first, then the arguments kept.

    After the program's own results come the new contents of the arguments at `written`.
    """

    executable: Executable
    consts: list[client.Buffer]
    kept: list[bool]
    num_outs: int
    written: list[int]
    emission: Emission
    copies: int

    def run(self, args: Sequence[Value]) -> list[Value]:
        """Run on concrete arguments; contents are written back after the program has run without error."""
        buffers = [type_rules(a.aval).buffer(a) for a, k in zip(args, self.kept, strict=True) if k]
        outs = self.executable.execute([*self.consts, *buffers])
        for position, new in zip(self.written, outs[self.num_outs :], strict=True):
            type_rules(args[position].aval).write_back(args[position], Array(new))
        return [Array(out) for out in outs[: self.num_outs]]


@dataclass(slots=True)
class Prepared:
    """A jaxpr on its way to a program: each stage is made once, when it is asked for."""

    jaxpr: Jaxpr
    name: str = "main"
    donated: tuple[bool, ...] = ()
    _discharged: Jaxpr | None = field(default=None)
    _lowered: dict[Emission, Lowered] = field(default_factory=dict)

    def ready(self) -> Jaxpr:
        """The jaxpr after all passes."""
        if self._discharged is None:
            _refuse_free_axes(self.jaxpr)
            self._discharged = run_passes(self.jaxpr)
        return self._discharged

    def lowered(self, emission: Emission | None = None) -> Lowered:
        """The module, with the given way to order reads and writes, or the first."""
        emission = emission or ladder(client.platform())[0]
        if emission not in self._lowered:
            self._lowered[emission] = lower_jaxpr(
                self.ready(), client.platform(), emission, self.name, self.donated
            )
        return self._lowered[emission]

    def compile(self) -> Compiled:
        """Compile; where loops order reads and writes, the way that leaves the fewest whole-array copies."""
        best: Compiled | None = None
        for emission in ladder(client.platform()):
            tried = self._compile_as(emission)
            if best is None or tried.copies < best.copies:
                best = tried
            if best.copies == 0:
                break
        assert best is not None, "unreachable: a ladder has at least one rung"
        return best

    def _compile_as(self, emission: Emission) -> Compiled:
        lowered = self.lowered(emission)
        executable = client.compile_text(lowered.text, lowered.out_avals)
        copies = array_copies(executable.optimized_text()) if lowered.uses_order else []
        consts = [to_array(c).buffer for c in lowered.consts]  # type: ignore[arg-type]  # constants are values
        written = sorted(mutated_positions(self.jaxpr.effects))
        return Compiled(
            executable,
            consts,
            lowered.kept,
            len(self.jaxpr.outvars),
            written,
            emission,
            len(copies),
        )


def _refuse_free_axes(jaxpr: Jaxpr) -> None:
    """A program that goes over a named axis has no lanes to run in, unless a `vmap` has bound the axis."""
    axes = axes_of(jaxpr.effects)
    if axes:
        error = unbound(jaxpr.name or "the program", axes)
        add_source(error, user_source())
        raise error


def prepared(jaxpr: Jaxpr, donated: tuple[bool, ...] = ()) -> Prepared:
    """The stages of a jaxpr, remembered on it; `donated` marks arguments whose buffers results may take."""
    return jaxpr.remember(
        ("prepared", donated), lambda: Prepared(jaxpr, jaxpr.name or "main", donated)
    )


def compiled(jaxpr: Jaxpr, donated: tuple[bool, ...] = ()) -> Compiled:
    """The program of a jaxpr, remembered on it."""
    return jaxpr.remember(("compiled", donated), prepared(jaxpr, donated).compile)


@lru_cache(maxsize=4096)
def one_equation(prim: Primitive[Any], avals: tuple[Aval, ...], params: Any) -> Jaxpr:
    """The jaxpr of one equation; remembered, and with it its program."""
    out_avals, effects = abstract_eval_rules[prim](avals, params)
    invars, outvars = [Var(a) for a in avals], [Var(a) for a in out_avals]
    return Jaxpr(invars, [Eqn(prim, invars, outvars, params, effects)], outvars, str(prim))


def run_eagerly(prim: Primitive[Any], args: Sequence[Value], params: Any) -> list[Value]:
    """The default impl: compile and run the one-equation jaxpr."""
    if any(a.aval.accumulates for a in args):
        return compiled(one_equation(prim, tuple([a.aval for a in args]), params)).run(args)
    outs = _eager(prim, params)(*[to_array(a).buffer for a in args])
    return [Array(out) for out in outs] if isinstance(outs, list) else [Array(outs)]


@lru_cache(maxsize=4096)
def _eager(prim: Primitive[Any], params: Any) -> Any:
    return eager_program(prim.name, lambda avals: one_equation(prim, tuple(avals), params))


def eager_program(name: str, jaxpr_of: Callable[[Sequence[Aval]], Jaxpr]) -> Any:
    """A callable on buffers, fast from its second call on, that runs the jaxpr of their types.

    It gives one buffer, or a list of several.
    """

    def miss(*buffers: client.Buffer) -> tuple[Any, Any]:
        program = compiled(jaxpr_of([b.aval for b in buffers]))
        outs = program.executable.execute(
            [*program.consts, *[b for b, k in zip(buffers, program.kept, strict=True) if k]]
        )
        simple = all(program.kept) and not program.consts
        fast = make_eager_fast(program.executable, len(buffers)) if simple else None
        return (outs[0] if len(outs) == 1 else outs), fast

    return eager_function(name, miss)
