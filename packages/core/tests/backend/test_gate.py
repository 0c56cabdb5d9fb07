"""The gate finds copies of arrays in loops, however many values these carry."""

from __future__ import annotations

import pytest

from fiveloop.core.backend.gate import WholeCopy, array_copies

TYPES = ["s32[]", "f32[64]{0}", "s32[]", "s32[]", "s32[]", "s32[]", "f32[8]{0}"]


def module(count: int, operation: str) -> str:
    """A loop over so many values, as XLA prints it: the fifth of a tuple's types has a comment in front."""
    types = ", ".join(f"/*index={k}*/{t}" if k and k % 5 == 0 else t for k, t in enumerate(TYPES))
    carried = f"({', '.join(types.split(', ')[:count])})"
    return f"""\
%body (arg: {carried}) -> {carried} {{
  %arg = {carried} parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %x = f32[64]{{0}} get-tuple-element(%arg), index=1
  %zero = f32[] constant(0)
  %zeros = f32[64]{{0}} broadcast(%zero), dimensions={{}}
  %filled.1 = f32[64]{{0}} copy(%zeros)
  %twin = f32[64]{{0}} {operation}(%x)
  %one = f32[1]{{0}} constant({{1}})
  %new = f32[64]{{0}} dynamic-update-slice(%twin, %one, %i)
  ROOT %out = {carried} tuple(%i, %new)
}}

ENTRY %main (x: f32[64]) -> f32[64] {{
  %x.1 = f32[64]{{0}} parameter(0)
  %state = {carried} tuple(%x.1)
  %loop = {carried} while(%state), condition=%holds, body=%body
  ROOT %result = f32[64]{{0}} get-tuple-element(%loop), index=1
}}
"""


@pytest.mark.parametrize("count", range(2, len(TYPES) + 1))
def test_a_copy_in_a_loop_is_found(count: int) -> None:
    assert array_copies(module(count, "copy")) == [WholeCopy("twin", "copy", "f32[64]")]
    assert array_copies(module(count, "negate")) == []
