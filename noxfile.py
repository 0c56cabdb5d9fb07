"""How fiveloop is tested, checked, built, measured and shown; `nox -l` lists the sessions."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, SubprocessError, run
from zipfile import ZipFile

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
    "fiveloop": ("api",),
    "testing": ("testing",),
}
PACKAGES = tuple(PORTIONS)
MODULES = tuple(f"fiveloop.{portion}" for portions in PORTIONS.values() for portion in portions)

OLDEST_JAXLIB = "0.10.2"
NEWEST_JAXLIB = ">=0.12,<0.13"
NEWEST_PYTHONS = ("3.14", "3.13", "3.12")  # the newest jaxlib needs 3.12

# What another jaxlib may compile to something else.
NEWEST_TESTS = (
    *("-m", "not oracle"),
    *(f"packages/core/tests/{name}" for name in ("backend", "lower", "primitives")),
    "packages/core/tests/laws/test_primitives.py",
    *(f"packages/state/tests/test_{name}.py" for name in ("in_place", "eager_in_place", "monoids")),
    *(f"packages/loops/tests/{name}" for name in ("for_loop", "analysis", "plan/test_ranges.py")),
    *(
        f"tests/integration/test_{name}.py"
        for name in ("six_loops", "donation", "random_gate", "batched_gate")
    ),
    "tests/integration/test_two_deep.py::test_every_kind_of_every_other_around_loops",
)

# Small programs take longer to compile than to run, and so does XLA with its best machine code: these take a third
# of the time. On the newest jaxlib programs are compiled as users have them; XLA_FLAGS="" does so on the oldest.
QUICK_TO_COMPILE = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    )
)

PARALLEL = ("-n", str(min(os.cpu_count() or 1, 8)), "--dist", "worksteal")
TEST_TOOLS = ("pytest>=8", "pytest-xdist", "hypothesis>=6.100")
SITE_TOOLS = ("sphinx>=8", "myst-parser>=4", "furo")
LIBRARIES = ("numpy", "tqdm", "matplotlib")  # what the packages, their extras and the examples use

# Run where only some packages are installed: the first argument names the portions that are there.
PORTIONS_CHECK = """
import importlib, sys
present, absent = (argument.split(",") if argument else [] for argument in sys.argv[1:])
for name in present:
    importlib.import_module(name)
for name in absent:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{name} can be imported, but no dependency declares it")
if "jax" in sys.modules:
    sys.exit("a package of fiveloop imported jax")
"""

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
# Each test runs once; `tests-newest-all` and `build-all` run whole suites again.
nox.options.sessions = ["lint", "types", "tests", "tests-newest", "build", "docs"]


def use_pip_settings_for_uv() -> None:
    """Let uv find packages where pip's environment variables say, unless it was told otherwise."""
    env = os.environ
    if "PIP_INDEX_URL" in env:
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    if "PIP_EXTRA_INDEX_URL" in env:
        env.setdefault("UV_INDEX", env["PIP_EXTRA_INDEX_URL"])
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # as pip chooses
    # A place that is missing is a warning for pip, but an error for uv.
    places = env.get("PIP_FIND_LINKS", "").split()
    if found := [place for place in places if "://" in place or Path(place).is_dir()]:
        env.setdefault("UV_FIND_LINKS", ",".join(found))


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


def source_env() -> dict[str, str | None]:
    """Environment variables with which the packages run from their sources."""
    sources = [str(ROOT / "packages" / name / "src") for name in PACKAGES]
    # pytest rewrites each test file; where it may keep none, that takes longer than a few tests.
    bytecode = {"PYTHONDONTWRITEBYTECODE": None, "PYTHONPYCACHEPREFIX": str(ROOT / ".nox" / "pyc")}
    return {"PYTHONPATH": os.pathsep.join(sources), "TF_CPP_MIN_LOG_LEVEL": "3", **bytecode}


