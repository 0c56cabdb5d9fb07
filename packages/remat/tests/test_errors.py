"""Bad input to checkpoints: the type of each error, its message, and the user's line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import fiveloop.numpy as fnp
from fiveloop.core import ConcretizationError, MinimumCut, PolicyError, custom_vjp, grad, jit
from fiveloop.core.extend import as_value, to_array
from fiveloop.core.ir.source import function_source
from fiveloop.core.transforms import Composable
from fiveloop.remat import (
    checkpoint,
    checkpoint_name,
    policies,
    save_only_these_names,
    saved_residuals,
)
from fiveloop.state import new_ref
from fiveloop.testing.core.misuse import assert_misuse, raised

X = to_array(as_value(np.arange(4, dtype=np.float32)))
M = to_array(as_value(np.ones((3, 2), np.float32)))


def sines(x: Any) -> Any:
    return fnp.sin(fnp.sin(x)).sum()


def misfit(x: Any) -> Any:
    return (x + M).sum()


def repeated(x: Any, n: Any) -> Any:
    return x * n


def no_arguments() -> bool:
    return True


class Unhashable:
    def __repr__(self) -> str:
        return "Unhashable()"

    def __call__(self, eqn: policies.Candidate) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)


@dataclass(frozen=True)
class Weighted:
    least: Any

    def __call__(self, eqn: policies.Candidate) -> bool:
        return True


class Model:
    def __repr__(self) -> str:
        return "Model()"

    @checkpoint
    def loss(self, x: Any) -> Any:
        return x.sum()


NAMED = "write `policy=` before a policy and `budget=` before a budget"

CASES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no function": (
        lambda: checkpoint(3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        f"checkpoint: fun must be a function, got 3 of type int; {NAMED}",
    ),
    "None in the function's place": (
        lambda: checkpoint(None),  # type: ignore[call-overload]  # that is the point
        TypeError,
        f"checkpoint: fun must be a function, got None of type NoneType; {NAMED}",
    ),
    "None beside a policy": (
        lambda: checkpoint(None, policy=policies.dots_saveable),  # type: ignore[call-overload]  # that is the point
        TypeError,
        f"checkpoint: fun must be a function, got None of type NoneType; {NAMED}",
    ),
    "budget in the function's place": (
        lambda: checkpoint("2GiB"),  # type: ignore[call-overload]  # that is the point
        TypeError,
        f"checkpoint: fun must be a function, got '2GiB' of type str; {NAMED}",
    ),
    "None given to a decorator": (
        lambda: checkpoint(policy=policies.dots_saveable)(None),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"checkpoint: fun must be a function, got None of type NoneType; {NAMED}",
    ),
    "policy": (
        lambda: checkpoint(misfit, policy=3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "checkpoint: policy must be callable on an equation, as those in `fiveloop.remat.policies` are, got 3",
    ),
    "policy of a decorator": (
        lambda: checkpoint(policy=3),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "checkpoint: policy must be callable on an equation, as those in `fiveloop.remat.policies` are, got 3",
    ),
    "budget of a decorator": (
        lambda: checkpoint(budget=-5),
        ValueError,
        "checkpoint: budget must not be negative, got -5; it must be a number of bytes (an int above 1, or text such "
        "as '2GiB' or '24 MB') or a fraction from 0.0 to 1.0 (a float, or '50%')",
    ),
    "policy in the function's place": (
        lambda: checkpoint(policies.save_only_these_names("a")),
        TypeError,
        f"checkpoint: fun must be a function, got TheseNames(names=frozenset({{'a'}})) of type TheseNames; {NAMED}",
    ),
    "budget of no kind": (
        lambda: checkpoint(misfit, budget=[1]),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "checkpoint: budget must be a number of bytes (an int above 1, or text such as '2GiB' or '24 MB') or a "
        "fraction from 0.0 to 1.0 (a float, or '50%'), got [1]",
    ),
    "budget that is a bool": (
        lambda: checkpoint(misfit, budget=True),
        TypeError,
        "checkpoint: budget must be a number of bytes (an int above 1, or text such as '2GiB' or '24 MB') or a "
        "fraction from 0.0 to 1.0 (a float, or '50%'), got True",
    ),
    "negative budget": (
        lambda: checkpoint(misfit, budget=-5),
        ValueError,
        "checkpoint: budget must not be negative, got -5; it must be a number of bytes (an int above 1, or text such "
        "as '2GiB' or '24 MB') or a fraction from 0.0 to 1.0 (a float, or '50%')",
    ),
    "budget of more bytes than there are": (
        lambda: checkpoint(misfit, budget=10**400),
        ValueError,
        f"checkpoint: budget must be less than 2**63 bytes, got {10**400}",
    ),
    "budget as text of more bytes than there are": (
        lambda: checkpoint(misfit, budget="1e400 B"),
        ValueError,
        "checkpoint: budget must be less than 2**63 bytes, got '1e400 B'",
    ),
    "static_argnames that is no text": (
        lambda: checkpoint(misfit, static_argnames=1),  # type: ignore[call-overload]
        TypeError,
        "checkpoint of misfit: static_argnames must be a string or a tuple of them, got 1",
    ),
    "static_argnames that hold a number": (
        lambda: checkpoint(misfit, static_argnames=(0,)),  # type: ignore[arg-type]
        TypeError,
        "checkpoint of misfit: static_argnames must be a string or a tuple of them, got (0,)",
    ),
    "static_argnums before the first argument": (
        lambda: checkpoint(lambda *xs: xs[0], static_argnums=-1),
        ValueError,
        "checkpoint of <lambda>: static_argnums must name one of its 0 positional arguments, got -1",
    ),
    "budget without a unit": (
        lambda: checkpoint(misfit, budget="lots"),
        ValueError,
        "checkpoint: budget must be a number of bytes (an int above 1, or text such as '2GiB' or '24 MB') or a "
        "fraction from 0.0 to 1.0 (a float, or '50%'), got 'lots'; the units of text are B, kB, MB, GB, TB, KiB, MiB, "
        "GiB, TiB and %",
    ),
    "budget that is no number": (
        lambda: checkpoint(misfit, budget=float("nan")),
        ValueError,
        "checkpoint: budget: a number with a point or an exponent is a fraction from 0.0 to 1.0, got nan",
    ),
    "budget of bytes as a float": (
        lambda: checkpoint(misfit, budget=2.5e9),
        ValueError,
        "checkpoint: budget: a number with a point or an exponent is a fraction from 0.0 to 1.0, got 2500000000.0; "
        "for bytes write '2500000000 B'",
    ),
    "budget that may mean either": (
        lambda: checkpoint(misfit, budget=1),
        ValueError,
        "checkpoint: budget: 1 may mean bytes or a fraction; write '1 B' for bytes, or 1.0 for a fraction",
    ),
    "a leaf": (
        lambda: checkpoint(misfit)(["s"]),
        TypeError,
        "checkpoint of misfit: argument `x`[0] must be an array or a scalar, got 's' of type str; if it decides "
        "what is traced, name the argument in static_argnums or static_argnames, else make its class a tree with "
        "`fiveloop.core.register_node`",
    ),
    "static argument without a hash": (
        lambda: checkpoint(lambda x, n: x, static_argnums=1)(X, [1]),
        TypeError,
        "checkpoint of <lambda>: static argument `n` must be hashable, got [1] of type list; pass a tuple in place of "
        "a list",
    ),
    "static argument that is a set": (
        lambda: checkpoint(lambda x, n: x, static_argnums=1)(X, {1}),
        TypeError,
        "checkpoint of <lambda>: static argument `n` must be hashable, got {1} of type set; pass a frozenset in place "
        "of a set",
    ),
    "static argument of many numbers": (
        lambda: checkpoint(lambda x, n: x, static_argnums=1)(X, np.ones((8, 8))),
        TypeError,
        "checkpoint of <lambda>: static argument `n` must be hashable, got array([[1., 1., 1., 1., 1., 1., 1., 1.], "
        "[1., 1., 1., 1., 1., 1., 1., 1.], [1., ... of type ndarray; leave it out of the static ones",
    ),
    "static argument of NumPy": (
        lambda: checkpoint(lambda x, n: x, static_argnums=1)(X, np.ones(1)),
        TypeError,
        "checkpoint of <lambda>: static argument `n` must be hashable, got array([1.]) of type ndarray; leave it out "
        "of the static ones",
    ),
    "static_argnums that is a bool": (
        lambda: checkpoint(misfit, static_argnums=True),
        TypeError,
        "checkpoint of misfit: static_argnums must be an integer or a tuple of them, got True; names go into "
        "static_argnames",
    ),
    "static_argnums": (
        lambda: checkpoint(misfit, static_argnums=5),
        ValueError,
        "checkpoint of misfit: static_argnums must name one of its 1 positional arguments, got 5",
    ),
    "static_argnames": (
        lambda: checkpoint(misfit, static_argnames="n"),
        ValueError,
        "checkpoint of misfit: static_argnames names 'n', which is no argument of it",
    ),
    "self": (
        lambda: Model().loss(X),
        TypeError,
        "checkpoint of loss: argument `self` must be an array or a scalar, got Model() of type Model; if it decides "
        "what is traced, name the argument in static_argnums or static_argnames, else make its class a tree with "
        "`fiveloop.core.register_node`",
    ),
    "a leaf after a static argument": (
        lambda: checkpoint(lambda n, x: x, static_argnums=0)(3, ["s"]),
        TypeError,
        "checkpoint of <lambda>: argument `x`[0] must be an array or a scalar, got 's' of type str; if it decides "
        "what is traced, name the argument in static_argnums or static_argnames, else make its class a tree with "
        "`fiveloop.core.register_node`",
    ),
    "a leaf, to residuals": (
        lambda: saved_residuals(misfit, "s"),
        TypeError,
        "tracing of misfit: argument `x` must be an array or a scalar, got 's' of type str; if it "
        "decides what is traced, close over it: `lambda *others: f(..., 's')`",
    ),
    "a Ref as a result, to residuals": (
        lambda: saved_residuals(new_ref, X),
        TypeError,
        "saved_residuals of new_ref: its results must be arrays or scalars, got Ref{f32[4]}; return what is read of "
        "the Ref: `ref[...]`",
    ),
    "a static argument, to residuals": (
        lambda: saved_residuals(checkpoint(repeated, static_argnums=1), X, 3),
        TypeError,
        "checkpoint of repeated: static argument `n` must be hashable, got Traced<i32*[]> of type StageTracer; leave "
        "it out of the static ones, or close over it where a transform around traces all arguments: "
        "`lambda *others: f(..., n)`",
    ),
    "a name": (
        lambda: checkpoint_name(X, 3),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "checkpoint_name: name must be a string, got 3",
    ),
    "a name of a Ref": (
        lambda: checkpoint_name(new_ref(X), "a"),
        TypeError,
        "checkpoint_name: a leaf of x must be an array or a scalar, got Ref{f32[4]}; label what is read of a Ref: "
        "`checkpoint_name(ref[...], 'a')`",
    ),
    "a policy without a hash": (
        lambda: checkpoint(misfit, policy=Unhashable()),
        TypeError,
        "checkpoint: policy must be hashable, as plans are found again by their policies, got Unhashable(): "
        "unhashable type: 'Unhashable'; give Unhashable a `__hash__` beside its `__eq__`",
    ),
    "a policy that holds an array": (
        lambda: checkpoint(misfit, policy=Weighted(X[0])),
        TypeError,
        f"checkpoint: policy must be hashable, as plans are found again by their policies, got Weighted(least={X[0]!r}"
        "): a value of type f32[] has no hash, as its elements are what is compared; as a key use `x.item()`, "
        "`np.asarray(x).tobytes()` or `id(x)`; give Weighted a `__hash__` beside its `__eq__`",
    ),
    "a price that is no number": (
        lambda: MinimumCut(memory_cost="12"),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "MinimumCut: memory_cost must be a finite number that is not negative, got '12'",
    ),
    "a price that is a bool": (
        lambda: MinimumCut(compute_cost=True),
        TypeError,
        "MinimumCut: compute_cost must be a finite number that is not negative, got True",
    ),
    "a negative price": (
        lambda: MinimumCut(memory_cost=-1),
        ValueError,
        "MinimumCut: memory_cost must be a finite number that is not negative, got -1",
    ),
    "a share that is not finite": (
        lambda: MinimumCut(share=float("nan")),
        ValueError,
        "MinimumCut: share must be a finite number that is not negative, got nan",
    ),
    "a policy of no arguments": (
        lambda: checkpoint(misfit, policy=no_arguments),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "checkpoint: policy must take one equation, or be of the form (primitive, *avals, **params); "
        f"`{function_source(no_arguments)}` takes () -> 'bool'; if it makes a policy, call it",
    ),
    "a policy within a policy": (
        lambda: policies.first_of(policies.dots_saveable, no_arguments),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "first_of: a policy must take one equation, or be of the form (primitive, *avals, **params); "
        f"`{function_source(no_arguments)}` takes () -> 'bool'; if it makes a policy, call it",
    ),
    "a verdict as a policy": (
        lambda: checkpoint(misfit, policy=policies.SAVE),  # type: ignore[call-overload]  # that is the point
        TypeError,
        "checkpoint: policy must be callable on an equation, as those in `fiveloop.remat.policies` are, got "
        "Verdict(kind='save', reason=''); a verdict is what a policy returns, as in `lambda eqn: SAVE`",
    ),
    "a kind of verdict as a policy": (
        lambda: policies.first_of(policies.Offload),  # type: ignore[arg-type]  # that is the point
        TypeError,
        f"first_of: a policy must be callable on an equation, as those in `fiveloop.remat.policies` are, got "
        f"{policies.Offload!r}; a verdict is what a policy returns, as in `lambda eqn: SAVE`",
    ),
    "a memory": (
        lambda: policies.offload_dot_with_no_batch_dims("device", "there"),
        ValueError,
        "Offload: dst must be one of 'device', 'pinned_host', 'unpinned_host', got 'there'",
    ),
    "a list of names in a policy": (
        lambda: save_only_these_names(["a"]),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "save_only_these_names: expected names as strings, got ['a']; a list of names is unpacked, as in `(*names)`",
    ),
    "a name in a policy": (
        lambda: save_only_these_names(3),  # type: ignore[arg-type]  # that is the point
        TypeError,
        "save_only_these_names: expected names as strings, got 3; a list of names is unpacked, as in `(*names)`",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), CASES.values(), ids=CASES)
def test_bad_input(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    assert_misuse(call, kind, message)


def failing(eqn: Any) -> bool:
    return bool(1 / eqn.bytes.nothing)


class Failing:
    def __call__(self, eqn: Any) -> bool:
        return failing(eqn)


def fails_on(eqn: Any, least: int) -> bool:
    return failing(eqn)


def place(fun: Any) -> str:
    return f"{__file__}:{fun.__code__.co_firstlineno}"


unnamed = lambda eqn: failing(eqn)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (failing, f"failing at {place(failing)}"),
        (policies.dots_saveable | failing, f"failing at {place(failing)}"),
        (~(failing & policies.dots_saveable), f"failing at {place(failing)}"),
        (unnamed, f"<lambda> at {place(unnamed)}"),
        (partial(fails_on, least=1), f"fails_on at {place(fails_on)}"),
        (Failing(), f"Failing at {place(Failing.__call__)}"),
    ],
    ids=["function", "either", "not both", "lambda", "partial", "object"],
)
def test_an_error_in_a_policy_names_it_its_place_and_the_line_of_the_equation(
    policy: Any, name: str
) -> None:
    error = raised(lambda: grad(checkpoint(sines, policy=policy))(X))
    assert_misuse(
        lambda: grad(checkpoint(sines, policy=policy))(X),
        PolicyError,
        f"the checkpoint policy `{name}` raised AttributeError: 'int' object has no attribute 'nothing'; it was asked "
        "about an equation of `sin`",
        within=sines,
    )
    assert type(error.__cause__) is AttributeError


def test_what_a_policy_must_not_return_is_told_with_its_place() -> None:
    wrong: Any = lambda eqn: "yes"
    with pytest.raises(TypeError, match=re.escape(f"`<lambda> at {place(wrong)}` returned 'yes'")):
        grad(checkpoint(sines, policy=wrong))(X)


MAKERS: dict[Any, str] = {
    policies.save_only_these_names: "(*names)",
    policies.save_any_names_but_these: "(*names)",
    policies.save_anything_except_these_names: "(*names)",
    policies.save_and_offload_only_these_names: "(*, names_which_can_be_saved, names_which_can_be_offloaded, "
    "offload_src='device', offload_dst='pinned_host')",
    policies.save_from_both_policies: "(policy_1, policy_2)",
    policies.first_of: "(*policies)",
    policies.offload_dot_with_no_batch_dims: "(offload_src='device', offload_dst='pinned_host')",
    MinimumCut: "(memory_cost=12.0, compute_cost=1.0, share=0.5)",
}


def test_what_stands_beside_an_operator_is_a_policy() -> None:
    p: Any = policies.dots_saveable
    for call in (lambda: p | 3, lambda: 3 | p, lambda: p & 3, lambda: 3 & p):
        assert_misuse(
            call,
            TypeError,
            "a policy beside `|` or `&` must be callable on an equation, as those in "
            "`fiveloop.remat.policies` are, got 3",
        )


def test_an_offload_is_from_the_device_to_the_host() -> None:
    assert_misuse(
        lambda: policies.Offload("pinned_host", "device"),
        ValueError,
        "Offload: src must be 'device', got 'pinned_host'; values are computed on the device and moved to the host",
    )
    assert_misuse(
        lambda: policies.Offload("device", "device"),
        ValueError,
        "Offload: dst must be a memory of the host, such as 'pinned_host', got 'device'; values are computed on the "
        "device and moved to the host",
    )


def test_an_offload_names_a_memory() -> None:
    number: Any = 3
    assert_misuse(
        lambda: policies.Offload("gpu"),
        ValueError,
        "Offload: src must be one of 'device', 'pinned_host', 'unpinned_host', got 'gpu'",
    )
    assert_misuse(
        lambda: policies.Offload(dst=number),
        TypeError,
        "Offload: dst must be the name of a memory, such as 'pinned_host', got 3",
    )


def test_all_makers_of_policies_are_known() -> None:
    public = [getattr(policies, name) for name in policies.__all__]
    makers = [x for x in public if callable(x) and not isinstance(x, Composable)]
    assert {*makers, MinimumCut} - {*MAKERS} == {policies.Candidate, policies.Offload}


@pytest.mark.parametrize(("maker", "takes"), MAKERS.items())
def test_a_policy_maker_that_is_not_called_is_named(maker: Any, takes: str) -> None:
    told = f"`{maker.__name__}` makes a policy and must be called: `{maker.__name__}{takes}`"
    places: dict[str, Callable[[], object]] = {
        "checkpoint: policy": lambda: checkpoint(sines, policy=maker),
        "first_of: a policy": lambda: policies.first_of(policies.dots_saveable, maker),
        "a policy beside `|` or `&`": lambda: maker | policies.dots_saveable,
        "save_from_both_policies: policy_2": lambda: policies.save_from_both_policies(
            policies.dots_saveable, maker
        ),
    }
    for where, call in places.items():
        assert_misuse(call, TypeError, f"{where}: {told}")


def forward(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


@pytest.mark.parametrize("transform", [forward, grad])
def test_shapes_within_a_checkpoint(transform: Callable[..., Any]) -> None:
    assert_misuse(
        lambda: transform(checkpoint(misfit))(X),
        ValueError,
        "add: expected shapes that broadcast together, got (4,), (3, 2)",
        within=misfit,
    )


def test_control_flow_within_a_checkpoint() -> None:
    def branch(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    assert_misuse(
        lambda: checkpoint(branch)(X),
        ConcretizationError,
        f"the traced value Traced<bool[]> was asked to be a bool while {function_source(branch)} is traced; use "
        "`cond`, `where` or `while_loop` for control flow on traced values",
        within=branch,
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("atention", "mlp"),
            "checkpoint of labelled: the policy names 'atention', and the names in labelled are: "
            "'attention', 'mlp'; did you mean 'attention'?",
        ),
        (
            ("other",),
            "checkpoint of labelled: the policy names 'other', and the names in labelled are: "
            "'attention', 'mlp'; label a value: `checkpoint_name(x, 'other')`",
        ),
        (
            ("MLP",),
            "checkpoint of labelled: the policy names 'MLP', and the names in labelled are: 'attention', 'mlp'; did "
            "you mean 'mlp'?",
        ),
        (("attention", "mlp"), None),
    ],
)
def test_names_that_label_nothing_are_told_once(
    names: tuple[str, ...], message: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def labelled(x: Any) -> Any:
        return jit(lambda y: checkpoint_name(y * y, "attention"))(checkpoint_name(x * 2.0, "mlp"))

    f = checkpoint(labelled, policy=policies.save_only_these_names(*names))
    with caplog.at_level("WARNING", logger="fiveloop.remat"):
        for _ in range(2):
            grad(f)(1.0)
    told = [record.getMessage() for record in caplog.records]
    if message is None:
        assert not told
    else:
        assert len(told) == 1
        assert told[0].startswith(f"{message}\n  at ")
        assert "test_errors.py" in told[0]


@custom_vjp
def by_rule(x: Any) -> Any:
    return fnp.sin(fnp.exp(x))


by_rule.defvjp(
    lambda x: (by_rule(x), checkpoint_name(fnp.exp(x), "inner")),
    lambda inner, ct: (ct * fnp.cos(inner) * inner,),
)


def test_labels_that_a_rule_gives_are_known_with_the_derivative(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ruled(x: Any) -> Any:
        return by_rule(x) * 2.0

    with caplog.at_level("WARNING", logger="fiveloop.remat"):
        grad(checkpoint(ruled, policy=policies.save_only_these_names("inner")))(1.0)
        assert not caplog.records
        wrong = checkpoint(ruled, policy=policies.save_only_these_names("iner"))
        wrong(1.0)
        assert not caplog.records
        grad(grad(wrong))(1.0)
    (record,) = caplog.records
    assert "did you mean 'inner'?\n  at " in record.getMessage()


def test_a_policy_of_jax_that_would_select_nothing_is_refused() -> None:
    def dots_saveable(prim: Any, *avals: Any, **params: Any) -> bool:
        return False

    def everything_saveable(prim: Any, *avals: Any, **params: Any) -> bool:
        return True

    for policy in (dots_saveable, everything_saveable):
        policy.__module__ = "jax._src.ad_checkpoint"
        policy.__qualname__ = policy.__name__
    saved_residuals(checkpoint(fnp.sin, policy=everything_saveable), 1.0)
    with pytest.raises(TypeError, match=r"checkpoint: policy is one of jax's, .* use the policy"):
        checkpoint(fnp.sin, policy=dots_saveable)
