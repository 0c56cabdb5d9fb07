"""The text that the builder writes, read as a person would."""

import numpy as np
import pytest

from fiveloop.core.backend import hlo
from fiveloop.core.backend.hlo import IRValue

COUNTING = """\
module @count {
  func.func public @main(%arg0: tensor<i32> {tf.aliasing_output = 0 : i32}) -> (tensor<i32>) {
    %0 = stablehlo.constant dense<10> : tensor<i32>
    %5 = stablehlo.while(%1 = %arg0) : tensor<i32>
    cond {
      %2 = stablehlo.compare LT, %1, %0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %3 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.add %1, %3 : tensor<i32>
      stablehlo.return %4 : tensor<i32>
    }
    return %5 : tensor<i32>
  }
}
"""


def test_a_loop_reads_well() -> None:
    b = hlo.Builder("count")

    def body(args: list[IRValue]) -> list[IRValue]:
        ten = hlo.constant(b, 10, (), "i4")
        return hlo.while_(
            b,
            args,
            lambda c: hlo.compare(b, c[0], ten, "LT"),
            lambda c: [hlo.add(b, c[0], hlo.constant(b, 1, (), "i4"))],
        )

    attrs = [{"tf.aliasing_output": "0 : i32"}]
    b.function("main", [((), "i4")], public=True, param_attrs=attrs, body=body)
    assert b.text() == COUNTING


def test_public_functions_come_first_and_main_is_kept_for_them() -> None:
    b = hlo.Builder()
    spec: list[hlo.TypeSpec] = [((2,), "f4")]

    def body(args: list[IRValue]) -> list[IRValue]:
        inner = b.function("main", spec, body=lambda a: [hlo.neg(b, a[0])])
        assert inner == "main_1"
        return b.call(inner, args, spec)

    assert b.function("main", spec, public=True, body=body) == "main"
    text = b.text()
    assert text.index("public @main(") < text.index("private @main_1(")


def test_names_that_mlir_would_not_take_are_changed() -> None:
    b = hlo.Builder("my module")
    names = [b.function(name, [], body=lambda _: []) for name in ("<lambda>", "é", "2d", "a.b")]
    assert names == ["_lambda_", "_", "_2d", "a.b"]
    assert b.text().startswith("module @my_module {")


def test_a_failing_body_leaves_the_outer_function_intact() -> None:
    b = hlo.Builder()

    def body(args: list[IRValue]) -> list[IRValue]:
        with pytest.raises(ZeroDivisionError):
            b.function("bad", [], body=lambda _: [args[1 // 0]])
        with pytest.raises(ZeroDivisionError):
            hlo.while_(b, args, lambda _: args[1 // 0], lambda c: c)
        return [hlo.neg(b, args[0])]

    b.function("main", [((), "f4")], public=True, body=body)
    assert b.text().count("stablehlo") == 1
    assert "    %1 = stablehlo.negate %arg0" in b.text()


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((), "?", "tensor<i1>"),
        ((2, 0), "u2", "tensor<2x0xui16>"),
        ((3,), "c8", "tensor<3xcomplex<f32>>"),
    ],
)
def test_types(shape: tuple[int, ...], dtype: str, text: str) -> None:
    assert hlo.tensor_type(shape, dtype) == text
    assert IRValue("%0", shape, np.dtype(dtype)).type == text


def test_a_dtype_that_xla_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a dtype that XLA can hold .*float32.*, got <U3"):
        hlo.element_type("U3")
