"""How fiveloop is tested, checked, built, measured and shown; `nox -l` lists the sessions."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, SubprocessError, run

import nox

ROOT = Path(__file__).parent
DIST = ROOT / "dist"

# Each distribution with the portions of the namespace that it installs.
PORTIONS = {
    "core": ("core",),
    "state": ("state",),
    "loops": ("loops",),
    "remat": ("remat",),
    "numpy": ("numpy", "random", "nn"),
}
PACKAGES = tuple(PORTIONS)
DISTRIBUTIONS = (*PACKAGES, "fiveloop")
MODULES = tuple(f"fiveloop.{portion}" for portions in PORTIONS.values() for portion in portions)

OLDEST_JAXLIB = "0.10.2"
NEWEST_JAXLIB = ">=0.12,<0.13"
NEWEST_PYTHONS = ("3.14", "3.13", "3.12")  # the newest jaxlib needs 3.12

TEST_TOOLS = ("pytest>=8", "pytest-xdist", "hypothesis>=6.100")
LIBRARIES = ("numpy", "tqdm")

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
nox.options.sessions = ["tests", "tests-newest", "types", "lint", "build", "docs"]


def use_pip_settings_for_uv() -> None:
    """Let uv find packages where pip was told to, unless uv was told otherwise."""
    pairs = {
        "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
        "PIP_EXTRA_INDEX_URL": "UV_INDEX",
        "PIP_FIND_LINKS": "UV_FIND_LINKS",
    }
    for pip_name, uv_name in pairs.items():
        if pip_name in os.environ:
            os.environ.setdefault(uv_name, os.environ[pip_name])


use_pip_settings_for_uv()


# --- Pythons ------------------------------------------------------------------------------


def candidate_pythons(version: str) -> Iterator[Path]:
    """Paths that may be a Python of this version: the running one, pyenv's, and those on PATH."""
    yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    for folder in os.get_exec_path():
        for name in (f"python{version}", "python3"):
            if found := shutil.which(name, path=folder):
                yield Path(found)


def is_python(path: Path, version: str) -> bool:
    """Whether the file runs and is this Python, with the global lock (a shim may do neither)."""
    probe = (
        "import sys, sysconfig;"
        "print('%d.%d' % sys.version_info[:2], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    )
    try:
        done = run([path, "-c", probe], stdout=PIPE, stderr=DEVNULL, text=True, timeout=20)
    except (OSError, SubprocessError):
        return False
    return done.returncode == 0 and done.stdout.split() == [version, "0"]


@cache
def newest_python() -> str | None:
    """The newest Python on this machine that the newest jaxlib supports."""
    for version in NEWEST_PYTHONS:
        for path in candidate_pythons(version):
            if is_python(path, version):
                return str(path)
    return None


# --- environments -------------------------------------------------------------------------


def source_env() -> dict[str, str]:
    """Environment variables with which the packages run from their sources."""
    sources = [str(ROOT / "packages" / name / "src") for name in PACKAGES]
    return {"PYTHONPATH": os.pathsep.join(sources), "TF_CPP_MIN_LOG_LEVEL": "3"}


def installed_env() -> dict[str, str | None]:
    """Environment variables with which only installed packages are seen."""
    return {"PYTHONPATH": None, "TF_CPP_MIN_LOG_LEVEL": "3"}


def run_pytest(session: nox.Session, jaxlib: str) -> None:
    """Run the whole suite on the sources, or what the arguments select of it."""
    session.install(jaxlib, *LIBRARIES, *TEST_TOOLS)
    # Two processes pay off for the whole suite only: a few tests start faster alone.
    args = session.posargs or ["-n", "2", "--dist", "worksteal"]
    session.run("python", "-m", "pytest", *args, env=source_env())


def build_wheels(session: nox.Session, *targets: str) -> None:
    """Build every distribution into `dist/`, which holds nothing else afterwards."""
    session.install("hatchling>=1.26")
    shutil.rmtree(DIST, ignore_errors=True)
    for name in DISTRIBUTIONS:
        with session.chdir(ROOT / "packages" / name):
            flags = [flag for target in targets for flag in ("-t", target)]
            session.run("python", "-m", "hatchling", "build", "-d", str(DIST), *flags, silent=True)


def wheel(name: str) -> Path:
    """The built wheel of one distribution."""
    project = "fiveloop" if name == "fiveloop" else f"fiveloop_{name}"
    (path,) = DIST.glob(f"{project}-*.whl")
    return path


def with_siblings(name: str) -> list[str]:
    """A package and the packages it depends on, as its pyproject.toml declares them."""
    text = (ROOT / "packages" / name / "pyproject.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)["project"]["dependencies"]
    siblings = [d.split("==")[0].removeprefix("fiveloop-") for d in declared if "fiveloop" in d]
    return [name, *siblings]


# --- the main job -------------------------------------------------------------------------


@nox.session
def train(session: nox.Session) -> None:
    """Train the character transformer on real text with the built packages."""
    build_wheels(session, "wheel")
    wheels = [str(wheel(name)) for name in PACKAGES]
    session.install("--force-reinstall", "--no-deps", *wheels)
    session.install(*wheels, "matplotlib", "tqdm")
    script = ROOT / "examples" / "char_transformer" / "train.py"
    session.run("python", str(script), *session.posargs, env=installed_env())


# --- tests --------------------------------------------------------------------------------


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests with the oldest jaxlib allowed; arguments go to pytest."""
    run_pytest(session, f"jaxlib=={OLDEST_JAXLIB}")


@nox.session(name="tests-newest", python=newest_python() or False)
def tests_newest(session: nox.Session) -> None:
    """Run the tests with the newest jaxlib allowed, on the newest Python found."""
    if newest_python() is None:
        session.skip(f"no Python {', '.join(NEWEST_PYTHONS)} was found on this machine")
    run_pytest(session, f"jaxlib{NEWEST_JAXLIB}")
