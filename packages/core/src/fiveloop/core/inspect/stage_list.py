"""`stages`: a program at every step from Python function to compiled module.

Two ways lead from the trace. The derivatives: jvp, its known and its linear half, and the transpose of the
linear half. And the way to the machine: each registered pass, StableHLO, and what XLA makes of it. The
program of a derivative goes that way too: `stages(grad(f), x)`. `in_place` says how its loops stay in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fiveloop.core import errors, ir, transforms, util
from fiveloop.core.api.staging import make_jaxpr
from fiveloop.core.backend import client, native
from fiveloop.core.backend.gate import WholeCopy, array_copies
from fiveloop.core.dataclass import dataclass, field
from fiveloop.core.lower.dispatch import compiled, prepared
from fiveloop.core.lower.kernels import computed_first
from fiveloop.core.passes import Pass, all_passes

Content = ir.Jaxpr | str
LAST = "stablehlo"
"""Where `stages` stops unless told otherwise: compiling costs time, so it is done on request."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a program: its name, what it is, and the jaxpr or the text itself."""

    name: str
    title: str
    content: Content

    @property
    def suffix(self) -> str:
        """The ending of the file that holds this stage."""
        if isinstance(self.content, ir.Jaxpr):
            return ".jaxpr"
        return {"stablehlo": ".mlir", "hlo": ".hlo"}.get(self.name, ".txt")


class NoStage(Exception):
    """A program has no such stage; the message says why."""


@dataclass(frozen=True, slots=True)
class StageRule:
    """How a stage is made from those before it. It comes right after the stage `after`.

    `make` may raise NoStage, or RuleError, where a program has no such stage.
    """

    name: str
    title: str
    make: Callable[[Stages], Content]
    after: str = ""


@dataclass(slots=True)
class Stages:
    """The stages of a program, in order; `stages["jvp"]` gives one, printing shows them all."""

    found: list[Stage] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of the stages."""
        return [stage.name for stage in self.found]

    def __getitem__(self, name: str) -> Content:
        for stage in self.found:
            if stage.name == name:
                return stage.content
        raise KeyError(
            f"expected the name of a stage, one of {', '.join(self.names)}; got {name!r}"
        )

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def jaxpr(self, name: str) -> ir.Jaxpr:
        """A stage from which a later stage is made."""
        content = self[name]
        if isinstance(content, ir.Jaxpr):
            return content
        raise NoStage(f"there is no stage `{name}` to make it from")

    @property
    def ready(self) -> ir.Jaxpr:
        """The last jaxpr on the way to the machine."""
        done = {p.name for p in all_passes()}
        passed = [name for name in self.names if name in done]
        return self.jaxpr(passed[-1] if passed else "trace")

    def __repr__(self) -> str:
        seen: dict[str, str] = {}
        parts: list[str] = []
        for stage in self.found:
            text = str(stage.content).rstrip("\n")
            shown = f"as `{seen[text]}`" if text in seen else text
            parts.append(f"# {stage.name}: {stage.title}\n{shown}\n")
            seen.setdefault(text, stage.name)
        return "\n".join(parts)

    def dump(self, folder: str | Path) -> None:
        """Write one numbered file for each stage into a folder."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for k, stage in enumerate(self.found):
            text = str(stage.content).rstrip("\n") + "\n"
            (place / f"{k:02d}_{stage.name}{stage.suffix}").write_text(text, encoding="utf-8")


def stages(
    fun: Callable[..., Any], *args: Any, upto: str | None = None, dump: str | Path | None = None
) -> Stages:
    """Every stage of `fun` on arguments, or on descriptions of them; each jaxpr has been typechecked.

    `upto` names the last stage to make: "stablehlo" unless given, "hlo" for what XLA makes of it. `dump` is a
    folder to write one numbered file for each stage to.

    >>> stages(lambda x: x * 2.0, 3.0, upto="trace")
    # trace: the program as the function was traced
    { lambda a:f32*[] ; let b:f32*[] = mul a 2.0* in (b,) }
    <BLANKLINE>
    """
    rules = all_rules()
    last = LAST if upto is None else upto
    if last not in [rule.name for rule in rules]:
        names = ", ".join(rule.name for rule in rules)
        raise ValueError(f"stages: expected `upto` to name a stage, one of {names}; got {upto!r}")
    jaxpr = make_jaxpr(fun)(*args)
    transforms.typecheck(jaxpr)
    made = Stages([Stage("trace", "the program as the function was traced", jaxpr)])
    for rule in rules[1:] if last != "trace" else []:
        made.found.append(_made(rule, made))
        if rule.name == last:
            break
    if dump is not None:
        made.dump(dump)
    return made


