"""Attacks on templates end at `check` or with an error, within bounded work and memory, and the process survives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from template_attack import FAILED, REFUSED, VALUE, Attack
from template_attack_run import ALL, ATTACKS, as_guards, as_inputs

from effort import EFFORT

RUN = Path(__file__).with_name("template_attack_run.py")
WHOLE = EFFORT > 1
TIMEOUT_S = 240
"""Far above what all attacks take; only a hang reaches it."""


@pytest.fixture(scope="module")
def endings() -> list[dict[str, Any]]:
    """How each attack ended, in a separate process with 512 MB."""
    more = [ALL] if WHOLE else []
    tried = subprocess.run([sys.executable, RUN, *more], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert tried.returncode == 0, tried.stderr[-2_000:]
    return [json.loads(line) for line in tried.stdout.splitlines()]


def attacked(endings: list[dict[str, Any]]) -> list[tuple[Attack, dict[str, Any]]]:
    return [(ATTACKS[ended["number"]], ended) for ended in endings]


def mismatch(attack: Attack, ended: dict[str, Any]) -> str | None:
    """How the ending differs from the expected one; ``None`` if it does not."""
    guard, (ends, result) = ended["guard"], ended["input"]
    if ends != attack.ends:
        return f"ended as {ends}: {result!r:.200}"
    if attack.ends == VALUE:
        return None if result == attack.because else f"value {result!r:.200}"
    if re.search(attack.because, result) is None:
        return f"message {result!r:.200}"
    if len(result) > 800:
        return f"message of {len(result)} characters"
    return None if guard is None or guard[0] in (REFUSED, FAILED) else f"ended as {guard} in a guard"


def test_every_attack_ends_as_expected_and_the_process_survives(endings: list[dict[str, Any]]) -> None:
    assert [ended["number"] for ended in endings] == sorted({*as_inputs(WHOLE), *as_guards(WHOLE)})
    found = [(attack.text[:120], mismatch(attack, ended)) for attack, ended in attacked(endings) if ended["input"]]
    assert [f"{text!r} {difference}" for text, difference in found if difference is not None] == []


def test_blocks_are_refused_in_every_guard(endings: list[dict[str, Any]]) -> None:
    with_blocks = [ended["guard"] for attack, ended in attacked(endings) if "{%" in attack.text]
    assert len(with_blocks) > 60
    allowed = "{{ 9 ** 9 }}{% for a in b %}"
    assert {ending for ending, result in with_blocks if result != allowed} == {REFUSED}


def test_there_are_enough_attacks() -> None:
    assert len({attack.text for attack in ATTACKS}) == len(ATTACKS) > 250
