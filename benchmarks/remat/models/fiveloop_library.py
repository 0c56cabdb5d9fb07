"""fiveloop as the library of the models."""

import fiveloop.numpy as fnp
from benchmarks.remat.models.base import Library
from fiveloop import nn
from fiveloop.loops import scan
from fiveloop.remat import checkpoint_name

LIBRARY = Library(fnp, nn, scan, checkpoint_name)
