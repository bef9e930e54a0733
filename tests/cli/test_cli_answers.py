"""``run`` of a playbook whose server answers with values that do not survive as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cli_program
from cli_program import only_json
from raw_http import answer, raw_server_in_thread
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: prices, path: tests/prices }
workload: { url: null }
workflow:
  - step: start
    loop: { in: [1, 2, 3], iterator: n }
    tool: { name: price, kind: http, url: "{{ workload.url }}" }
"""


LETTERS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: letters, path: tests/letters }
workflow:
  - step: start
    tool: { kind: shell, command: [sh, -c, 'printf "%s%s" "$1" "$A"', sh, "ü→"], env: { A: "😀" } }
"""


def test_no_encoding_follows_the_locale(own_home: Path, playbook: Callable[[str], Path]) -> None:
    """Neither that of what a worker passes to a command, nor that of what the command line prints."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = cli_program.noetl("run", playbook(LETTERS), "--home", own_home, "-o", "json", **ascii_only)
    assert only_json(found)["result"]["stdout"] == "ü→😀"


def test_digits_that_are_lost_are_warned_of_at_the_end(shared_home: Path, playbook: Callable[[str], Path]) -> None:
    file = playbook(PLAYBOOK)
    with raw_server_in_thread() as server:
        server.answer = answer(b'{"dec":12345678901234567.89}', b"Content-Type: application/json")
        run = ("run", file, "--home", shared_home, "--set", f"url={server.url}")
        text, ended = noetl(*run), only_json(noetl(*run, "-o", "json"))
    assert text.returncode == 0, text.stderr
    said = "task price of start: digits are lost, as a number is a double, which holds about 16: /data/dec; "
    [shown] = [line for line in text.stderr.splitlines() if line.startswith("warning: ")]
    assert said in shown
    assert shown.endswith("(and in 2 more runs of it)")
    assert [(one["kind"], one["step"], one["message"]) for one in ended["warnings"]] == [
        ("digits_lost", "start", shown.removeprefix("warning: "))
    ]
