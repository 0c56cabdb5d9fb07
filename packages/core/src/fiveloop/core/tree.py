"""The functions of pytrees by their short names: `tree.map(f, x)` is `tree_map(f, x)`.

Errors of these point to the user's line.

>>> tree.map(lambda x: x + 1, {"a": 1, "b": (2, 3)})
{'a': 2, 'b': (3, 4)}
"""

from fiveloop.core import pytree, util
from fiveloop.core.trace.boundary import boundary

tree_all = all = boundary(pytree.tree_all)
tree_flatten = flatten = boundary(pytree.tree_flatten)
tree_flatten_with_path = flatten_with_path = boundary(pytree.tree_flatten_with_path)
tree_leaves = leaves = boundary(pytree.tree_leaves)
tree_map = map = boundary(pytree.tree_map)
tree_map_with_path = map_with_path = boundary(pytree.tree_map_with_path)
tree_reduce = reduce = boundary(pytree.tree_reduce)
tree_structure = structure = boundary(pytree.tree_structure)
tree_transpose = transpose = boundary(pytree.tree_transpose)
tree_unflatten = unflatten = boundary(pytree.tree_unflatten)

__all__ = [
    "all",
    "flatten",
    "flatten_with_path",
    "leaves",
    "map",
    "map_with_path",
    "reduce",
    "structure",
    "transpose",
    "unflatten",
]
util.show_public_names(globals())
