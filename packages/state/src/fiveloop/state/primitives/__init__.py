"""The primitives on Refs: a file each, with its whole row."""

from . import accumulate as accumulate
from . import addupdate as addupdate
from . import get as get
from . import lifetime as lifetime
from . import swap as swap
