"""The pure core takes no more machine instructions than recorded, give or take 15 %."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
UNCOUNTED = 2
"""The exit code when there is nothing to count with, or no record of this Python."""


@pytest.fixture
def instructions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("instructions")


def test_the_core_takes_no_more_instructions_than_recorded() -> None:
    ended = subprocess.run(
        [sys.executable, BENCHMARKS / "instructions.py"], capture_output=True, text=True, timeout=400
    )
    if ended.returncode == UNCOUNTED:
        pytest.skip(ended.stdout.strip())
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_figure_is_compared_with_what_this_build_of_python_would_take(instructions: ModuleType) -> None:
    recorded = {"calibration": 1_000, "a step": 500, "something that was removed": 1}
    now = {"calibration": 1_100, "a step": 550, "something new": 1}

    assert instructions.compare(now, recorded) == {"calibration": 1.0, "a step": 1.0}


@pytest.mark.parametrize(("figure", "code"), [(575, 0), (576, 1)])
def test_more_than_15_percent_above_the_record_fails(
    instructions: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    figure: int,
    code: int,
) -> None:
    version = instructions.VERSION
    monkeypatch.setattr(instructions, "recorded", lambda: {version: {"calibration": 1_000, "a step": 500}})

    assert instructions.judge({"calibration": 1_000, "a step": figure}) == code
    assert ("a step" in capsys.readouterr().out.partition("above the record: ")[2]) is (code == 1)
