"""What a benchmark is: a declarative list of cases, each with contenders, sizes and limits."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A way to save less: the bytes that are saved, and the operations of products that are computed again."""

    saved_bytes: int
    flops_again: int


@dataclass(frozen=True)
class Saving:
    """What a library says of the memory of a gradient: the bytes that it saves, those that its budget allows.

    `plans` are the ways that it finds to save less.
    """

    saved_bytes: int | None = None
    allowed_bytes: int | None = None
    plans: tuple[Plan, ...] = ()


NO_SAVING = Saving()


@dataclass(frozen=True)
class Program:
    """One function to compile, its arguments as NumPy arrays, and the array shapes no loop step may copy.

    `saving` is what it saves for a backward pass, where a benchmark compares that.
    """

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    watched: tuple[tuple[int, ...], ...] = ()
    saving: Saving = NO_SAVING


@dataclass(frozen=True)
class Action:
    """Python code that is timed as it stands, many times in a row: a call of a jitted function, an eager operation.

    `run` gives named arrays of its library; the last of them is waited for once a row of `times` calls. `memory` gives
    the bytes that it stands for, where these are what is measured. `clock` is what it is timed by: the processor's for
    what takes microseconds in one thread, as other processes then hardly matter.
    """

    run: Callable[[], Mapping[str, Any]]
    times: int = 200
    memory: Callable[[], int] | None = None
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Contender:
    """One way to write a case: the process it runs in and the function (`module:name`) that builds its program."""

    name: str
    side: str
    builder: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """What a worker is asked to build: a contender at one size."""

    key: str
    builder: str
    options: Options


@dataclass(frozen=True)
class RatioLimit:
    """Ours over the peer's, for one metric; `row` names the line of the design it answers."""

    metric: str
    peer: str
    at_most: float
    row: str
    size: int | None = None


@dataclass(frozen=True)
class AtMost:
    """Our own metric, or that of another contender, at the largest size."""

    metric: str
    at_most: float
    row: str
    contender: str | None = None


@dataclass(frozen=True)
class GrowthLimit:
    """The exponent with which our own metric may grow with the size."""

    metric: str
    at_most: float
    row: str


@dataclass(frozen=True)
class NoCopies:
    """The gate: no instruction inside a while body of our program may make a whole watched array."""

    row: str


@dataclass(frozen=True)
class GeomeanLimit:
    """The geometric mean over cases of ours over the peer's, each at the largest size that both ran."""

    metric: str
    peer: str
    at_most: float
    row: str
    cases: tuple[str, ...]


@dataclass(frozen=True)
class NoMoreAgain:
    """At the saved bytes of each plan of a peer, no more operations again; ours are those between the nearest two."""

    peer: str
    row: str


Limit = RatioLimit | AtMost | GrowthLimit | NoCopies | NoMoreAgain


@dataclass(frozen=True)
class Case:
    """One line of inquiry: every contender runs it at every size, and all results must agree.

    `rtol` is relative to the largest magnitude of each array. `sizes` are what the builders get; `steps` are what
    growth is measured against, the sizes themselves if empty. A peer whose runs take longer than `cap` seconds gets no
    larger sizes; the rounds at one size may take `seconds` in all, and a case that is not `timed` has none. Tracing and
    lowering are timed in rounds where a case is `staged`; with `compiles`, so is compiling. The rounds are run in so
    many `processes` of each side, one after the other, and each counts once: where a process happens to put its code
    and data changes the time of a call by some per cent.
    """

    name: str
    sizes: tuple[int, ...]
    ours: Contender
    peers: tuple[Contender, ...]
    reference: Contender | None = None
    limits: tuple[Limit, ...] = ()
    rtol: float = 1e-4
    steps: tuple[int, ...] = ()
    cap: float = 1.0
    seconds: float = 15.0
    timed: bool = True
    staged: bool = True
    compiles: bool = False
    processes: int = 1

    def steps_of(self, size: int) -> int:
        """The count that growth exponents are measured against at one size."""
        return self.steps[self.sizes.index(size)] if self.steps else size

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """All that run, ours first."""
        return (self.ours, *self.peers)


@dataclass(frozen=True)
class Benchmark:
    """A named set of cases."""

    name: str
    about: str
    cases: tuple[Case, ...]
    limits: tuple[GeomeanLimit, ...] = ()


def task(contender: Contender, size: int) -> Task:
    """The order that builds one contender at one size."""
    return Task(contender.name, contender.builder, {**contender.options, "size": size})