def _made(rule: StageRule, before: Stages) -> Stage:
    try:
        content = rule.make(before)
        if isinstance(content, ir.Jaxpr):
            transforms.typecheck(content)
    except errors.TypecheckError:
        raise
    except (NoStage, errors.RuleError) as reason:
        content = f"none: {reason}"
    return Stage(rule.name, rule.title, content)


_rules: list[StageRule] = []


def register_stage(rule: StageRule) -> None:
    """Add a stage to the list of `stages`, once."""
    if rule.name in [r.name for r in all_rules()]:
        raise ValueError(f"the stage {rule.name!r} is registered twice")
    _rules.append(rule)


def all_rules() -> list[StageRule]:
    """The rules of all stages, in order; a pass is a stage without being registered here."""
    passes = [StageRule(p.name, "after this pass", partial(_after_pass, p)) for p in all_passes()]
    ordered = [*_DERIVATIVES, *passes, *_MACHINE]
    for rule in _rules:
        names = [r.name for r in ordered]
        at = names.index(rule.after) + 1 if rule.after in names else len(_DERIVATIVES)
        ordered.insert(at, rule)
    return ordered


def _after_pass(step: Pass, before: Stages) -> ir.Jaxpr:
    jaxpr = before.ready
    return step.run(jaxpr) if step.applies(jaxpr) else jaxpr


def _traced(before: Stages) -> tuple[ir.Jaxpr, util.Mask]:
    """The program, and which of its inputs are differentiated: all that can be."""
    jaxpr = before.jaxpr("trace")
    mask = tuple(aval.differentiable for aval in jaxpr.in_avals)
    if not any(mask):
        raise NoStage("no input is floating, so there is nothing to differentiate")
    return jaxpr, mask


def _transposed(before: Stages) -> ir.Jaxpr:
    jaxpr, nonzero = _traced(before)
    linear, num_res = before.jaxpr("linear"), transforms.linearize_jaxpr(jaxpr, nonzero)[3]
    mask = (False,) * num_res + (True,) * sum(nonzero)
    return transforms.transpose_jaxpr(linear, mask, (True,) * len(linear.outvars))[0]


_DERIVATIVES = (
    StageRule(
        "trace", "the program as the function was traced", lambda before: before.jaxpr("trace")
    ),
    StageRule(
        "jvp",
        "[*inputs, *tangents] -> [*results, *tangents of those that have one]",
        lambda before: transforms.jvp_jaxpr(*_traced(before))[0],
    ),
    StageRule(
        "known",
        "[*inputs] -> [*results, *residuals]",
        lambda before: transforms.linearize_jaxpr(*_traced(before))[0],
    ),
    StageRule(
        "linear",
        "[*residuals, *tangents] -> [*tangents of results]",
        lambda before: transforms.linearize_jaxpr(*_traced(before))[1],
    ),
    StageRule("transposed", "[*residuals, *cotangents of results] -> [*cotangents]", _transposed),
)
_MACHINE = (
    StageRule(
        "stablehlo", "as a module", lambda before: prepared(before.jaxpr("trace")).lowered().text
    ),
    StageRule(
        "hlo",
        "as XLA has optimised it",
        lambda before: compiled(before.jaxpr("trace")).executable.optimized_text(),
    ),
)


@dataclass(frozen=True, slots=True)
class InPlace:
    """How `order` was written, None if the program has none; the copies of whole arrays in the bodies of loops."""

    emission: str | None
    copies: tuple[WholeCopy, ...]


def in_place(jaxpr: ir.Jaxpr) -> InPlace:
    """How a program's loops stay in place. It is compiled only if a loop may update an array.

    >>> from fiveloop.core import make_jaxpr
    >>> in_place(make_jaxpr(lambda x: x + 1.0)(2.0))
    InPlace(emission=None, copies=())
    """
    lowered = prepared(jaxpr).lowered()
    if not lowered.updates_in_loops:
        return InPlace(None, ())
    program = compiled(jaxpr)
    used = lowered.uses_order or program.emission.guards
    copies = array_copies(program.executable.optimized_text())
    return InPlace(program.emission.value if used else None, tuple(copies))


def ready_jaxpr(jaxpr: ir.Jaxpr, *after_each: Callable[[ir.Jaxpr], ir.Jaxpr]) -> ir.Jaxpr:
    """The jaxpr after all passes, as it is lowered; remembered on it. A function may be applied after each pass."""
    return prepared(jaxpr).ready(*after_each)


def recomputes_in_branches() -> bool:
    """Whether a recomputation is lowered as a branch that is always taken, because the compiler drops barriers."""
    return native.drops_barriers(client.platform())


def kept_in_memory(jaxpr: ir.Jaxpr, within_saving: bool, in_loop: bool) -> frozenset[ir.Var]:
    """The arrays that are lowered such that no kernel computes them again; fewer in a program that saves memory."""
    return computed_first(jaxpr, within_saving, recomputes_in_branches() and not in_loop)
