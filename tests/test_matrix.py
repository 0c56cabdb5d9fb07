"""With every package imported: no blank cell, no refusal but those listed here, no primitive without a reference."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from fiveloop.core.inspect import Row, matrix
from fiveloop.core.rules import COLUMNS
from fiveloop.testing.core.oracle import reference_rules

PORTIONS = ("core", "state", "loops", "remat", "numpy", "random", "nn")

REQUIRED = ("abstract_eval", "lower", "jvp", "batch", "transpose")
"""The columns that every row fills by itself: with a rule, or with a refusal."""

NOT_LINEAR = """
    abs acos acosh argmax argmin asin asinh atan atan2 atanh axis_index bitcast_convert bitwise_and bitwise_not
    bitwise_or bitwise_xor cbrt ceil check clamp cos cosh count_leading_zeros cumlogsumexp cummax cummin cumprod
    digamma equal erf erf_inv erfc exp expm1 floor floor_div greater greater_equal hypot integer_pow iota is_finite less
    less_equal lgamma log log1p log_softmax logaddexp logistic maximum minimum mod next_key nextafter not_equal pmax
    pmin polygamma population_count pow reduce_and reduce_max reduce_min reduce_or reduce_prod relu rem
    resolve_index round rsqrt shift_left shift_right_arithmetic shift_right_logical sign sin sinh softmax sort
    sqrt square stop_gradient tan tanh threefry2x32 top_k
""".split()

COLLECTIVES = "all_gather all_to_all axis_index pmax pmin ppermute psum psum_scatter".split()

DISCHARGE = "discharge it first (`discharge_state`)"
REFUSALS: dict[tuple[str, str], str] = {
    **{(name, "transpose"): "it is not linear" for name in NOT_LINEAR},
    **{(name, "lower"): "its axis is bound by no `vmap`" for name in COLLECTIVES},
    ("resolve_index", "jvp"): "integers have no tangents",
    ("check", "lower"): "handle the effect first (`thread_effect`)",
    ("get", "lower"): DISCHARGE,
    ("next_key", "lower"): DISCHARGE,
    ("swap", "lower"): DISCHARGE,
    ("addupdate", "lower"): DISCHARGE,
    ("accumulate", "lower"): DISCHARGE,
    ("new_ref", "lower"): DISCHARGE,
    ("freeze", "lower"): DISCHARGE,
    ("callback", "transpose"): "call it where values are computed",
    ("progress", "transpose"): "it belongs to the loop that computes values",
    ("replay", "lower"): "run the passes first",
}
"""Every refusal there is, by primitive and column, with a part of its reason."""


@cache
def rows() -> tuple[Row, ...]:
    """The rows of the packages' own primitives; tests and examples in docstrings define others."""
    for portion in PORTIONS:
        import_module(f"fiveloop.{portion}")
    own = [
        row
        for row in matrix()
        if not any(
            o in p.file for p in row["abstract_eval"].places for o in ("/tests/", "<doctest")
        )
    ]
    assert len(own) > len(NOT_LINEAR)
    return tuple(own)


def test_no_cell_is_blank() -> None:
    blank = [
        f"{row.name}: {cell.column}" for row in rows() for cell in row if cell.status == "blank"
    ]
    assert blank == []


def test_the_required_columns_have_no_default() -> None:
    defaults = {column.column for column in COLUMNS if column.default}
    wrong = [f"{r.name}: {c}" for r in rows() for c in REQUIRED if r[c].status == "default"]
    assert wrong == []
    assert defaults.isdisjoint({"abstract_eval", "lower", "jvp", "batch"})


def test_every_refusal_is_known() -> None:
    found = {
        (r.name, cell.column): cell.reason for r in rows() for cell in r if cell.status == "refused"
    }
    assert sorted(found.keys() - REFUSALS.keys()) == []
    assert sorted(REFUSALS.keys() - found.keys()) == []
    unlike = {place: reason for place, reason in found.items() if REFUSALS[place] not in reason}
    assert unlike == {}


def test_names_of_primitives_are_unique() -> None:
    names = [row.name for row in rows()]
    assert sorted(names) == sorted(set(names))


def test_every_rule_has_a_place() -> None:
    rules = [cell for row in rows() for cell in row if cell.status == "rule"]
    assert [cell for cell in rules if not all(p.file.endswith(".py") for p in cell.places)] == []


def test_the_oracle_knows_every_primitive() -> None:
    for portion in PORTIONS:
        if find_spec(f"fiveloop.testing.{portion}") is not None:
            testing = import_module(f"fiveloop.testing.{portion}")
            if hasattr(testing, "__path__"):
                import_module(f"fiveloop.testing.{portion}.references")
    assert sorted({row.name for row in rows()} - reference_rules.keys()) == []


def test_a_column_of_another_package_is_there() -> None:
    assert "discharge" in [column.column for column in COLUMNS]
    assert {row.name for row in rows() if row["discharge"].status == "rule"} >= {
        "get",
        "swap",
        "for",
    }
