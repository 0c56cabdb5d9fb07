"""Random draws from explicit keys: the same key gives the same draw, on every machine, under every transform.

`key` makes a key from a seed; `split` and `fold_in` make new keys of it. A draw is a function of its key: take a
new one for each. A `KeyStream` holds a key in a Ref, and gives a new one whenever it is asked.
"""

from fiveloop.state import KeyStream as KeyStream

from .continuous import exponential as exponential
from .continuous import gumbel as gumbel
from .continuous import laplace as laplace
from .continuous import normal as normal
from .continuous import truncated_normal as truncated_normal
from .continuous import uniform as uniform
from .discrete import bernoulli as bernoulli
from .discrete import categorical as categorical
from .discrete import choice as choice
from .discrete import permutation as permutation
from .discrete import rademacher as rademacher
from .discrete import randint as randint
from .keys import bits as bits
from .keys import fold_in as fold_in
from .keys import key as key
from .keys import PRNGKey as PRNGKey
from .keys import split as split

from fiveloop.core.util import show_public_names as _show_public_names

_show_public_names(globals())
