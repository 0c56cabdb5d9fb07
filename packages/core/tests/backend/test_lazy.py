"""Late imports: nothing early, and each module under its name."""

import subprocess
import sys

from fiveloop.core.backend import lazy


def test_the_backend_imports_nothing_slow() -> None:
    code = (
        "import sys; from fiveloop.core.backend import call, client, hlo, lazy; "
        "print([m for m in ('scipy', 'jaxlib.mlir', 'matplotlib', 'jax') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.strip() == "[]"


def test_modules_come_under_their_names() -> None:
    named = {"hashlib": lazy.hashlib, "difflib": lazy.difflib, "logging": lazy.logging}
    for name, module in named.items():
        assert module().__name__ == name
    assert lazy.mlir().__name__ == "jaxlib.mlir.ir"
    assert hasattr(lazy.mlir_dialects(), "register_dialects")
