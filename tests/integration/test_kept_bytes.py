"""The minimum cut never makes loops keep more than saving plainly does: random programs of everything."""

from __future__ import annotations

from hypothesis import given, settings

from fiveloop.core import Jaxpr, MinimumCut
from fiveloop.core.extend import DEFAULT_PLAN, SAVE_EVERYTHING, SavingPlan, linearize_jaxpr
from fiveloop.core.prims import bytes_of
from fiveloop.testing.core.laws import float_inputs
from fiveloop.testing.core.programs import Program, programs
from fiveloop.testing.loops.program_steps import LOOP_KINDS
from fiveloop.testing.remat.program_steps import with_checkpoints
from fiveloop.testing.state.program_steps import read_all, with_refs

DEAR_MEMORY = SavingPlan(MinimumCut(memory_cost=1e4, share=1e4))


def stacked_bytes(jaxpr: Jaxpr, nonzero: tuple[bool, ...], plan: SavingPlan) -> int:
    """The bytes that the loops of the outermost level keep of each step; what else comes of them is used at once."""
    known, _, _, num_res = linearize_jaxpr(jaxpr, nonzero, plan)
    kept = set(known.outvars[len(known.outvars) - num_res :])
    kept -= {a for e in known.eqns for a in e.invars}
    loops = [e for e in known.eqns if e.primitive.name == "for"]
    return int(bytes_of(v.aval for e in loops for v in e.outvars if v in kept))


def check(jaxpr: Jaxpr, nonzero: tuple[bool, ...]) -> None:
    plain = stacked_bytes(jaxpr, nonzero, SAVE_EVERYTHING)
    for plan in (DEFAULT_PLAN, DEAR_MEMORY):
        assert stacked_bytes(jaxpr, nonzero, plan) <= plain, plan


@settings(max_examples=30)
@given(programs(with_checkpoints(LOOP_KINDS)).map(read_all))
def test_refs_made_inside(program: Program) -> None:
    s = program.sample()
    check(s.jaxpr, float_inputs(s))


@settings(max_examples=30)
@given(programs(LOOP_KINDS, refs=True))
def test_refs_from_outside(program: Program) -> None:
    s = with_refs(program)
    check(s.jaxpr, float_inputs(s))
