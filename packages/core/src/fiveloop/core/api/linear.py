"""`linear_transpose`: the transpose of a function that is linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVarTuple

from fiveloop.core.api.flatten import argument_naming, as_result, check_callable
from fiveloop.core.api.pullback import like_values
from fiveloop.core.api.staging import is_spec, stage_user
from fiveloop.core.pytree import tree_flatten_with_path, tree_unflatten
from fiveloop.core.rule_types import UndefinedPrimal
from fiveloop.core.trace.boundary import boundary
from fiveloop.core.transforms.eval import eval_jaxpr
from fiveloop.core.transforms.partial_eval import split
from fiveloop.core.transforms.saving import SAVE_EVERYTHING
from fiveloop.core.transforms.transpose import Operand, backward_pass
from fiveloop.core.transforms.zeros import instantiate

Ts = TypeVarTuple("Ts")


@boundary
def linear_transpose(fun: Callable[[*Ts], object], *primals: Any) -> Callable[[Any], tuple[*Ts]]:
    """The transpose of a function that is linear in all its arguments: from a cotangent to a tuple of them.

    Of `primals` only the types matter: descriptions (`ShapeDtype`) will do. `fun` is traced and never run, and
    must use only operations that are linear in their traced operands; one that is not is named in the error.

    >>> transposed = linear_transpose(lambda x: 3.0 * x, 1.0)
    >>> transposed(2.0)
    (Array(6., dtype=float32, weak_type=True),)
    """
    check_callable("linear_transpose", fun)
    staged, flat = stage_user(fun, primals, {})
    avals = staged.jaxpr.in_avals[len(staged.captured) :]
    paths = tree_flatten_with_path((primals, {}), is_leaf=is_spec)[0]
    name = argument_naming("linear_transpose", fun)
    for (path, _), aval in zip(paths, avals, strict=True):
        if not aval.differentiable or aval.accumulates:
            raise TypeError(
                f"{name(path)} must be floating or complex, got {aval}; close over what the function is not linear "
                f"in"
            )

    num = len(staged.captured)
    unknown = (False,) * num + (True,) * len(avals)
    late = (True,) * len(staged.jaxpr.outvars)
    # What does not depend on the arguments is computed first, also where a loop computes it along with the rest.
    # known : [*captured] -> [*residuals];  staged : [*residuals, *args] -> [*outs]
    cut = split(staged.jaxpr, unknown, (False,) * len(unknown), SAVE_EVERYTHING, late)
    residuals = eval_jaxpr(cut.known, staged.captured)

    @boundary
    def transposed(ct: Any) -> tuple[*Ts]:
        wanted = staged.jaxpr.out_avals
        assert flat.out_tree is not None, "unreachable: the function has been traced"
        checked = like_values("linear_transpose: cotangent", ct, flat.out_tree, wanted, "result")
        operands: list[Operand] = [*residuals, *[UndefinedPrimal(a.tangent()) for a in avals]]
        in_cts = backward_pass(cut.staged, operands, checked)
        args: tuple[*Ts] = tree_unflatten(
            flat.in_tree, [as_result(instantiate(c)) for c in in_cts]
        )[0]
        return args

    return transposed
