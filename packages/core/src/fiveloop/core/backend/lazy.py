"""Late imports: modules that are slow to import and that few programs need."""

import threading
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any


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


class Modules:
    """Parses programs in one context: XLA makes one for each text, which takes a millisecond.

    A context keeps the types and names of all its programs, so it is replaced after `CHARACTERS` of text.
    Two threads that compile in one context end the process, so the lock is held until a program is compiled.
    """

    CHARACTERS = 2**18
    PROGRAMS = 16
    """After so many programs, one millisecond saved for each has paid for the import of the bindings."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.context: Any = None
        self._parsed = 0
        self.programs = 0

    def compiled(self, text: str, load: Callable[[Any], Any]) -> Any:
        """What `load` makes of a program: of text, if it is an early one or another thread compiles a module."""
        self.programs += 1
        if self.programs <= self.PROGRAMS or not self.lock.acquire(blocking=False):
            return load(text)
        try:
            return load(self._module(text))
        finally:
            self.lock.release()

    def _module(self, text: str) -> Any:
        """A program as a module, unless the text is wrong, of which XLA tells."""
        if self.context is None or self._parsed > self.CHARACTERS:
            self.context, self._parsed = _new_context(), 0
        self._parsed += len(text)
        try:
            return _parsed_in(self.context, text)
        except mlir().MLIRError:
            return text


MODULES = Modules()


def module(text: str) -> Any:
    """A program as a module, in a context of its own."""
    return _parsed_in(_new_context(), text)


def _parsed_in(context: Any, text: str) -> Any:
    with context:
        return mlir().Module.parse(text)


def _new_context() -> Any:
    registry = mlir().DialectRegistry()
    mlir_dialects().register_dialects(registry)
    context = mlir().Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo().register_dialect(context)
    chlo().register_dialect(context)
    return context


@cache
def pyplot() -> ModuleType:
    """Matplotlib's plotting functions, set to draw to files."""
    import_module("matplotlib").use("Agg")
    return import_module("matplotlib.pyplot")