def installed_env() -> dict[str, str | None]:
    """Environment variables with which only installed packages are seen."""
    return {"PYTHONPATH": None, "TF_CPP_MIN_LOG_LEVEL": "3"}


def run_pytest(session: nox.Session, jaxlib: str, *selected: str, **env: str) -> None:
    """Run what is selected of the suite on the sources, or what the arguments select instead."""
    session.install(jaxlib, *LIBRARIES, *TEST_TOOLS)
    # Two processes pay off for the whole suite only: a few tests start faster alone.
    args = session.posargs or (*PARALLEL, *selected)
    session.run("python", "-m", "pytest", *args, env={**source_env(), **env})


def run_pytest_newest(session: nox.Session, *selected: str) -> None:
    """Run what is selected of the suite on the newest jaxlib, or say that there is no Python for it."""
    if newest_python() is None:
        session.skip(f"no Python {', '.join(NEWEST_PYTHONS)} was found on this machine")
    run_pytest(session, f"jaxlib{NEWEST_JAXLIB}", *selected)


def build_wheels(session: nox.Session, *targets: str) -> None:
    """Build every distribution into `dist/`, which holds nothing else afterwards."""
    session.install("hatchling>=1.26")
    shutil.rmtree(DIST, ignore_errors=True)
    for name in PACKAGES:
        with session.chdir(ROOT / "packages" / name):
            flags = [flag for target in targets for flag in ("-t", target)]
            command = ["python", "-m", "hatchling", "build", "-d", str(DIST), *flags]
            session.run(*command, silent=True, log=False)


def wheel(name: str) -> Path:
    """The built wheel of one distribution."""
    (path,) = DIST.glob(f"{distribution(name).replace('-', '_')}-*.whl")
    return path


def distribution(name: str) -> str:
    """The name under which a package is installed."""
    return name if name == "fiveloop" else f"fiveloop-{name}"


