"""The stages of a program, and the matrix of rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from fiveloop import core
from fiveloop.core import extend
from fiveloop.core.inspect import StageRule, matrix, register_stage, row, stages
from fiveloop.core.inspect.stage_list import Stages, all_rules
from fiveloop.core.ir.jaxpr import Jaxpr
from fiveloop.core.passes import Pass, all_passes, register_pass
from fiveloop.core.primitives.special import sin
from fiveloop.core.rules import COLUMNS
from fiveloop.testing.core.compare import assert_all_close
from fiveloop.testing.core.oracle import run_jaxpr

X = np.array([0.5, 1.0, 2.0], np.float32)


def program(x: Any, y: Any) -> Any:
    return (sin(x) * y).sum()


def jaxpr_of(found: Stages, name: str) -> Jaxpr:
    content = found[name]
    assert isinstance(content, Jaxpr)
    return content


def test_stages_print_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [step for step in all_passes() if step.name == "dce"]  # other packages add theirs
    monkeypatch.setattr("fiveloop.core.passes._passes", own)
    assert repr(stages(lambda x: x * sin(x), X, upto="dce")) == dedent(
        """\
        # trace: the program as the function was traced
        { lambda a:f32[3] ; let
            b:f32[3] = sin a
            c:f32[3] = mul a b
          in (c,) }

        # jvp: [*inputs, *tangents] -> [*results, *tangents of those that have one]
        { lambda a:f32[3] b:f32[3] ; let
            c:f32[3] = sin a
            d:f32[3] = cos a
            e:f32[3] = mul b d
            f:f32[3] = mul a c
            g:f32[3] = mul b c
            h:f32[3] = mul a e
            i:f32[3] = add g h
          in (f, i) }

        # known: [*inputs] -> [*results, *residuals]
        { lambda a:f32[3] ; let
            b:f32[3] = sin a
            c:f32[3] = cos a
            d:f32[3] = mul a b
          in (d, c, b, a) }

        # linear: [*residuals, *tangents] -> [*tangents of results]
        { lambda a:f32[3] b:f32[3] c:f32[3] d:f32[3] ; let
            e:f32[3] = mul d a
            f:f32[3] = mul d b
            g:f32[3] = mul c e
            h:f32[3] = add f g
          in (h,) }

        # transposed: [*residuals, *cotangents of results] -> [*cotangents]
        { lambda a:f32[3] b:f32[3] c:f32[3] d:f32[3] ; let
            e:f32[3] = mul c d
            f:f32[3] = mul d b
            g:f32[3] = mul e a
            h:f32[3] = add f g
          in (h,) }

        # dce: after this pass
        as `trace`
        """
    )


def test_every_stage_computes_what_it_says() -> None:
    found = stages(program, X, X)
    dots = [np.float32(2) * X, X]
    trace, jvp = jaxpr_of(found, "trace"), jaxpr_of(found, "jvp")
    known, linear, transposed = (jaxpr_of(found, n) for n in ("known", "linear", "transposed"))
    outs = run_jaxpr(trace, [X, X])
    values, out_dots = run_jaxpr(jvp, [X, X, *dots])
    first, *residuals = run_jaxpr(known, [X, X])
    assert_all_close([values, first], [outs[0], outs[0]])
    assert_all_close(run_jaxpr(linear, [*residuals, *dots]), [out_dots])
    cotangents = run_jaxpr(transposed, [*residuals, np.float32(1)])
    assert_all_close(
        [sum(np.vdot(ct, d) for ct, d in zip(cotangents, dots, strict=True))], [out_dots]
    )
    assert_all_close(run_jaxpr(jaxpr_of(found, "dce"), [X, X]), outs)


def test_upto_ends_the_stages() -> None:
    assert stages(program, X, X, upto="known").names == ["trace", "jvp", "known"]
    assert stages(program, X, X).names[-1] == "stablehlo"
    compiled = stages(program, X, X, upto="hlo")["hlo"]
    assert isinstance(compiled, str) and "HloModule" in compiled


def test_stages_take_descriptions() -> None:
    found = stages(program, core.ShapeDtype((3,), np.float32), core.ShapeDtype((3,), np.float32))
    assert repr(found) == repr(stages(program, X, X))


def test_upto_is_checked() -> None:
    with pytest.raises(ValueError) as error:
        stages(program, X, X, upto="compiled")
    assert str(error.value).startswith(
        "stages: expected `upto` to name a stage, one of trace, jvp, known"
    )
    assert str(error.value).endswith("hlo; got 'compiled'")


def test_an_unknown_stage_is_a_key_error() -> None:
    with pytest.raises(
        KeyError, match=r"expected the name of a stage, one of trace, jvp; got 'dce'"
    ):
        stages(program, X, X, upto="jvp")["dce"]


def test_a_function_of_integers_says_that_it_has_no_derivative() -> None:
    found = stages(lambda i: i + 1, np.int32(3))
    reason = "none: no input is floating, so there is nothing to differentiate"
    assert [found[name] for name in ("jvp", "known", "linear", "transposed")] == [reason] * 4
    assert "stablehlo.add" in str(found["stablehlo"])


def test_a_refused_derivative_says_why() -> None:
    refusal = extend.Refusal("this test refuses it")
    prim: extend.Primitive[Any] = extend.Primitive("refuser")
    extend.define(
        prim,
        abstract_eval=extend.pure(lambda avals, p: avals),
        lower=lambda ctx, operands, p: list(operands),
        jvp=refusal,
        batch=refusal,
    )
    try:
        found = stages(lambda x: extend.bind1(prim, x), X)
    finally:
        for column in COLUMNS:
            column.pop(prim, None)
            column._refusals.pop(prim, None)
    assert str(found["jvp"]).startswith("none: `refuser` has no jvp: this test refuses it")
    assert str(found["transposed"]) == "none: there is no stage `linear` to make it from"
    assert isinstance(found["dce"], Jaxpr)


def test_dump_writes_one_numbered_file_a_stage(tmp_path: Path) -> None:
    found = stages(program, X, X, dump=tmp_path / "dumped")
    files = sorted((tmp_path / "dumped").iterdir())
    assert files[0].name == "00_trace.jaxpr"
    assert files[-1].name == f"{len(found) - 1:02d}_stablehlo.mlir"
    assert [f.read_text(encoding="utf-8") for f in files] == [
        str(s.content).rstrip("\n") + "\n" for s in found
    ]


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fiveloop.core.passes._passes", list(all_passes()))
    monkeypatch.setattr("fiveloop.core.inspect.stage_list._rules", [])


@pytest.mark.usefixtures("registries")
def test_a_new_pass_and_a_new_engine_show_by_themselves() -> None:
    register_pass(
        Pass(
            "tidy",
            after=(),
            applies=lambda jaxpr: True,
            run=lambda jaxpr: jaxpr.replace(name="tidy"),
        )
    )
    register_stage(
        StageRule("size", "in equations", lambda s: str(len(s.jaxpr("trace").eqns)), after="trace")
    )
    names = [rule.name for rule in all_rules()]
    found = stages(program, X, X)
    assert names.index("size") == 1
    assert found["size"] == "3"
    assert jaxpr_of(found, "tidy").name == "tidy"
    with pytest.raises(ValueError, match="the stage 'size' is registered twice"):
        register_stage(StageRule("size", "again", lambda s: ""))


def test_a_row_tells_rules_defaults_and_refusals() -> None:
    found = row("sin")
    assert {cell.column: cell.status for cell in found}["jvp"] == "rule"
    assert [place.file.rsplit("/", 1)[1] for place in found["jvp"].places] == [
        "family.py",
        "elementwise.py",
    ]
    assert found["transpose"].status == "refused"
    assert found["transpose"].reason.startswith("it is not linear")
    assert (found["impl"].status, found["impl"].reason) == (
        "default",
        "compile and run the equation",
    )


def test_a_row_tells_facts() -> None:
    assert (row("sin")["by_element"].status, str(row("sin")["by_element"])) == ("fact", "yes")
    assert row("sort")["by_element"].status == "default"
    views = [found.name for found in matrix() if found["view"].status == "fact"]
    assert {"broadcast_in_dim", "reshape", "transpose"} <= {*views}
    assert "add" not in views
    assert row("take")["view"].status == "rule"  # a block is one, many elements are none


def test_a_row_tells_that_a_primitive_is_one_operation() -> None:
    found = row("sin")["written_out"]
    assert (found.status, found.reason) == ("default", "none: one operation")


def test_the_row_of_a_higher_order_primitive_names_its_files() -> None:
    found = row("custom_rule")
    for column in ("jvp", "batch", "dce"):
        (place,) = found[column].places
        assert place.file.endswith(f"/custom_rule/{column}.py")
        assert place.line > 1
    found = row("closed_call")
    for column in ("jvp", "batch", "transpose", "split", "dce", "lower"):
        (place,) = found[column].places
        assert place.file.endswith("/closed_call.py")
    first, second, *_ = repr(found).splitlines()
    assert (first, second.split()[:2]) == ("closed_call", ["abstract_eval", "rule"])


def test_an_unknown_row_names_those_like_it() -> None:
    with pytest.raises(
        ValueError,
        match=r"row: expected the name of a primitive .*, got 'sinn'; those most like it: sin",
    ):
        row("sinn")


def test_the_matrix_has_every_row_and_column() -> None:
    found = matrix()
    lines = repr(found).splitlines()
    assert len(lines) == len(found) + 1
    assert lines[0].split() == [column.column for column in COLUMNS]
    assert {cell.status for r in found for cell in r} <= {
        "rule",
        "fact",
        "default",
        "refused",
        "blank",
    }


@pytest.mark.parametrize(
    ("argv", "status", "start"),
    [
        (["matrix"], 0, "abstract_eval"),
        (["row", "closed_call"], 0, "closed_call"),
        (["row", "?"], 1, ""),
    ],
)
def test_the_command_line(argv: list[str], status: int, start: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fiveloop.core.inspect", *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()[: len(start)]) == (status, start)
    assert ("expected the name of a primitive" in done.stderr) == bool(status)
