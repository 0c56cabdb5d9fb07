"""Load the CUDA plugin of the same release as jaxlib, without importing jax.

Only `FIVELOOP_PLATFORM=cuda` (or `auto`, where the plugin is installed) leads here. The plugin's own start-up cannot
be imported without jax, so it is done here.
"""

import ctypes
import importlib.util
from importlib import import_module
from pathlib import Path
from typing import Any

from ..dataclass import replace
from .native import CompileChoices, xla

PLUGIN_PACKAGES = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
_KERNEL_PACKAGES = ("jax_cuda13_plugin", "jax_cuda12_plugin")
_KERNEL_MODULES = ("_solver", "_linalg", "_hybrid", "_prng", "_sparse", "_rnn")
# In the order in which they need one another.
_LIBRARIES = (
    "cudart nvrtc cublasLt cublas nccl cupti nvJitLink cusparse cusolver cufft nvshmem_host cudnn"
).split()


def plugin_path() -> Path | None:
    """The plugin's shared library, or None if none is installed."""
    for package in PLUGIN_PACKAGES:
        for folder in _folders(package):
            path = folder / "xla_cuda_plugin.so"
            if path.exists():
                return path
    return None


def make_cuda_client() -> Any:
    """A PJRT client of the GPUs of this machine."""
    path = plugin_path()
    if path is None:
        raise RuntimeError(
            "FIVELOOP_PLATFORM: expected an installed CUDA plugin, found none; install the "
            "jax-cuda13-plugin and jax-cuda13-pjrt of jaxlib's release, or unset it to run on the CPU"
        )
    if not hasattr(xla.ArrayImpl, "_to_np_array_did_copy"):
        raise RuntimeError("FIVELOOP_PLATFORM: expected jaxlib 0.11 or later for cuda")
    if xla.pjrt_plugin_loaded("cuda"):
        c_api = xla.get_pjrt_plugin("cuda")
    else:
        _load_libraries()
        c_api = xla.load_pjrt_plugin("cuda", str(path))
    if not xla.pjrt_plugin_initialized("cuda"):
        xla.initialize_pjrt_plugin("cuda")
    _register_kernels(c_api)
    return xla.get_c_api_client("cuda", _options())


def _options() -> dict[str, Any]:
    """What jaxlib reads from the environment: XLA_CLIENT_MEM_FRACTION, XLA_PYTHON_CLIENT_PREALLOCATE and the like."""
    given: dict[str, Any] = import_module("jaxlib.xla_client").generate_pjrt_gpu_plugin_options()
    return given


def without_annotator(choices: CompileChoices, text: str) -> CompileChoices:
    """The options with which XLA compiles a program for a GPU.

    Its pass that looks for slices at a loop's counter stops with an error where that has come through a barrier.
    """
    if "stablehlo.optimization_barrier" not in text:
        return choices
    return replace(choices, disabled_passes=(*choices.disabled_passes, "dynamic-slice-annotator"))


def _folders(package: str) -> list[Path]:
    """Where a package lies, found without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return []
    places = spec.submodule_search_locations if spec is not None else None
    return [Path(place) for place in places or ()]


def _load_libraries() -> None:
    """Load NVIDIA's libraries from their wheels, so that the plugin finds them by name."""
    folders = [sorted(folder.glob("**/lib/lib*.so*")) for folder in _folders("nvidia")]
    found = [library for libraries in folders for library in libraries]
    for name in _LIBRARIES:
        for library in found:
            if library.name.startswith(f"lib{name}.so"):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _register_kernels(c_api: Any) -> None:
    """Tell XLA the custom calls of the plugin: linear algebra, sparse, random bits."""
    for package in _KERNEL_PACKAGES:
        if not _folders(package):
            continue
        extension = import_module(f"{package}.cuda_plugin_extension")
        for name, kind in extension.ffi_types().items():
            extension.register_custom_type(c_api, name, kind)
        handlers = dict(extension.ffi_handlers())
        for module in _KERNEL_MODULES:
            handlers.update(import_module(f"{package}.{module}").registrations())
        for name, capsule in handlers.items():
            extension.register_custom_call_target(c_api, name, capsule, "CUDA", 1)
        return
