"""The functions of pytrees by their short names: `tree.map(f, x)` is `tree_map(f, x)`.

Errors of these point to the user's line.

>>> tree.map(lambda x: x + 1, {"a": 1, "b": (2, 3)})
{'a': 2, 'b': (3, 4)}
"""

from fiveloop.core import pytree
from fiveloop.core.trace.boundary import boundary

flatten = boundary(pytree.tree_flatten)
flatten_with_path = boundary(pytree.tree_flatten_with_path)
leaves = boundary(pytree.tree_leaves)
map = boundary(pytree.tree_map)
structure = boundary(pytree.tree_structure)
unflatten = boundary(pytree.tree_unflatten)

__all__ = ["flatten", "flatten_with_path", "leaves", "map", "structure", "unflatten"]
