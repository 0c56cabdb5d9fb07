"""Rewriting keeps what a jaxpr computes, and gives equations that are put in variables of their own."""

from fiveloop.core import make_jaxpr
from fiveloop.core.extend import Atom, Eqn, as_value, eval_jaxpr, typecheck
from fiveloop.core.ir.graph import inlined, replaced
from fiveloop.core.primitives.special import sin

SQUARE_PLUS = make_jaxpr(lambda x: (x * x + 1.0, x))(1.0)


def test_what_is_inlined_twice_has_variables_of_its_own_each_time() -> None:
    outer = make_jaxpr(lambda x: x - 1.0)(1.0)
    first, between = inlined(SQUARE_PLUS, outer.outvars)
    second, outs = inlined(SQUARE_PLUS, between[:1])
    program = outer.replace(eqns=[*outer.eqns, *first, *second], outvars=outs)
    typecheck(program)
    assert [x.item() for x in eval_jaxpr(program, [as_value(3.0)])] == [26.0, 5.0]


def test_later_equations_use_what_stands_for_a_result() -> None:
    def change(eqn: Eqn) -> tuple[list[Eqn], list[Atom]] | None:
        if eqn.primitive.name != "sin":
            return None
        eqns, outs = inlined(SQUARE_PLUS, eqn.invars)
        return eqns, outs[:1]

    program = replaced(make_jaxpr(lambda x: sin(x - 1.0) * 2.0)(1.0), change)
    typecheck(program)
    assert eval_jaxpr(program, [as_value(3.0)])[0].item() == 10.0