def with_siblings(name: str) -> list[str]:
    """A package and the packages it depends on, as its pyproject.toml declares them."""
    text = (ROOT / "packages" / name / "pyproject.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)["project"]["dependencies"]
    siblings = [d.split("==")[0].removeprefix("fiveloop-") for d in declared if "fiveloop" in d]
    return [name, *siblings]


def with_tools(name: str) -> list[str]:
    """A package, the packages it depends on, and `testing`; its own tests need them all."""
    if name == "testing":
        return [name, *(other for other in PACKAGES if other not in (name, "fiveloop"))]
    return [*with_siblings(name), "testing"]


# --- the main job -------------------------------------------------------------------------


@nox.session
def train(session: nox.Session) -> None:
    """Train the character transformer on real text with the built packages."""
    run_example(session, "char_transformer")


@nox.session
def fit(session: nox.Session) -> None:
    """Fit a neural ODE to a recorded neuron with the built packages."""
    run_example(session, "neural_ode")


def run_example(session: nox.Session, name: str) -> None:
    """Install the built packages, and run an example on them."""
    build_wheels(session, "wheel")
    wheels = [str(wheel(package)) for package in PACKAGES if package != "testing"]
    session.install("--force-reinstall", "--no-deps", *wheels)
    session.install(*wheels, *LIBRARIES)
    env = {**installed_env(), "PYTHONPATH": str(ROOT / "examples")}
    session.run("python", "-m", name, *session.posargs, env=env)


# --- tests --------------------------------------------------------------------------------


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests on the sources with the oldest jaxlib allowed; arguments go to pytest."""
    # `docs` runs the documents' code.
    quick = os.environ.get("XLA_FLAGS", QUICK_TO_COMPILE)
    jaxlib = f"jaxlib=={OLDEST_JAXLIB}"
    run_pytest(session, jaxlib, "--ignore=tests/test_docs_code.py", XLA_FLAGS=quick)


@nox.session(name="tests-newest", python=newest_python() or False)
def tests_newest(session: nox.Session) -> None:
    """Run what another jaxlib may compile to something else, on the newest jaxlib and Python."""
    run_pytest_newest(session, *NEWEST_TESTS)


@nox.session(name="tests-newest-all", python=newest_python() or False)
def tests_newest_all(session: nox.Session) -> None:
    """Run every test that compiles with the newest jaxlib allowed, on the newest Python found."""
    run_pytest_newest(session, "-m", "not oracle")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run 100,000 random programs by the oracle, compile 2,000, and 300 loops; arguments go to `tests/fuzz.py`."""
    session.install(f"jaxlib=={OLDEST_JAXLIB}", *LIBRARIES, *TEST_TOOLS)
    counts = ["--oracle", "100000", "--compiled", "2000", "--gate", "300"]
    counts += ["--processes", str(os.cpu_count() or 1)]
    session.run("python", "tests/fuzz.py", *(session.posargs or counts), env=source_env())


@nox.session(name="fuzz-properties")
def fuzz_properties(session: nox.Session) -> None:
    """Draw fresh examples for every property until the seconds given (600) are spent."""
    session.install(f"jaxlib=={OLDEST_JAXLIB}", *LIBRARIES, *TEST_TOOLS)
    seconds, *selected = session.posargs or ["600"]
    start, rounds = time.monotonic(), 0
    seed = time.time_ns() % 1_000_000_000
    while rounds == 0 or time.monotonic() - start < float(seconds):
        args = ["-m", "hypothesis", "--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}"]
        session.run("python", "-m", "pytest", "-q", *args, *selected, env=source_env())
        seed, rounds = seed + 1, rounds + 1
    session.log(f"{rounds} rounds without a failure; the last seed was {seed - 1}")


@nox.session
def soak(session: nox.Session) -> None:
    """Run a million calls, 3,000 programs and eager loops: memory must stay flat; arguments go to `tests/soak.py`."""
    session.install(f"jaxlib=={OLDEST_JAXLIB}", *LIBRARIES)
    session.run("python", "tests/soak.py", *session.posargs, env=source_env())


@nox.session
def counts(session: nox.Session) -> None:
    """Count the steps that run in derivatives of loops, beside the best schedule; arguments go to `tests/counts.py`."""
    session.install(f"jaxlib=={OLDEST_JAXLIB}", *LIBRARIES)
    session.run("python", "tests/counts.py", *session.posargs, env=source_env())


# --- checks -------------------------------------------------------------------------------


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the packages, their tests and everything else, strictly."""
    peers = [f"jaxlib=={OLDEST_JAXLIB}", f"jax=={OLDEST_JAXLIB}"]
    session.install(*peers, *LIBRARIES, *TEST_TOOLS, "mypy", "nox")
    # All at once: what one run has found is read again by another in several seconds.
    folders = [f"packages/{name}/{part}" for name in PACKAGES for part in ("src/fiveloop", "tests")]
    folders += ["tests", "examples", "benchmarks", "docs", "noxfile.py", "conftest.py"]
    session.run("mypy", "--strict", *[f for f in folders if holds_python(ROOT / f)])


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting; `nox -s lint -- fix` repairs what can be repaired."""
    session.install("ruff")
    fix = session.posargs == ["fix"]
    session.run("ruff", "check", *(["--fix"] if fix else []), ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")


def holds_python(path: Path) -> bool:
    """Whether the path is a Python file or a folder with one in it."""
    return path.is_file() or any(path.rglob("*.py"))


# --- distributions ------------------------------------------------------------------------


@nox.session
def build(session: nox.Session) -> None:
    """Build wheels and sdists into `dist/`; try each wheel with its siblings, outside the tree."""
    build_and_try(session, try_readme)


@nox.session(name="build-all")
def build_all(session: nox.Session) -> None:
    """The same, and run each package's whole suite from its wheel; arguments choose packages."""
    build_and_try(session, run_suite)


Trial = Callable[[nox.Session, str, str, Path], None]


def build_and_try(session: nox.Session, trial: Trial) -> None:
    """Build all, and try each package in an environment of its own."""
    build_wheels(session, "sdist", "wheel")
    for name in PACKAGES:
        check_sdist(session, name)
    with tempfile.TemporaryDirectory(prefix="fiveloop-") as scratch:
        for name in session.posargs or PACKAGES:
            python = install_alone(session, name, Path(scratch) / name)
            trial(session, name, python, Path(scratch) / name)
        if not session.posargs:
            install_from_tree(session, Path(scratch) / "tree")
            install_everything(session, Path(scratch) / "all")


def check_sdist(session: nox.Session, name: str) -> None:
    """Check that the wheel built from the sdist holds the same files as the one from the tree."""
    (archive,) = DIST.glob(f"{wheel(name).name.split('-')[0]}-*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="fiveloop-") as scratch:
        shutil.unpack_archive(archive, scratch, filter="data")
        with session.chdir(Path(scratch) / archive.name.removesuffix(".tar.gz")):
            command = ["python", "-m", "hatchling", "build", "-t", "wheel", "-d", scratch]
            session.run(*command, silent=True, log=False)
        (again,) = Path(scratch).glob("*.whl")
        if ZipFile(again).namelist() != ZipFile(wheel(name)).namelist():
            session.error(f"{archive.name} builds another wheel than the tree does")


def install_alone(session: nox.Session, name: str, folder: Path) -> str:
    """Install a package's wheel with its siblings in an environment of its own; give its Python."""
    siblings = with_tools(name)
    extra = f"{distribution(name)}[testing] @ {wheel(name).as_uri()}"
    python = fresh_environment(session, folder)
    wheels = [extra, *(str(wheel(sibling)) for sibling in siblings[1:])]
    install_into(session, python, *wheels, f"jaxlib=={OLDEST_JAXLIB}", "pytest-xdist")
    check_portions(session, python, siblings)
    return python


def try_readme(session: nox.Session, name: str, python: str, folder: Path) -> None:
    """Run the code of the README that a package is published with."""
    readme = ROOT / "packages" / name / "README.md"
    shutil.copy(ROOT / "tests" / "docs_code.py", folder)
    with session.chdir(folder):
        command = [python, "docs_code.py", str(readme)]
        session.run(*command, env=installed_env(), external=True)


def run_suite(session: nox.Session, name: str, python: str, folder: Path) -> None:
    """Run a package's tests on what is installed, outside the tree."""
    suite = ROOT / "packages" / name / "tests"
    if not suite.is_dir():
        session.error(f"packages/{name} has no tests")
    shutil.copytree(suite, folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    with session.chdir(folder):
        command = [python, "-m", "pytest", "tests", *PARALLEL]
        session.run(*command, env=installed_env(), external=True)


def check_portions(session: nox.Session, python: str, installed: list[str]) -> None:
    """Check that the installed portions import, without `jax`, and that no other one does."""
    present = [f"fiveloop.{portion}" for name in installed for portion in PORTIONS[name]]
    absent = [module for module in MODULES if module not in present]
    session.log(f"checking that {', '.join(present)} can be imported, and nothing else of fiveloop")
    command = [python, "-c", PORTIONS_CHECK, ",".join(present), ",".join(absent)]
    session.run(*command, env=installed_env(), external=True, silent=True, log=False)


def install_from_tree(session: nox.Session, folder: Path) -> None:
    """Install one package from its folder, with its siblings from `dist/`, as the guide says."""
    python = fresh_environment(session, folder)
    install_into(session, python, "--find-links", str(DIST), str(ROOT / "packages" / "state"))
    check_portions(session, python, ["core", "state"])


def install_everything(session: nox.Session, folder: Path) -> None:
    """Install the distribution `fiveloop` alone: it brings all the others."""
    python = fresh_environment(session, folder)
    install_into(session, python, "--find-links", str(DIST), str(wheel("fiveloop")))
    check_portions(session, python, [name for name in PACKAGES if name != "testing"])


def fresh_environment(session: nox.Session, folder: Path) -> str:
    """Make a virtual environment without any package in it; give its Python."""
    if session.venv_backend == "uv":
        python = str(Path(session.bin) / "python")
        session.run("uv", "venv", "-q", "-p", python, str(folder / "env"))
    else:
        session.run("python", "-m", "venv", str(folder / "env"))
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    return str(folder / "env" / scripts / "python")


def install_into(session: nox.Session, python: str, *requirements: str) -> None:
    """Install into the environment of that Python."""
    if session.venv_backend == "uv":
        # A wheel built again keeps its name; uv would take the one it remembers from `dist/`.
        fresh = [f"--refresh-package={distribution(name)}" for name in PACKAGES]
        session.run("uv", "pip", "install", "-q", "-p", python, *fresh, *requirements)
    else:
        session.run(python, "-m", "pip", "install", "-q", *requirements, external=True)


# --- documentation and measurements -------------------------------------------------------


@nox.session
def docs(session: nox.Session) -> None:
    """Run the code of the README and the guides, then build the site into `site/`."""
    session.install(f"jaxlib=={OLDEST_JAXLIB}", *LIBRARIES, *TEST_TOOLS, *SITE_TOOLS)
    # `build` runs the READMEs of the packages, from their wheels.
    selected = ("tests/test_docs_code.py", "-k", "not packages")
    session.run("python", "-m", "pytest", *selected, env=source_env())
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    builder = ["python", "-m", "sphinx", "-W", "--keep-going", "-q", "-d", session.create_tmp()]
    session.run(*builder, *session.posargs, "docs", "site", env=source_env())
    session.log("the site is in site/index.html")


WITH_TORCH = (
    "loops",
    "--torch",
)  # benchmarks that have torch as a peer, and the option for all others
WITH_EQUINOX = ("while",)
TORCH = "torch==2.13.0"  # one version, of which a CPU build that pip is told of is taken
EQUINOX = "equinox==0.13.8"
ANY_STATUS = range(256)


def run_benchmark(session: nox.Session, version: str) -> None:
    """Install the peers beside the sources and run the benchmark that the arguments name.

    Where torch cannot be had, the run goes on: the row of that contender says that it was not there.
    """
    session.install(f"jax{version}", f"jaxlib{version}", *LIBRARIES)
    if set(WITH_TORCH) & set(session.posargs):
        session.install(TORCH, success_codes=ANY_STATUS, silent=True)
    if set(WITH_EQUINOX) & set(session.posargs):
        session.install(EQUINOX, f"jax{version}", f"jaxlib{version}")
    given = [argument for argument in session.posargs if argument != "--torch"]
    session.run("python", "benchmarks/run.py", *given, env=source_env())


@nox.session
def beside(session: nox.Session) -> None:
    """Run fiveloop and jax in one process, in either order, with and without 64 bits."""
    session.install(f"jax=={OLDEST_JAXLIB}", f"jaxlib=={OLDEST_JAXLIB}", *LIBRARIES)
    session.run("python", "benchmarks/beside_jax.py", env=source_env())


@nox.session
def bench(session: nox.Session) -> None:
    """Measure beside the peers on the oldest jaxlib; arguments go to `benchmarks/run.py`."""
    run_benchmark(session, f"=={OLDEST_JAXLIB}")


@nox.session(name="bench-newest", python=newest_python() or False)
def bench_newest(session: nox.Session) -> None:
    """Measure beside the peers on the newest jaxlib and the newest Python found."""
    if newest_python() is None:
        session.skip(f"no Python {', '.join(NEWEST_PYTHONS)} was found on this machine")
    run_benchmark(session, NEWEST_JAXLIB)
