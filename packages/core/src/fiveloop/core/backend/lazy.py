"""Late imports: modules that are slow to import and that few programs need."""

from functools import cache
from importlib import import_module
from types import ModuleType

from .native import xla


@cache
def optional_module(name: str) -> ModuleType | None:
    """A module of a library that need not be there, by its name; None if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


@cache
def hashlib() -> ModuleType:
    """The digests of the standard library, which load OpenSSL."""
    return import_module("hashlib")


@cache
def difflib() -> ModuleType:
    """The standard library's search for similar names, for errors."""
    return import_module("difflib")


@cache
def logging() -> ModuleType:
    """The standard library's logs."""
    return import_module("logging")


@cache
def scipy_special() -> ModuleType:
    """SciPy's special functions."""
    return import_module("scipy.special")


@cache
def mlir() -> ModuleType:
    """The MLIR bindings, which host callbacks and artifacts need."""
    return import_module("jaxlib.mlir.ir")


@cache
def mlir_dialects() -> ModuleType:
    """The module that registers MLIR's dialects with a context."""
    return import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")


@cache
def stablehlo() -> ModuleType:
    """The module that registers the dialect of the programs."""
    return import_module("jaxlib.mlir._mlir_libs._stablehlo")


@cache
def chlo() -> ModuleType:
    """The module that registers the dialect of operations that XLA expands."""
    return import_module("jaxlib.mlir._mlir_libs._chlo")


@cache
def lapack() -> ModuleType:
    """LAPACK, with its targets registered for `custom_call` on the CPU; it imports SciPy."""
    module = import_module("jaxlib.cpu._lapack")
    for name, capsule in module.registrations().items():
        xla.register_custom_call_target(name, capsule, "cpu", int(name.endswith("_ffi")))
    module.initialize()
    return module


@cache
def pyplot() -> ModuleType:
    """Matplotlib's plotting functions, set to draw to files."""
    import_module("matplotlib").use("Agg")
    return import_module("matplotlib.pyplot")
