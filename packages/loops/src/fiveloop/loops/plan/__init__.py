"""Planning: optimizations of loops, one per file, proved from effects and indices, each with an option.

`passes` has the steps that run when a loop is traced, before any derivative: `promote` (`constants` too), `fold`,
`hoist`; and those of the pass `plan`, which come after: `fold` and `hoist`, for what is left, `carry`, `scalars`,
`sink`, `fuse`, `branch` and `unroll` for each loop, and then `rows` for those that are nested. `ranges` is a pass of
its own, after discharge.
"""

from . import passes as passes
from . import ranges as ranges
