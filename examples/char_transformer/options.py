"""What a run can be asked for: the options of the command line, with their defaults."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fiveloop.remat import checkpoint

POLICIES = (
    "everything_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "nothing_saveable",
)

ABOUT = """\
Train a decoder-only transformer over characters on the pages behind Python's help().

With no options it takes two to three minutes on two CPU cores. It then prints the held-out loss
beside those of 1- to 5-gram models of the same split, a sample of text, and a table of memory and
time under three rematerialisation policies and three budgets, and writes the curve and a picture to the folder
--out."""

EXAMPLES = """\
examples:
  python -m char_transformer                             the default run
  python -m char_transformer --steps 2000                better than all the n-gram models
  python -m char_transformer --layers 12 --steps 100 --policy nothing_saveable
  python -m char_transformer --budget 24MB               train within so much memory
  python -m char_transformer --layers 1 --width 32 --context 32 --steps 20 --no-plot    a quick look

The same seed gives the same curve."""

HELP = {
    "size of the model": {
        "layers": "transformer layers, composed by scan",
        "width": "width of the stream; the hidden width is four times it",
        "heads": "attention heads",
        "context": "characters that the model looks back on",
    },
    "training": {
        "batch": "windows of text in a step",
        "microbatches": "parts of a batch, their gradients added up in Refs",
        "steps": "optimiser steps; the rate falls to zero at the last",
        "rate": "Adam's highest rate",
        "budget": "temporary memory for the gradient of a microbatch, such as 24MB or 50%%, in place of a policy",
        "policy": f"what checkpointed layers save: {', '.join(POLICIES)}",
        "seed": "decides parameters, batches and samples",
    },
    "results": {
        "prompt": "the sample's first characters",
        "characters": "length of the sample",
        "out": "folder for the curve and the picture",
    },
}
METAVARS = {"rate": "X", "budget": "MEMORY", "policy": "NAME", "prompt": "TEXT", "out": "DIR"}


@dataclass(frozen=True)
class Options:
    """One run, decided by these values and the Python that carries the text."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 128
    batch: int = 16
    microbatches: int = 2
    steps: int = 400
    rate: float = 3e-3
    policy: str = "nothing_saveable"
    budget: str | None = None
    seed: int = 0
    prompt: str = "The "
    characters: int = 400
    out: Path = Path("out/char_transformer")
    plot: bool = True
    compare_policies: bool = True


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line, and refuse options that do not fit together."""
    parser = make_parser()
    options = Options(**vars(parser.parse_args(arguments)))
    problem = find_problem(options)
    if problem is not None:
        parser.error(problem)
    return options


def find_problem(options: Options) -> str | None:
    """Say which options do not fit, what was expected and what was given, or give None."""
    counts = ("layers", "width", "heads", "context", "batch", "microbatches", "steps", "characters")
    for name in counts:
        if getattr(options, name) < 1:
            return f"--{name} has to be at least 1, and {getattr(options, name)} was given"
    if not options.rate > 0.0:
        return f"--rate has to be above 0, and {options.rate} was given"
    if options.batch % options.microbatches:
        return (
            f"--microbatches has to divide --batch {options.batch}, "
            f"and {options.microbatches} was given"
        )
    if options.width % (2 * options.heads):
        return (
            f"--width has to be a multiple of 2 * --heads = {2 * options.heads}, "
            f"and {options.width} was given"
        )
    if options.budget is not None:
        try:
            checkpoint(find_problem, budget=options.budget)
        except ValueError as error:
            # The rest is a line of this file.
            return f"--budget: {error}".partition("\n")[0]
    if not options.prompt:
        return "--prompt has to hold at least one character, and none was given"
    return None


def make_parser() -> argparse.ArgumentParser:
    """Describe each option, in groups by what it decides."""
    parser = argparse.ArgumentParser(
        prog="python -m char_transformer",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for title, texts in HELP.items():
        group = parser.add_argument_group(title)
        for name, text in texts.items():
            default = getattr(Options, name)
            group.add_argument(
                f"--{name}",
                type=str if default is None else type(default),
                default=default,
                choices=POLICIES if name == "policy" else None,
                metavar=METAVARS.get(name, "N"),
                help=f"{text} (default: {default})",
            )
    group.add_argument("--no-plot", dest="plot", action="store_false", help="draw no picture")
    group.add_argument(
        "--no-policies",
        dest="compare_policies",
        action="store_false",
        help="leave out the table of policies, and its compile times",
    )
    return parser
