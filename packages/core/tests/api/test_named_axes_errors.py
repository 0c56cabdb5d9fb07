"""What the messages about named axes say, word for word, ending with the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from fiveloop.core import (
    UnboundAxisError,
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    jit,
    make_jaxpr,
    pmax,
    pmean,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    vjp,
    vmap,
)
from fiveloop.core.extend import as_value, eval_jaxpr
from fiveloop.core.lower.dispatch import compiled

X = np.ones((4, 3))
HERE = f"\n  at {__file__}:"


def over(fun: Callable[..., Any]) -> Callable[[], Any]:
    """A call of the function under a vmap over an axis named `batch`, of size 4."""
    return lambda: vmap(fun, axis_name="batch")(X)


MESSAGES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "unbound": (
        lambda: psum(X, "batch"),
        UnboundAxisError,
        "psum: expected the name of a bound axis, got 'batch', and no axis is bound here; give the axis its name where "
        "it is made: `vmap(..., axis_name='batch')`",
    ),
    "of a mean": (
        over(lambda x: pmean(x, "bacth")),
        UnboundAxisError,
        "pmean: expected the name of a bound axis ('batch' of size 4), got 'bacth'; did you mean 'batch'?",
    ),
    "near miss": (
        over(lambda x: axis_index("bach")),
        UnboundAxisError,
        "axis_index: expected the name of a bound axis ('batch' of size 4), got 'bach'; did you mean 'batch'?",
    ),
    "no near miss": (
        over(lambda x: axis_size(("batch", "rows"))),
        UnboundAxisError,
        "axis_size: expected the name of a bound axis ('batch' of size 4), got 'rows'; use one of them, or "
        "`vmap(..., axis_name='rows')`",
    ),
    "positional axis": (
        over(lambda x: psum(x, 0)),
        TypeError,
        "psum: expected the name of an axis, such as 'i', got 0; axes of an array are reduced by `sum(axis)` and its "
        "kin",
    ),
    "twice": (
        over(lambda x: psum(x, ("batch", "batch"))),
        ValueError,
        "psum: expected each axis name once, got ['batch', 'batch']",
    ),
    "no name": (
        over(lambda x: all_gather(x, ())),
        ValueError,
        "all_gather: expected the name of an axis, or several, got none",
    ),
    "groups": (
        over(lambda x: psum(x, "batch", axis_index_groups=[[0, 1], [2, 2]])),
        ValueError,
        "psum: expected `axis_index_groups` to name each lane from 0 to 3 once, got [[0, 1], [2, 2]]",
    ),
    "unequal groups": (
        over(lambda x: all_gather(x, "batch", axis_index_groups=[[0], [1, 2, 3]])),
        ValueError,
        "all_gather: expected groups of one size, since the result has an axis of that size, got [[0], [1, 2, 3]]",
    ),
    "groups of what": (
        over(lambda x: psum(x, "batch", axis_index_groups=cast(Any, [["a"]]))),
        TypeError,
        "psum: expected `axis_index_groups` to hold the numbers of lanes, got 'a'",
    ),
    "gather axis": (
        over(lambda x: all_gather(x, "batch", axis=2)),
        ValueError,
        "all_gather: expected `axis` in [-2, 2) for 2 axes, got 2",
    ),
    "scatter size": (
        over(lambda x: psum_scatter(x, "batch")),
        ValueError,
        "psum_scatter: expected `scatter_dimension` to name an axis of size 4, the number of lanes, got axis 0 of "
        "f64[3]; for blocks of several elements use tiled=True",
    ),
    "tiled size": (
        over(lambda x: all_to_all(x, "batch", 0, 0, tiled=True)),
        ValueError,
        "all_to_all: expected `split_axis` to name an axis whose size is a multiple of 4, the number of lanes, got "
        "axis 0 of f64[3]",
    ),
    "perm": (
        over(lambda x: ppermute(x, "batch", [(0, 1), (2, 1)])),
        ValueError,
        "ppermute: expected each lane at most once as a destination in `perm`, got [(0, 1), (2, 1)]",
    ),
    "perm range": (
        over(lambda x: ppermute(x, "batch", [(0, 4)])),
        ValueError,
        "ppermute: expected lanes from 0 to 3 in `perm`, got [(0, 4)]",
    ),
    "perm pairs": (
        over(lambda x: ppermute(x, "batch", cast(Any, [0, 1]))),
        ValueError,
        "ppermute: expected `perm` to hold pairs (source, destination), got [0, 1]",
    ),
    "shuffle": (
        over(lambda x: pshuffle(x, "batch", [0, 1, 1, 2])),
        ValueError,
        "pshuffle: expected `perm` to have each lane of 4 once, got [0, 1, 1, 2]",
    ),
    "complex extreme": (
        over(lambda x: pmax(x + 1j, "batch")),
        TypeError,
        "pmax: expected real numbers or bools, got c128[3]",
    ),
    "axis_name": (
        lambda: vmap(lambda x: x, axis_name=cast(Any, ["i", "j"])),
        TypeError,
        "vmap of <lambda>: axis_name must be one name, such as 'i', got ['i', 'j']",
    ),
    "out_axes": (
        lambda: vmap(
            lambda x: psum(x, "i", axis_index_groups=[[0, 1], [2, 3]]), out_axes=None, axis_name="i"
        )(X),
        ValueError,
        "vmap of <lambda>: out_axes is None for a result that depends on the batch",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(case: str) -> None:
    call, kind, message = MESSAGES[case]
    with pytest.raises(kind) as caught:
        call()
    text, place = str(caught.value).rsplit(HERE, 1)
    assert text == message
    assert place


FREE = (
    "{what}: expected to run where its named axis 'i' of size 4 is bound, but no `vmap` around it binds that; what "
    "was traced under a `vmap(..., axis_name=...)`, such as a pullback or a jaxpr, runs within it only"
)


def test_a_jaxpr_with_a_free_name_does_not_run() -> None:
    jaxpr = make_jaxpr(lambda x: psum(x, "i"), axis_env=[("i", 4)])(1.0)
    with pytest.raises(UnboundAxisError) as caught:
        eval_jaxpr(jaxpr, [as_value(1.0)])
    assert str(caught.value).startswith(FREE.format(what="psum") + HERE)


def test_a_jaxpr_with_a_free_name_is_not_compiled() -> None:
    def program(x: Any) -> Any:
        return jit(lambda y: psum(y, "i"))(x)

    jaxpr = make_jaxpr(program, axis_env=[("i", 4)])(1.0)
    with pytest.raises(UnboundAxisError) as caught:
        compiled(jaxpr)
    assert str(caught.value).startswith(FREE.format(what="program") + HERE)
    with pytest.raises(UnboundAxisError) as caught:
        vmap(lambda x: jit(program).lower(x).compile(), axis_name="i")(np.ones(4))
    assert str(caught.value).startswith(FREE.format(what="program") + HERE)


def test_a_pullback_runs_within_its_vmap_only() -> None:
    pulls: list[Any] = []

    def fun(x: Any) -> Any:
        y, pull = vjp(lambda a: psum(a * 3.0, "i"), 2.0)
        pulls.append(pull)
        return x + y

    vmap(fun, axis_name="i")(np.ones(4))
    with pytest.raises(UnboundAxisError) as caught:
        pulls[0](1.0)
    assert str(caught.value).startswith(FREE.format(what="psum") + HERE)


def test_vmap_takes_the_name_and_the_size_by_place() -> None:
    got = vmap(lambda: axis_index("i"), 0, 0, "i", 2)()
    assert np.asarray(got).tolist() == [0, 1]
