"""The one place that imports late: modules that cost time and that few programs need."""

from functools import cache
from types import ModuleType

from .native import xla


@cache
def csgraph() -> ModuleType:
    """SciPy's graph algorithms; 0.27 s to import."""
    import scipy.sparse.csgraph

    return scipy.sparse.csgraph


@cache
def scipy_sparse() -> ModuleType:
    """SciPy's sparse matrices, which `csgraph` takes."""
    import scipy.sparse

    return scipy.sparse


@cache
def scipy_special() -> ModuleType:
    """SciPy's special functions, for checks in NumPy."""
    import scipy.special

    return scipy.special


@cache
def mlir() -> ModuleType:
    """The MLIR bindings: needed for host callbacks and artifacts only."""
    from jaxlib.mlir import ir

    return ir


@cache
def mlir_dialects() -> ModuleType:
    """The module that registers MLIR's dialects with a context."""
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext

    return _jax_mlir_ext


@cache
def lapack() -> ModuleType:
    """LAPACK, with its targets registered for `custom_call` on the CPU; it imports SciPy."""
    from jaxlib.cpu import _lapack

    for name, capsule in _lapack.registrations().items():
        xla.register_custom_call_target(name, capsule, "cpu", int(name.endswith("_ffi")))
    _lapack.initialize()
    return _lapack


@cache
def matplotlib_pyplot() -> ModuleType:
    """Matplotlib's plotting functions, drawing to files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot
