"""What is around a loop, in the jaxpr that it is an equation of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from fiveloop.core import Jaxpr, ir
from fiveloop.core.dataclass import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Around:
    """What is around a loop: `own` are the values made there for one equation, `used` all that are used at all.

    `made` has the equation that makes a value, and `kept` are those that are there to the end whatever the loop does.
    """

    own: Collection[ir.Var] = ()
    used: Collection[ir.Var] | None = None
    made: Mapping[ir.Var, ir.Eqn] = field(default_factory=dict)
    kept: Collection[ir.Var] = ()

    def is_spare(self, operand: object, result: ir.Var) -> bool:
        """Whether what an operand holds is the loop's to overwrite."""
        return operand in self.own and self.used is not None and result not in self.used

    def and_then(self, eqns: Sequence[ir.Eqn]) -> Around:
        """The same with equations after the loop."""
        more = ir.used_vars(a for eqn in eqns for a in eqn.invars)
        used = None if self.used is None else set(self.used) | more
        return replace(self, own=set(self.own) - more, used=used)


ALONE = Around()
"""Nothing is known of what is around it."""


def around(jaxpr: Jaxpr) -> Around:
    """What is around the loops of a jaxpr."""
    uses = Counter(a for e in jaxpr.eqns for a in e.invars if isinstance(a, ir.Var))
    uses.update(a for a in jaxpr.outvars if isinstance(a, ir.Var))
    made = ir.makers(jaxpr)
    kept = ir.used_vars([*jaxpr.invars, *jaxpr.outvars])
    return Around({v for v in made if uses[v] == 1}, set(uses), made, kept)
