"""The whole example at a small size: what it prints and writes, and that checkpoints need a tenth of the memory."""

import json
from pathlib import Path

import pytest
from neural_ode.__main__ import main

SMALL = "--width 4 --segments 2 --length 24 --steps 6 --tolerance 0.01".split()


def test_a_small_run_prints_and_writes_its_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*SMALL, "--out", str(tmp_path)])
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (tmp_path / "run.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "time between spikes" in printed
    assert "max_steps=128" in printed
    assert "checkpoints=8" in printed
    assert len(record["losses"]) == 7
    taped, checkpointed = record["gradients"]
    assert checkpointed["difference"] < 1e-4
    assert checkpointed["temporary_bytes"] < 0.1 * taped["temporary_bytes"]
