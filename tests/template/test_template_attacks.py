"""Attacks on templates end at `check` or with an error, in bounded work and memory, and the process lives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from template_attack import FAILED, REFUSED, VALUE, Attack
from template_attack_run import ATTACKS, EVERY_GUARD

from effort import EFFORT

RUN = Path(__file__).with_name("template_attack_run.py")
TOGETHER_S = 240
"""Far above what all attacks take together: only a hang reaches it."""


@pytest.fixture(scope="module")
def endings() -> list[dict[str, Any]]:
    """How each attack ended, tried in a process of its own that has 512 MB."""
    more = [EVERY_GUARD] if EFFORT > 1 else []
    tried = subprocess.run([sys.executable, RUN, *more], capture_output=True, text=True, timeout=TOGETHER_S)
    assert tried.returncode == 0, tried.stderr[-2_000:]
    return [json.loads(line) for line in tried.stdout.splitlines()]


def wrong(attack: Attack, ended: dict[str, Any]) -> str | None:
    """What is not as it should be."""
    guard, (ends, said) = ended["guard"], ended["input"]
    if ends != attack.ends:
        return f"ended as {ends}: {said!r:.200}"
    if attack.ends == VALUE:
        return None if said == attack.because else f"gave {said!r:.200}"
    if re.search(attack.because, said) is None:
        return f"said {said!r:.200}"
    if len(said) > 800:
        return f"said {len(said)} characters"
    return None if guard is None or guard[0] in (REFUSED, FAILED) else f"ended as {guard} in a guard"


def test_every_attack_ends_as_it_should_and_the_process_lives(endings: list[dict[str, Any]]) -> None:
    assert [ended["number"] for ended in endings] == list(range(len(ATTACKS)))
    found = [(attack.text[:120], wrong(attack, ended)) for attack, ended in zip(ATTACKS, endings, strict=True)]
    assert [f"{text!r} {what}" for text, what in found if what is not None] == []


def test_blocks_are_refused_in_every_guard(endings: list[dict[str, Any]]) -> None:
    with_blocks = [ended["guard"] for attack, ended in zip(ATTACKS, endings, strict=True) if "{%" in attack.text]
    assert len(with_blocks) > 60
    allowed = "{{ 9 ** 9 }}{% for a in b %}"
    assert {ending for ending, said in with_blocks if said != allowed} == {REFUSED}


def test_there_are_enough_of_them() -> None:
    assert len({attack.text for attack in ATTACKS}) == len(ATTACKS) > 250
