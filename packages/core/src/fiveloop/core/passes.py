"""The ordered list of passes that run on a jaxpr before it is lowered; packages add theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fiveloop.core import errors, ir
from fiveloop.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass from jaxpr to jaxpr: it runs after the passes named in `after`, on the jaxprs to which it `applies`."""

    name: str
    after: tuple[str, ...]
    applies: Callable[[ir.Jaxpr], bool]
    run: Callable[[ir.Jaxpr], ir.Jaxpr]


_passes: list[Pass] = []


def register_pass(new: Pass) -> None:
    """Register a pass; it runs after the passes that it names, also if they are registered later.

    Passes run on whole programs, before lowering. CoreError if a pass of this name is registered already.

    >>> seen = []
    >>> def note(jaxpr, seen=seen):
    ...     seen.append(len(jaxpr.eqns))
    ...     return jaxpr
    >>> applies = lambda jaxpr: jaxpr.name == "noted"
    >>> register_pass(Pass("note", after=("dce",), applies=applies, run=note))
    >>> def noted(x):
    ...     return x * 2.0 + 1.0
    >>> jit(noted)(1.0).item(), seen
    (3.0, [2])
    """
    if any(p.name == new.name for p in _passes):
        raise errors.CoreError(f"the pass {new.name!r} is registered twice")
    _passes.append(new)
    _passes[:] = _sorted(_passes)


def _sorted(passes: Sequence[Pass]) -> list[Pass]:
    done: list[Pass] = []
    waiting = list(passes)
    while waiting:
        pending = {p.name for p in waiting}
        ready = next((p for p in waiting if pending.isdisjoint(p.after)), None)
        if ready is None:
            raise errors.CoreError(f"the passes {sorted(pending)} wait for each other")
        waiting.remove(ready)
        done.append(ready)
    return done


def all_passes() -> list[Pass]:
    """The passes, in the order in which they run."""
    return list(_passes)


def run_passes(
    jaxpr: ir.Jaxpr, after_each: Callable[[ir.Jaxpr], ir.Jaxpr] = lambda jaxpr: jaxpr
) -> ir.Jaxpr:
    """The jaxpr after all passes, ready to be lowered; `after_each` may put equal jaxprs in place of nested ones."""
    for step in _passes:
        if step.applies(jaxpr):
            jaxpr = after_each(step.run(jaxpr))
    return jaxpr
