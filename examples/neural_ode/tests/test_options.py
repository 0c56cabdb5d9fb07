"""The command line: defaults, and errors that name the option, the expected and the given."""

from pathlib import Path

import pytest
from neural_ode.options import Options, make_parser, parse_options


def test_no_options_give_the_default_run() -> None:
    assert parse_options([]) == Options()


def test_options_are_read() -> None:
    options = parse_options("--width 8 --max-steps 9 --rate 0.01 --out here --no-plot".split())
    assert (options.width, options.max_steps, options.rate) == (8, 9, 0.01)
    assert (options.out, options.plot) == (Path("here"), False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--steps 0", "--steps has to be at least 6, and 0 was given"),
        ("--max-steps 0", "--max-steps has to be at least 1, and 0 was given"),
        ("--checkpoints -1", "--checkpoints has to be at least 0, and -1 was given"),
        ("--length 3", "--length has to be from 4 to 1000, and 3 was given"),
        ("--tolerance 0", "--tolerance has to be above 0, and 0.0 was given"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_options(arguments.split())
    assert message in capsys.readouterr().err


def test_the_help_names_each_option() -> None:
    text = make_parser().format_help()
    for name in ("width", "tolerance", "max-steps", "checkpoints", "length", "seed", "out"):
        assert f"--{name}" in text
