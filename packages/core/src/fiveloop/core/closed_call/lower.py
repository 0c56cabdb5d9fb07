"""Lowering: a function of the module, written once per jaxpr; an inline call is written in place."""

from __future__ import annotations

from typing import Any

from fiveloop.core.backend import hlo
from fiveloop.core.closed_call.primitive import ClosedCallParams


def closed_call_lower(ctx: Any, operands: hlo.IRValues, p: ClosedCallParams) -> list[hlo.IRValue]:
    """Call the function of the jaxpr, or write its operations here."""
    if p.inline:
        return list(ctx.inline(p.jaxpr, operands))
    return list(ctx.call(p.jaxpr, p.name or p.jaxpr.name, operands))
