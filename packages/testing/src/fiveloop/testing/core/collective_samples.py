"""Samples of every collective: functions of one lane, the named axes, and float64 arguments of all lanes.

An argument has the lanes in its last axes, as `lanes` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiveloop.core.api.flatten import ShapeDtype
from fiveloop.core.api.staging import make_jaxpr
from fiveloop.core.ir.axes import NamedAxis
from fiveloop.core.primitives import collectives as c
from fiveloop.core.primitives import elementwise as e
from fiveloop.testing.core.samples import Sample

HALVES = [[0, 2], [3, 1]]
UNEQUAL = [[3], [0, 2, 1]]

_rng = np.random.default_rng(30)


@dataclass(frozen=True)
class CollectiveCase:
    """A function of one lane, named after what it samples; `axes` have names and sizes, outermost first."""

    name: str
    fun: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[Hashable, int], ...] = (("i", 4),)

    @property
    def named(self) -> list[NamedAxis]:
        """The axes as a jaxpr has them."""
        return [NamedAxis(name, size) for name, size in self.axes]

    def sample(self) -> Sample:
        """The jaxpr of one lane, and random arguments of all lanes."""
        specs = [ShapeDtype(shape, "float64") for shape in self.shapes]
        jaxpr = make_jaxpr(self.fun, axis_env=self.axes)(*specs)
        sizes = [size for _, size in self.axes]
        args = [_rng.uniform(-1.5, 1.5, (*shape, *sizes)) for shape in self.shapes]
        return Sample(jaxpr, tuple(args))


_TWO = (("i", 2), ("j", 2))
_IJ, _JI = ("i", "j"), ("j", "i")


def _reductions() -> list[CollectiveCase]:
    cases = []
    for fn in (c.psum, c.pmean, c.pmax, c.pmin):
        name = "psum" if fn is c.pmean else fn.__name__
        cases += [
            CollectiveCase(name, _call(fn, "i"), ((3,),)),
            CollectiveCase(name, _call(fn, "i"), ((),)),
            CollectiveCase(name, _call(fn, "i", axis_index_groups=HALVES), ((2,),)),
            CollectiveCase(name, _call(fn, _IJ), ((2,),), _TWO),
            CollectiveCase(name, _call(fn, "j"), ((2,),), _TWO),
            CollectiveCase(name, _call(fn, _JI, axis_index_groups=HALVES), ((2,),), _TWO),
        ]
        if fn is not c.pmean:
            cases.append(CollectiveCase(name, _call(fn, "i", axis_index_groups=UNEQUAL), ((2,),)))
    return cases


def _call(fn: Callable[..., Any], names: Any, *args: Any, **options: Any) -> Callable[..., Any]:
    return lambda x: fn(x, names, *args, **options)


def _gathers() -> list[CollectiveCase]:
    cases = []
    for options in ({}, {"axis": 1}, {"tiled": True}, {"tiled": True, "axis": 1}):
        for names, axes in (("i", (("i", 4),)), (_IJ, _TWO), ("j", _TWO)):
            fn = _call(c.all_gather, names, **options)
            cases.append(CollectiveCase("all_gather", fn, ((2, 3),), axes))
        for names, axes in (("i", (("i", 4),)), (_JI, _TWO)):
            fn = _call(c.all_gather, names, axis_index_groups=HALVES, **options)
            cases.append(CollectiveCase("all_gather", fn, ((2, 3),), axes))
    return cases


def _scatters() -> list[CollectiveCase]:
    cases = []
    for names, axes in (("i", (("i", 4),)), (_IJ, _TWO)):
        for k, shape in ((0, (4, 3)), (1, (3, 4))):
            fn = _call(c.psum_scatter, names, scatter_dimension=k)
            cases.append(CollectiveCase("psum_scatter", fn, (shape,), axes))
            wide = tuple(2 * d if at == k else d for at, d in enumerate(shape))
            fn = _call(c.psum_scatter, names, scatter_dimension=k, tiled=True)
            cases.append(CollectiveCase("psum_scatter", fn, (wide,), axes))
        for tiled, shape in ((False, (3, 2)), (True, (3, 4))):
            options = {"scatter_dimension": 1, "tiled": tiled, "axis_index_groups": HALVES}
            fn = _call(c.psum_scatter, names, **options)
            cases.append(CollectiveCase("psum_scatter", fn, (shape,), axes))
    return cases


def _exchanges() -> list[CollectiveCase]:
    cases = []
    for names, axes in (("i", (("i", 4),)), (_JI, _TWO)):
        for split, concat in ((0, 0), (0, 1), (1, 0), (1, 1)):
            shape: Sequence[int] = (4, 2) if split == 0 else (2, 4)
            half: Sequence[int] = (2, 3) if split == 0 else (3, 2)
            for tiled in (False, True):
                fn = _call(c.all_to_all, names, split, concat, tiled=tiled)
                cases.append(CollectiveCase("all_to_all", fn, (tuple(shape),), axes))
                fn = _call(
                    c.all_to_all, names, split, concat, tiled=tiled, axis_index_groups=HALVES
                )
                cases.append(CollectiveCase("all_to_all", fn, (tuple(half),), axes))
    return cases


def _permutations() -> list[CollectiveCase]:
    cycle, some = [(k, (k + 1) % 4) for k in range(4)], [(0, 3), (2, 0)]
    return [
        CollectiveCase("ppermute", _call(c.ppermute, "i", cycle), ((2,),)),
        CollectiveCase("ppermute", _call(c.ppermute, "i", some), ((),)),
        CollectiveCase("ppermute", _call(c.ppermute, _IJ, some), ((2,),), _TWO),
        CollectiveCase("ppermute", _call(c.pshuffle, "i", [2, 0, 3, 1]), ((2,),)),
        CollectiveCase("all_to_all", _call(c.pswapaxes, "i", 1), ((2, 4),)),
    ]


def _indices() -> list[CollectiveCase]:
    return [
        CollectiveCase("axis_index", lambda x: e.mul(x, c.axis_index("i")), ((2,),)),
        CollectiveCase("axis_index", lambda x: e.mul(x, c.axis_index(_JI)), ((2,),), _TWO),
        CollectiveCase("axis_index", lambda x: (x, c.axis_index("i")), ((),)),
    ]


def collective_cases() -> list[CollectiveCase]:
    """All samples."""
    given = (_reductions(), _gathers(), _scatters(), _exchanges(), _permutations(), _indices())
    return [case for cases in given for case in cases]
