"""The oracle: what it imports, what it computes, and what it finds wrong."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from fiveloop.core import Jaxpr, Scalar
from fiveloop.core.extend import Eqn, Literal, Primitive, ShapedArray, Var
from fiveloop.core.ir.jaxpr import NO_PARAMS
from fiveloop.testing.core import oracle
from fiveloop.testing.core.oracle import (
    Cell,
    OracleError,
    define_reference,
    reference_rules,
    run_jaxpr,
)

FOLDER = Path(oracle.__file__).parent
FILES = [FOLDER / "oracle.py", FOLDER / "lanes.py", *sorted(FOLDER.glob("reference*.py"))]
VECTOR = ShapedArray((2,), "float32")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_shares_no_code_with_the_library(path: Path) -> None:
    allowed = ("fiveloop.core.ir.", "fiveloop.testing.core")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        module = node.module if isinstance(node, ast.ImportFrom) else None
        if module and module.startswith("fiveloop"):
            assert module.startswith(allowed), f"{path.name} imports {module}"
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("fiveloop") for alias in node.names)


def one_equation(name: str, *outs: Var) -> Jaxpr:
    x = Var(VECTOR)
    return Jaxpr([x], [Eqn(Primitive(name), [x], outs, NO_PARAMS)], outs)


def test_runs_equations_and_literals() -> None:
    x, y = Var(VECTOR), Var(VECTOR)
    two = Literal(Scalar(np.asarray(2, np.float32)))
    jaxpr = Jaxpr([x], [Eqn(Primitive("mul"), [x, two], [y], NO_PARAMS)], [y, two])
    y_value, two_value = run_jaxpr(jaxpr, [np.array([1, 3], np.float32)])
    np.testing.assert_array_equal(y_value, [2, 6])
    assert two_value == 2


def test_finds_results_of_another_type() -> None:
    with pytest.raises(
        OracleError, match=r"result 0 should have type f32\[3\], but is float32\[2\], in"
    ):
        run_jaxpr(one_equation("sin", Var(ShapedArray((3,), "float32"))), [np.zeros(2, np.float32)])


def test_finds_a_wrong_number_of_results() -> None:
    with pytest.raises(OracleError, match="expected 2 results, got 1"):
        run_jaxpr(one_equation("sin", Var(VECTOR), Var(VECTOR)), [np.zeros(2, np.float32)])


def test_finds_variables_without_value() -> None:
    x, y = Var(VECTOR), Var(VECTOR)
    with pytest.raises(
        OracleError, match=r"a variable of type f32\[2\] is used before it is defined"
    ):
        run_jaxpr(Jaxpr([x], [], [y]), [np.zeros(2, np.float32)])


def test_names_a_primitive_that_it_does_not_know() -> None:
    with pytest.raises(OracleError, match="no reference of `frobnicate`; add one"):
        run_jaxpr(one_equation("frobnicate", Var(VECTOR)), [np.zeros(2, np.float32)])


def test_refuses_a_second_reference() -> None:
    assert "sin" in reference_rules
    with pytest.raises(OracleError, match="the reference of `sin` is defined twice"):
        define_reference("sin", lambda values, p: [])


def test_cells_have_the_type_of_their_contents() -> None:
    cell = Cell(np.zeros((2, 3), np.float32))
    assert cell.shape == (2, 3)
    assert cell.dtype == np.dtype(np.float32)
    assert not cell.frozen
