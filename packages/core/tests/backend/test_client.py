"""Putting, reading, compiling and running, and what is said when it fails."""

import os
import subprocess
import sys
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fiveloop.core.arrays import device_put
from fiveloop.core.backend import client, hlo, lazy
from fiveloop.core.backend.client import Aval, Buffer, CompileChoices, Executable
from fiveloop.core.backend.gpu import plugin_path, without_annotator
from fiveloop.core.backend.hlo_builder import ELEMENT_TYPES
from fiveloop.core.backend.native import default_backend_options

F4 = np.dtype("f4")


def put(x: Any, dtype: Any = "f4") -> Buffer:
    array = np.asarray(x, dtype)
    return client.put(array, Aval(array.shape, array.dtype))


def doubling(attrs: dict[str, str] | None = None) -> tuple[str, list[Aval]]:
    b = hlo.Builder("doubling")
    b.function(
        "main",
        [((3,), F4)],
        public=True,
        param_attrs=[attrs],
        body=lambda a: [hlo.add(b, a[0], a[0])],
    )
    return b.text(), [Aval((3,), F4)]


@pytest.fixture(scope="module")
def double() -> Executable:
    return client.compile_text(*doubling())


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_every_dtype_goes_there_and_back(dtype: np.dtype) -> None:
    for x in (np.array([[0, 1, 2], [1, 0, 1]]), np.array(1), np.zeros((0, 2))):
        array = x.astype(dtype)
        back = client.to_numpy(client.put(array, Aval(array.shape, dtype)))
        assert back.dtype == dtype
        assert back.shape == array.shape
        assert not back.flags.writeable
        np.testing.assert_array_equal(back, array)


def test_views_and_foreign_byte_order_are_put_by_value() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (x.T, x[::-1, ::2], x.astype(">f4")):
        buf = client.put(view, Aval(view.shape, F4))
        np.testing.assert_array_equal(client.to_numpy(buf), view)


def test_put_converts_to_the_dtype_and_checks_the_shape() -> None:
    buf = client.put(np.array([1, 2]), Aval((2,), np.dtype(ml_dtypes.bfloat16)))
    assert client.to_numpy(buf).dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match=r"put: expected an array of shape \(3,\), got \(2,\)"):
        client.put(np.zeros(2, F4), Aval((3,), F4))


@pytest.mark.parametrize("n", [3, 1 << 20])
def test_put_copies_unless_told_that_it_owns_the_memory(n: int) -> None:
    x = np.ones(n, np.float32)
    copied = client.put(x, Aval((n,), F4))
    x[:] = 5
    assert (client.to_numpy(copied) == 1).all()
    owned = client.put(np.ones(n, np.float32), Aval((n,), F4), owned=True)
    assert (client.to_numpy(owned) == 1).all()


def test_the_aval_is_given_back_as_it_was() -> None:
    aval = Aval((3,), F4, weak_type=True)
    buf = client.put(np.zeros(3, F4), aval)
    assert buf.aval is aval
    text, _ = doubling()
    (out,) = client.compile_text(text, [aval]).execute([buf])
    assert out.aval is aval


def test_devices_and_versions() -> None:
    assert client.platform() == "cpu"
    assert len(client.devices()) == 1
    assert client.default_client() is client.default_client()
    assert (0, 10, 2) <= client.jaxlib_version() < (0, 13)


def start_on(wanted: str) -> subprocess.CompletedProcess[str]:
    code = "from fiveloop.core.backend import client; print(client.platform())"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"FIVELOOP_PLATFORM": wanted},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_platform_is_chosen_by_the_environment() -> None:
    assert "expected cpu, cuda or auto, got 'tpu'" in start_on("tpu").stderr
    auto = start_on("auto")
    if plugin_path() is None:
        assert "install the jax-cuda13-plugin" in start_on("cuda").stderr
        assert auto.stdout.strip() == "cpu"
    else:
        assert auto.stdout.strip() == start_on("cuda").stdout.strip()


def test_an_empty_variable_is_as_none() -> None:
    assert start_on("").stdout.split() == ["cpu"]


def test_a_pass_of_gpus_that_fails_on_barriers_is_left_out_where_there_are_some() -> None:
    choices = CompileChoices(disabled_passes=("other",))
    assert without_annotator(choices, doubling()[0]) == choices
    b = hlo.Builder("waiting")
    b.function("main", [((3,), F4)], public=True, body=lambda a: hlo.optimization_barrier(b, a))
    left_out = without_annotator(choices, b.text()).disabled_passes
    assert left_out == ("other", "dynamic-slice-annotator")


