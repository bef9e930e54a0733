"""``run --pdb``: a person looks at a function where it raised, on the terminal of the command."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli_program import NOETL, PATIENCE_S, environment
from warm_program import noetl

FILES = {
    "noetl-stream.toml": 'name = "tests/debugged"\npackages = ["src"]\n',
    "src/debugged.py": "def inner(n: int) -> None:\n    doubled = n * 2\n    raise ValueError('too many')\n\n\n"
    "async def outer(n: int) -> None:\n    print('begins')\n    inner(n + 1)\n",
    "flow.yaml": """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: debugged, path: tests/debugged/flow }
workflow:
  - step: start
    loop: { in: [1, 20], iterator: n, spec: { mode: parallel, policy: { failure: { mode: best_effort } } } }
    tool: { kind: python, function: "debugged:outer", args: { n: "{{ iter.n }}" }, spec: { timeout: 0.001 } }
""",
}
PROMPT = b"(Pdb) "


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
        tmp_path.joinpath(name).write_text(text)
    return tmp_path / "flow.yaml"


def on_a_terminal(words: Sequence[object], typed: Sequence[bytes] = ()) -> tuple[str, int]:
    """Everything a command writes on its terminal, where each prompt gets one of these lines; and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*NOETL, *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="dumb")
    )
    os.close(theirs)
    seen, lines = b"", list(typed)
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
            if seen.endswith(PROMPT):
                os.write(ours, lines.pop(0) if lines else b"q\n")
    except OSError:  # Linux says so when the last writer has gone
        pass
    finally:
        os.close(ours)
    return seen.decode().replace("\r", ""), process.wait(PATIENCE_S)


def test_the_debugger_stops_where_the_function_raised_and_no_timeout_ends_it(flow: Path, tmp_path: Path) -> None:
    typed = [b"p doubled\n", b"up\n", b"p n\n", b"q\n"]
    seen, code = on_a_terminal(["run", flow, "--pdb", "--home", tmp_path / "home"], typed)
    assert code == 0, seen
    assert "ValueError: too many\n> " in seen and "debugged.py(3)inner()\n-> raise ValueError('too many')\n" in seen
    answers = seen.split(PROMPT.decode())
    first, _, second, _ = (one.splitlines()[1] for one in answers[1:5])
    assert (first, second) in (("4", "1"), ("42", "20")), "the values of either iteration"
    assert len(answers) > 5, "the other iteration is debugged once the first is left"
    assert "timeout" not in seen


@pytest.mark.xdist_group("stack")
def test_a_debugger_in_an_unreachable_place_is_refused(flow: Path, shared_home: Path) -> None:
    for words, settings, refused in (
        (["--url", "http://127.0.0.1:1"], {}, "--pdb cannot be used with --url http://127.0.0.1:1: "),
        ([], {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_POSTGRES_DSN": "postgres://a"}, "--pdb: NOETL_NATS_URL"),
        (["--home", str(shared_home)], {}, "--pdb: stdin is not a terminal"),
    ):
        found = noetl("run", flow, "--pdb", *words, **settings)
        assert found.returncode == 2, found.stderr
        assert found.stderr.startswith(f"noetl-stream: {refused}"), found.stderr


@pytest.mark.xdist_group("stack")
def test_a_stack_with_workers_of_its_own_is_refused(flow: Path, shared_home: Path) -> None:
    seen, code = on_a_terminal(["run", flow, "--pdb", "--home", shared_home])
    assert code == 2
    assert f"--pdb: a stack with workers of its own runs in {shared_home}" in seen
