"""Late imports: modules that are slow to import and that few programs need."""

from functools import cache, partial
from importlib import import_module
from types import ModuleType


@cache
def optional_module(name: str) -> ModuleType | None:
    """A module of a library that need not be there, by its name; None if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


hashlib = cache(partial(import_module, "hashlib"))
"""The digests of the standard library, which load OpenSSL."""
difflib = cache(partial(import_module, "difflib"))
"""The standard library's search for similar names, for errors."""
html = cache(partial(import_module, "html"))
"""The standard library's escapes, which load the names of all entities."""
json = cache(partial(import_module, "json"))
"""The standard library's JSON."""
logging = cache(partial(import_module, "logging"))
"""The standard library's logs."""
mlir = cache(partial(import_module, "jaxlib.mlir.ir"))
"""The MLIR bindings, which host callbacks and artifacts need."""
mlir_dialects = cache(partial(import_module, "jaxlib.mlir._mlir_libs._jax_mlir_ext"))
"""The module that registers MLIR's dialects with a context."""
stablehlo = cache(partial(import_module, "jaxlib.mlir._mlir_libs._stablehlo"))
"""The module that registers the dialect of the programs."""
chlo = cache(partial(import_module, "jaxlib.mlir._mlir_libs._chlo"))
"""The module that registers the dialect of operations that XLA expands."""


@cache
def pyplot() -> ModuleType:
    """Matplotlib's plotting functions, set to draw to files."""
    import_module("matplotlib").use("Agg")
    return import_module("matplotlib.pyplot")
