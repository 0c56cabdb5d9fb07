"""The command line: defaults, and errors that name the option, the expected and the given."""

from pathlib import Path

import pytest
from char_transformer.options import POLICIES, Options, make_parser, parse_options


def test_no_options_give_the_default_run() -> None:
    assert parse_options([]) == Options()


def test_options_are_read() -> None:
    options = parse_options(
        "--layers 2 --policy dots_saveable --rate 0.01 --out here --no-plot --no-policies".split()
    )
    assert (options.layers, options.policy, options.rate) == (2, "dots_saveable", 0.01)
    assert (options.out, options.plot, options.compare_policies) == (Path("here"), False, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--steps 0", "--steps has to be at least 1, and 0 was given"),
        ("--microbatches 3", "--microbatches has to divide --batch 16, and 3 was given"),
        ("--width 20", "--width has to be a multiple of 2 * --heads = 8, and 20 was given"),
        ("--policy some", "invalid choice: 'some'"),
        ("--budget 24MQ", "--budget: checkpoint: budget must be a number of bytes"),
        ("--rate 0", "--rate has to be above 0, and 0.0 was given"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_options(arguments.split())
    error = capsys.readouterr().err
    assert message in error and "\n  at " not in error


def test_an_empty_prompt_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--prompt", ""])
    assert "--prompt has to hold at least one character" in capsys.readouterr().err


def test_the_help_names_each_option_and_each_policy() -> None:
    text = make_parser().format_help()
    for name in (
        "budget",
        "layers",
        "width",
        "context",
        "batch",
        "microbatches",
        "steps",
        "seed",
        "out",
    ):
        assert f"--{name}" in text
    assert all(policy in " ".join(text.split()) for policy in POLICIES)
