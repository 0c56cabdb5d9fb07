"""The functions of pytrees by their short names: `tree.map(f, x)` is `tree_map(f, x)`.

>>> tree.map(lambda x: x + 1, {"a": 1, "b": (2, 3)})
{'a': 2, 'b': (3, 4)}
"""

from fiveloop.core.pytree import tree_flatten as flatten
from fiveloop.core.pytree import tree_flatten_with_path as flatten_with_path
from fiveloop.core.pytree import tree_leaves as leaves
from fiveloop.core.pytree import tree_map as map
from fiveloop.core.pytree import tree_structure as structure
from fiveloop.core.pytree import tree_unflatten as unflatten

__all__ = ["flatten", "flatten_with_path", "leaves", "map", "structure", "unflatten"]