def test_a_program_tells_its_memory_cost_and_text(double: Executable) -> None:
    memory = double.memory_analysis()
    assert (memory.argument, memory.output, memory.temp, memory.alias) == (12, 12, 0, 0)
    assert memory.peak >= 24
    assert double.cost_analysis()["flops"] == 3
    assert "f32[3]" in double.optimized_text()
    assert "is_scheduled=true" in double.optimized_text()


def test_a_program_without_arguments_or_results() -> None:
    b = hlo.Builder()
    b.function("main", [], public=True, body=lambda _: [])
    assert client.compile_text(b.text(), []).execute([]) == []


def test_an_argument_is_donated() -> None:
    text, avals = doubling({"tf.aliasing_output": "0 : i32"})
    executable = client.compile_text(text, avals)
    assert executable.memory_analysis().alias == 12
    x = put([1, 2, 3])
    (out,) = executable.execute([x])
    np.testing.assert_array_equal(client.to_numpy(out), [2, 4, 6])
    with pytest.raises(
        RuntimeError, match=r"shape \(3,\) and dtype float32 that was deleted or donat"
    ):
        client.to_numpy(x)
    with pytest.raises(RuntimeError, match=r"argument 0, float32\[3\], was deleted or donated"):
        executable.execute([x])


def test_wrong_arguments_are_refused(double: Executable) -> None:
    with pytest.raises(RuntimeError, match=r"f32\[3\].*f32\[4\]"):
        double.execute([put([1, 2, 3, 4])])
    with pytest.raises(RuntimeError, match="0 arguments"):
        double.execute([])


def assert_a_compile_error_shows_the_program() -> None:
    text = "module {\n  func.func public @main() -> tensor<f32> { return %x : tensor<f32> }\n}"
    with pytest.raises(RuntimeError) as caught:
        client.compile_text(text, [])
    message = str(caught.value)
    assert "undeclared SSA value name" in message
    assert "    2    func.func public @main() -> tensor<f32> { return %x" in message
    assert caught.value.__cause__ is None


def test_a_compile_error_shows_the_program() -> None:
    assert_a_compile_error_shows_the_program()


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> lazy.Modules:
    """The programs of a process that has compiled many."""
    found = lazy.Modules()
    found.programs = lazy.Modules.PROGRAMS
    monkeypatch.setattr(lazy, "MODULES", found)
    return found


def test_the_programs_of_a_busy_process_are_parsed_in_one_context(modules: lazy.Modules) -> None:
    contexts = set()
    for _ in range(3):
        (out,) = client.compile_text(*doubling()).execute([put([1, 2, 3])])
        np.testing.assert_array_equal(client.to_numpy(out), [2, 4, 6])
        contexts.add(modules.context)
    assert contexts == {modules.context} != {None}


def test_a_context_is_replaced_when_it_has_read_much(
    modules: lazy.Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy.Modules, "CHARACTERS", 0)
    first, second = (modules.compiled(doubling()[0], lambda program: program) for _ in range(2))
    assert first.context is not second.context


def test_the_first_programs_of_a_process_are_compiled_as_text() -> None:
    modules, text = lazy.Modules(), doubling()[0]
    programs = [
        modules.compiled(text, lambda program: program) for _ in range(lazy.Modules.PROGRAMS + 1)
    ]
    assert programs[:-1] == [text] * lazy.Modules.PROGRAMS
    assert "stablehlo.add" in str(programs[-1])
    assert programs[-1] is not text


def test_one_thread_at_a_time_compiles_in_the_kept_context(modules: lazy.Modules) -> None:
    text = doubling()[0]

    def meanwhile(program: object) -> tuple[object, object]:
        return program, modules.compiled(text, lambda other: other)

    module, other = modules.compiled(text, meanwhile)
    assert module is not text
    assert other is text
    assert not modules.lock.locked()


def test_a_failed_compilation_lets_go_of_the_kept_context(modules: lazy.Modules) -> None:
    def fail(program: object) -> None:
        raise RuntimeError("XLA")

    with pytest.raises(RuntimeError, match="XLA"):
        modules.compiled(doubling()[0], fail)
    assert not modules.lock.locked()


def test_a_compile_error_of_a_busy_process_says_the_same(modules: lazy.Modules) -> None:
    assert_a_compile_error_shows_the_program()


def looping(size: int) -> str:
    """A loop that updates one element a step of an array that fills most of the small-loop limit."""
    b = hlo.Builder("looping")

    def body(args: list[hlo.IRValue]) -> list[hlo.IRValue]:
        one, zero = hlo.constant(b, 1, (), "i4"), hlo.constant(b, 0, (), "i4")
        n = hlo.constant(b, size, (), "i4")

        def step(c: list[hlo.IRValue]) -> list[hlo.IRValue]:
            i, x = c
            old = hlo.dynamic_slice(b, x, [i], [1])
            return [hlo.add(b, i, one), hlo.dynamic_update_slice(b, x, hlo.exp(b, old), [i])]

        return hlo.while_(b, [zero, args[0]], lambda c: hlo.compare(b, c[0], n, "LT"), step)

    b.function("main", [((size,), F4)], public=True, body=body)
    return b.text()


