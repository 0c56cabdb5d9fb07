"""Every primitive says how many operands it takes, so that `typecheck` refuses another number in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from fiveloop.core import Jaxpr
from fiveloop.core.engine import vars_in_order
from fiveloop.core.errors import TypecheckError
from fiveloop.core.extend import Eqn, Primitive, typecheck
from fiveloop.core.testing.primitive_samples import core_cases
from fiveloop.core.testing.samples import sample

ANY_NUMBER = {"concatenate", "sort", "barrier", "order"}


def equations() -> dict[str, Eqn]:
    """One equation of each primitive that has a sample."""
    found: dict[Primitive[Any], Eqn] = {}
    for _, fun, args in core_cases():
        for eqn in sample(fun, *args).jaxpr.eqns:
            found.setdefault(eqn.primitive, eqn)
    return {str(prim): eqn for prim, eqn in found.items() if str(prim) not in ANY_NUMBER}


EQUATIONS = equations()


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_wrong_number_of_operands_is_refused_in_plain_words(name: str) -> None:
    eqn = EQUATIONS[name]
    # All operands twice: no primitive, with starts or without, takes as many.
    for invars in (eqn.invars[:-1], (*eqn.invars, *eqn.invars)):
        if invars == eqn.invars:
            continue
        binders = vars_in_order(eqn.invars)
        with pytest.raises(TypecheckError, match=f"`{name}` does not take operands of types") as e:
            typecheck(Jaxpr(binders, [eqn.replace(invars=invars)], ()))
        assert not any(word in str(e.value) for word in ("unpack", "out of range", "zip"))
