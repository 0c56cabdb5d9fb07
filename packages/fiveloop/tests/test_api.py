"""`fiveloop.api`: every public name of the packages, and nothing of its own."""

from __future__ import annotations

import doctest
import gc
import subprocess
import sys
from types import ModuleType

import pytest

import fiveloop.api as fl
from fiveloop import core, loops, nn, numpy, random, remat, state
from fiveloop.core import inspect
from fiveloop.nn import initializers
from fiveloop.numpy import linalg
from fiveloop.remat import policies

FLAT: tuple[ModuleType, ...] = (core, state, loops, remat)
PACKAGES = (*FLAT, numpy, random, nn)


def test_it_has_every_public_name_and_no_other() -> None:
    for package in FLAT:
        for name in package.__all__:
            assert getattr(fl, name) is getattr(package, name), name
    own = {package.__name__.split(".")[1]: package for package in PACKAGES}
    assert {name: getattr(fl, name) for name in own} == own
    names = {n for package in FLAT for n in package.__all__} - {"__version__"}
    assert sorted(vars(fl)["__all__"]) == sorted({*own, *names})


def test_the_import_leaves_the_collection_of_garbage_as_it_was() -> None:
    assert gc.isenabled()
    code = "import gc; gc.disable(); import fiveloop.api; print(gc.isenabled())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_what_the_import_makes_is_old_afterwards_so_that_no_search_goes_through_it() -> None:
    young = "len(gc.get_objects(0)) + len(gc.get_objects(1))"
    code = f"import gc, fiveloop.api; print({young}, gc.get_freeze_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, frozen = map(int, done.stdout.split())
    assert count < 5_000
    assert frozen == 0


def test_its_names_work() -> None:
    counter = fl.new_ref(fl.numpy.zeros(2))
    fl.for_loop(3, lambda i, s: counter.addupdate(fl.nn.relu(s[...])), 1.0)
    leaves = fl.tree.leaves(fl.tree.map(lambda x: x + 1, {"a": 1, "b": (2, 3)}))
    assert (fl.freeze(counter).tolist(), leaves) == ([3.0, 3.0], [2, 3, 4])
    assert fl.checkpoint is remat.checkpoint
    assert fl.policies is remat.policies
    assert fl.random.normal(fl.random.key(0)).shape == ()
    assert doctest.testmod(fl).failed == 0


MODULES = (policies, initializers, linalg, inspect, core.tree)


@pytest.mark.parametrize("package", [*PACKAGES, fl, *MODULES], ids=lambda package: package.__name__)
def test_a_package_shows_its_public_names_alone(package: ModuleType) -> None:
    shown = [name for name in dir(package) if not name.startswith("__")]
    assert shown == sorted({*package.__all__} - {"__version__"})
    assert all(hasattr(package, name) for name in shown)
    assert not [name for name in shown if name.startswith("_") or name in ("ew", "carried_refs")]
    assert {"__doc__", "__name__", "__all__"} <= {*dir(package)}