def test_loops_with_small_bodies_become_one_kernel() -> None:
    avals = [Aval((), np.dtype("i4")), Aval((4096,), F4)]
    executable = client.compile_text(looping(4096), avals)
    assert "small_call" in executable.optimized_text()
    options = (("xla_cpu_small_while_loop_byte_threshold", "0"),)
    plain = client.compile_text(
        looping(4096), avals, options=CompileChoices(backend_options=options)
    )
    assert "small_call" not in plain.optimized_text()
    assert default_backend_options("cuda") == {}


def test_passes_and_optimization_are_chosen_per_program() -> None:
    text, avals = doubling()
    choices = CompileChoices(disabled_passes=("fusion",), optimization_level=0)
    (out,) = client.compile_text(text, avals, options=choices).execute([put([1, 2, 3])])
    np.testing.assert_array_equal(client.to_numpy(out), [2, 4, 6])


def test_an_option_of_another_library_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"name of an XLA option, xla_\.\.\., got 'inline-threshold'"
    ):
        CompileChoices(backend_options=(("inline-threshold", "1"),))


class Tensor:
    """A neighbour that offers memory by DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


@pytest.mark.parametrize("dtype", ["?", "i2", "u4", "f2", "f8", "c8"])
def test_dlpack_shares_memory_both_ways(dtype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    buf = client.from_dlpack(Tensor(array), Aval)
    assert buf.aval == Aval((2, 3), np.dtype(dtype))
    np.testing.assert_array_equal(client.to_numpy(buf), array)

    class Back:
        def __dlpack__(self, **_: Any) -> Any:
            return client.to_dlpack(buf)

        def __dlpack_device__(self) -> tuple[int, int]:
            return client.dlpack_device(buf)

    np.testing.assert_array_equal(np.from_dlpack(Back()), array)


def test_dlpack_of_a_transposed_array_copies() -> None:
    array = np.arange(6.0).reshape(2, 3)
    buf = client.from_dlpack(Tensor(array.T), Aval)
    np.testing.assert_array_equal(client.to_numpy(buf), array.T)
    (out,) = client.compile_text(*_doubling_matrix()).execute([buf])
    np.testing.assert_array_equal(client.to_numpy(out), 2 * array.T)


def _doubling_matrix() -> tuple[str, list[Aval]]:
    b = hlo.Builder()
    spec: list[hlo.TypeSpec] = [((3, 2), "f8")]
    b.function("main", spec, public=True, body=lambda a: [hlo.add(b, a[0], a[0])])
    return b.text(), [Aval((3, 2), np.dtype("f8"))]


def test_numpy_reads_bfloat16_beside_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(3).astype(ml_dtypes.bfloat16)
    # jax gives the class of buffers this method.
    give = lambda *_, **__: array
    monkeypatch.setattr(client.BUFFER_CLASS, "__array__", give, raising=False)
    assert np.asarray(device_put(array)).dtype == ml_dtypes.bfloat16


def test_bfloat16_crosses_by_dlpack() -> None:
    array = np.arange(3).astype(ml_dtypes.bfloat16)
    buf = client.put(array, Aval((3,), array.dtype))

    class Exporter:
        def __dlpack__(self) -> Any:
            return client.to_dlpack(buf)

    again = client.from_dlpack(Exporter(), Aval)
    assert again.aval.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(client.to_numpy(again), array)


def test_memory_of_host_copies_is_used_again_once_nobody_holds_it() -> None:
    x = np.arange(7, dtype=np.int16)[::-1]
    held = [client.host_copy(x) for _ in range(3)]
    places = [out.ctypes.data for out in held]
    assert len({*places}) == 3
    assert all(place % 64 == 0 for place in places)
    for out in held:
        np.testing.assert_array_equal(out, x, strict=True)
    view = held[1][2:]
    del held[:], out
    again = [client.host_copy(x) for _ in range(4)]
    found = [out.ctypes.data for out in again]
    assert {places[0], places[2]} < {*found}
    assert places[1] not in found  # a view holds it
    np.testing.assert_array_equal(view, x[2:])


def test_memory_of_host_copies_is_bounded() -> None:
    tracemalloc.start()
    try:
        for size in range(3_000):
            client.host_copy(np.zeros(12_000 + size, np.uint8))
        assert tracemalloc.get_traced_memory()[0] < 20 << 20  # all together are 40 MB
    finally:
        tracemalloc.stop()
