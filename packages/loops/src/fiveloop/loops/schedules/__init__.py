"""Checkpointing schedules: which states of a loop are saved, and which steps are recomputed in reverse.

The reverse of a loop needs the states of its steps from the last to the first. A store has room for `slots` states, the
initial one included. From a stored state the loop *advances* to a later one by running steps again. At its turn each
step is run once more with all that its reverse needs kept: it is *taped*, which is not counted as an advance. Where
the residuals of a step are smaller than its state, `tape` steps are taped at once, and count as one step here.

There are two phases. The *sweep* runs the loop and stores states on a grid. The *replay* takes these from the last to
the first. The steps from each to the next it reverses by the binomial schedule, which is optimal for a known number of
steps, in the slots that are free by then. The schedules differ in the states that the sweep stores:

- `binomial.Binomial`: the initial state alone; for a count that is known, or counted first.
- `online.Online`: a grid that grows coarser while the loop runs; for a count that is not known.
- `periodic.Periodic`: the state before each tape.
- `periodic.TwoLevel`: a grid in a slower store; the fast slots reverse the steps between.

All of it is arithmetic on integers, which may be Python's or traced scalars: `simulation` counts with the functions
that a compiled loop follows.
"""

from .binomial import Binomial as Binomial
from .online import Online as Online
from .periodic import Periodic as Periodic, TwoLevel as TwoLevel
