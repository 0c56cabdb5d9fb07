"""Late imports: nothing early, and LAPACK's targets work once asked for."""

import subprocess
import sys

import numpy as np

from fiveloop.core.backend import client, hlo, lazy
from fiveloop.core.backend.client import Aval


def test_the_backend_imports_nothing_slow() -> None:
    code = (
        "import sys; from fiveloop.core.backend import call, client, hlo, lazy; "
        "print([m for m in ('scipy', 'jaxlib.mlir', 'matplotlib', 'jax') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "[]"


def test_lapack_factorizes_inside_a_program() -> None:
    lazy.lapack()
    x = np.array([[4.0, 2.0], [2.0, 5.0]], np.float32)
    layout = "dense<[0, 1]> : tensor<2xindex>"
    attrs = (
        "api_version = 4 : i32, backend_config = {uplo = 76 : ui8}, "
        f"operand_layouts = [{layout}], "
        f"result_layouts = [{layout}, dense<> : tensor<0xindex>], "
        "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], "
        "operand_index = 0, operand_tuple_indices = []>]"
    )
    b = hlo.Builder()

    def body(args: list[hlo.IRValue]) -> list[hlo.IRValue]:
        specs: list[hlo.TypeSpec] = [((2, 2), "f4"), ((), "i4")]
        return hlo.custom_call(b, "lapack_spotrf_ffi", args, specs, attrs)

    b.function("main", [((2, 2), "f4")], public=True, body=body)
    avals = [Aval((2, 2), np.dtype("f4")), Aval((), np.dtype("i4"))]
    buf = client.put(x, avals[0])
    lower, info = (client.to_numpy(v) for v in client.compile_text(b.text(), avals).execute([buf]))
    assert int(info) == 0
    np.testing.assert_allclose(np.tril(lower), np.linalg.cholesky(x), rtol=1e-6)


def test_modules_come_under_their_names() -> None:
    named = {"hashlib": lazy.hashlib, "difflib": lazy.difflib, "logging": lazy.logging}
    for name, module in named.items():
        assert module().__name__ == name
    assert float(lazy.scipy_special().erf(0.0)) == 0.0
    assert lazy.mlir().__name__ == "jaxlib.mlir.ir"
    assert hasattr(lazy.mlir_dialects(), "register_dialects")
