"""`python -m fiveloop.core.inspect matrix`, and `... row NAME`: look at the rules of all packages installed."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from fiveloop.core.inspect.rule_matrix import matrix, row


def main(argv: Sequence[str]) -> int:
    """Print what was asked for, and give the exit status."""
    parser = ArgumentParser("python -m fiveloop.core.inspect", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("matrix", help="rule, default, refused or blank for every cell")
    commands.add_parser(
        "row", help="one primitive: where each rule is, why one is refused"
    ).add_argument("name")
    options = parser.parse_args(argv)
    # Every portion of the namespace that is installed has its rules there.
    for portion in iter_modules(sys.modules["fiveloop"].__path__):
        import_module(f"fiveloop.{portion.name}")
    try:
        print(matrix() if options.command == "matrix" else row(options.name))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
