"""All of fiveloop under one name: `import fiveloop.api as fl`, for whoever installs everything.

It holds the public names of core, state, loops and remat, as `fl.jit`, `fl.new_ref`, `fl.scan` and `fl.checkpoint`, and
the packages: `fl.numpy`, `fl.random`, `fl.nn`, `fl.loops` and the others.

>>> import fiveloop.api as fl
>>> fl.grad(lambda x: fl.numpy.sin(x).sum())(fl.numpy.zeros(2))
Array([1., 1.], dtype=float32)
"""

import gc as _gc

# What is imported stays: to look for garbage meanwhile takes a seventh of the time.
_collects = _gc.isenabled()
_gc.disable()
try:
    from fiveloop import core as core
    from fiveloop import loops as loops
    from fiveloop import nn as nn
    from fiveloop import numpy as numpy
    from fiveloop import random as random
    from fiveloop import remat as remat
    from fiveloop import state as state
    from fiveloop.core import *
    from fiveloop.core.util import show_public_names as _show_public_names
    from fiveloop.loops import *
    from fiveloop.remat import *
    from fiveloop.state import *
finally:
    # All of it becomes old, so that no search follows at once.
    if not _gc.get_freeze_count():
        _gc.freeze()
        _gc.unfreeze()
    if _collects:
        _gc.enable()

_PACKAGES = ("core", "loops", "nn", "numpy", "random", "remat", "state")
_show_public_names(globals(), *_PACKAGES, "policies", "tree")
