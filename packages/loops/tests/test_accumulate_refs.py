"""Gradients of microbatches, with parameters in Refs and summed into Refs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveloop.core import jit, vjp
from fiveloop.loops import accumulate_grads, scan
from fiveloop.state import new_ref
from fiveloop.testing.core.misuse import assert_misuse

XS = np.arange(4.0)


def loss(w: Any, x: Any) -> Any:
    return ((w[...] * x) ** 2).mean()


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_parameters_in_refs(wrap: Any) -> None:
    params = {"w": new_ref(np.asarray([3.0, 1.0])), "b": np.float64(2.0)}

    def total(params: Any, x: Any) -> Any:
        return (params["w"][...].sum() * x + params["b"]).mean()

    value, grads = wrap(accumulate_grads(total, 2))(params, XS)
    assert float(value) == 4.0 * 1.5 + 2.0
    np.testing.assert_allclose(grads["w"], [1.5, 1.5])
    np.testing.assert_allclose(grads["b"], 1.0)
    np.testing.assert_array_equal(params["w"][...], [3.0, 1.0])


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_refs_that_are_passed_or_closed_over(wrap: Any) -> None:
    scale, steps, seen = new_ref(np.float64(2.0)), new_ref(0), new_ref(np.float64(0.0))

    def total(w: Any, x: Any, seen: Any) -> Any:
        steps[...] += 1
        seen[...] += x.sum()
        return (w * scale[...] * x).mean()

    value, slope = wrap(accumulate_grads(total, 2))(np.float64(3.0), XS, seen)
    assert (float(value), float(slope)) == (9.0, 3.0)
    assert int(steps[...]) == 2
    assert float(seen[...]) == XS.sum()


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_cotangents_added_to_a_ref_of_the_users(wrap: Any) -> None:
    w, grads = new_ref(np.float64(3.0)), new_ref(np.float64(100.0))

    def run(w: Any, grads: Any, batches: Any) -> Any:
        def step(grads: Any, x: Any) -> Any:
            value, back = vjp(loss, w, x)
            given = back.with_refs(grads, None)(1.0)
            assert given[0] is grads
            return grads, value

        return scan(step, grads, batches)[1]

    values = wrap(run)(w, grads, XS.reshape(2, 2))
    np.testing.assert_allclose(values, [4.5, 58.5])
    assert float(grads[...]) == 100.0 + 3.0 * (0.0 + 1.0) + 3.0 * (4.0 + 9.0)


def test_a_batch_in_a_ref() -> None:
    batch = new_ref(XS)
    assert_misuse(
        lambda: accumulate_grads(loss, 2)(new_ref(1.0), {"x": batch}),
        TypeError,
        "accumulate_grads of loss: argument `x`['x'] is a batch, and must be an array, got a Ref of type Ref{f64[4]}; "
        "give its contents, `ref[...]`",
    )
