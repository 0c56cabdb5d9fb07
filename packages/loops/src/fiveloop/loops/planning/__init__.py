"""Planning: what makes a loop faster, one step a file, each proven from effects and indices, each with a switch.

`promote`, `fold`, `hoist` and `constants` run when a loop is traced, before any derivative; `steps` has those of the
pass `plan`, which come after: `fold` and `hoist`, for what is left, `carry`, `sink`, `fuse`, `branch` and `unroll`.
`options` has the switches, and `explain` tells what every step did.
"""
