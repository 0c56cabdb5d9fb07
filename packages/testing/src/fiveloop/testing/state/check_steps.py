"""The step of random programs that checks something, which holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fiveloop.state.checks.api import check
from fiveloop.testing.core.programs import (
    Draw,
    Env,
    Kinds,
    Scope,
    Step,
    Use,
    define_operation,
    draw_use,
)


def _check(x: Any) -> None:
    check((x == x).all() | True, "{} is not itself", x.sum())


define_operation("check", _check, lambda x: None)


@dataclass(frozen=True)
class Check:
    """A float is compared with itself; whatever it is, that is fine."""

    use: Use

    def run(self, env: Env) -> None:
        """Append nothing."""
        env.ops["check"](env.float(self.use))


def draw_check(draw: Draw, scope: Scope, kinds: Kinds) -> Step:
    """A check of some float."""
    return Check(draw_use(draw, scope))


def with_checks(kinds: Kinds) -> Kinds:
    """Programs that check something, too."""
    return kinds.plus(*[draw_check] * 4)
