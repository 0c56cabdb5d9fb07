"""The whole example at a small size: what it prints and writes, and that a seed decides the curve."""

import json
from pathlib import Path

import pytest
from char_transformer.__main__ import main

from fiveloop.core import disable_compilation_cache, enable_compilation_cache

SMALL = "--layers 1 --width 16 --heads 2 --context 16 --batch 4 --steps 5 --characters 12".split()


def test_a_small_run_prints_and_writes_its_results_and_its_seed_decides_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = []
    enable_compilation_cache(tmp_path / "programs")
    try:
        for run, seed in (("one", "3"), ("same", "3"), ("other", "4")):
            out = tmp_path / run
            main([*SMALL, "--seed", seed, "--no-policies", "--prompt", "Some", "--out", str(out)])
            records.append(json.loads((out / "run.json").read_text(encoding="utf-8")))
            assert (out / "run.png").stat().st_size > 10_000
    finally:
        disable_compilation_cache()
    printed = capsys.readouterr().out
    assert "5-gram" in printed
    assert "sample:\nSome" in printed
    one, same, other = ((record["train_losses"], record["held_out_nats"]) for record in records)
    assert len(one[0]) == 5
    assert one == same
    assert one != other
    assert all(4.0 < loss < 5.0 for loss in one[0])


def test_a_budget_that_no_plan_keeps_within_ends_the_run_with_a_line(tmp_path: Path) -> None:
    with pytest.raises(
        SystemExit, match=r"^--budget: .* and the budget is 10 B; give it more[^\n]*$"
    ):
        main([*SMALL, "--budget", "10B", "--out", str(tmp_path)])
