"""What a run can be asked for: the options of the command line, with their defaults."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ABOUT = """\
Fit a neural ODE to a recorded neuron, through an adaptive Dormand-Prince solver that is one while_loop.

With no options it takes one to three minutes on two CPU cores. It then runs the fitted model over a part of the
recording that it has not seen, prints how far it is and what the gradient costs taped and with a few
saved states, and writes a picture to the folder --out."""

HELP = {
    "model and solver": {
        "width": "hidden width of the network",
        "tolerance": "error that a step of the solver may have",
        "max_steps": "steps of the solver that are taped, where they are",
        "checkpoints": "states that are saved for the gradient; 0 tapes every step",
    },
    "fitting": {
        "length": "samples in a segment",
        "segments": "segments in a batch",
        "steps": "optimiser steps on segments of that length",
        "rate": "Adam's highest rate",
        "seed": "decides parameters and segments",
    },
    "results": {"out": "folder for the numbers and the picture"},
}
METAVARS = {"rate": "X", "tolerance": "X", "out": "DIR"}


@dataclass(frozen=True)
class Options:
    """One run, decided by these values."""

    width: int = 32
    tolerance: float = 1e-3
    max_steps: int = 128
    checkpoints: int = 8
    length: int = 80
    segments: int = 48
    steps: int = 2000
    rate: float = 5e-3
    seed: int = 0
    out: Path = Path("out/neural_ode")
    plot: bool = True


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line, and refuse options that do not fit."""
    parser = make_parser()
    options = Options(**vars(parser.parse_args(arguments)))
    problem = find_problem(options)
    if problem is not None:
        parser.error(problem)
    return options


def find_problem(options: Options) -> str | None:
    """Say which option does not fit, what was expected and what was given, or give None."""
    for name, least in (("width", 1), ("max_steps", 1), ("segments", 1), ("steps", 6)):
        if getattr(options, name) < least:
            flag = name.replace("_", "-")
            return f"--{flag} has to be at least {least}, and {getattr(options, name)} was given"
    if options.checkpoints < 0:
        return f"--checkpoints has to be at least 0, and {options.checkpoints} was given"
    if not 4 <= options.length <= 1000:
        return f"--length has to be from 4 to 1000, and {options.length} was given"
    for name in ("tolerance", "rate"):
        if not getattr(options, name) > 0.0:
            return f"--{name} has to be above 0, and {getattr(options, name)} was given"
    return None


def make_parser() -> argparse.ArgumentParser:
    """Describe each option, in groups by what it decides."""
    parser = argparse.ArgumentParser(
        prog="python -m neural_ode",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for title, texts in HELP.items():
        group = parser.add_argument_group(title)
        for name, text in texts.items():
            default = getattr(Options, name)
            group.add_argument(
                f"--{name.replace('_', '-')}",
                type=type(default),
                default=default,
                metavar=METAVARS.get(name, "N"),
                help=f"{text} (default: {default})",
            )
    group.add_argument("--no-plot", dest="plot", action="store_false", help="draw no picture")
    return parser
