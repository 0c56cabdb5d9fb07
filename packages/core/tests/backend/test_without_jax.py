"""No call of the backend makes jaxlib import jax, as several of its functions would."""

import subprocess
import sys
from pathlib import Path


def test_the_backend_never_imports_jax() -> None:
    script = Path(__file__).with_name("no_jax_program.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "attempts: [] loaded: []"


def test_start_up_prints_nothing() -> None:
    code = "from fiveloop.core.backend import client; client.default_client()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("", "")
