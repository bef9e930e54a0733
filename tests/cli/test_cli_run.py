"""``run`` on a stack that is up: results, exit codes, options, and what a reader of its output meets."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_stack import gateway_of

from cli_program import NOETL, PATIENCE_S, environment, only_json, start
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

ESCAPE = "\x1b"
GATE_S = 20.0


@contextmanager
def gate() -> Iterator[socket.socket]:
    """What the waiting playbook's step connects to; its port is the workload."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(GATE_S)
        yield listening


def port_of(listening: socket.socket) -> str:
    return f"gate={listening.getsockname()[1]}"


def test_text_output_is_the_result_on_stdout_and_a_plain_log_on_stderr(shared_home: Path, one_step: Path) -> None:
    found = noetl("run", one_step, "--home", shared_home)
    assert found.returncode == 0, found.stderr
    assert "hello" in found.stdout
    assert "world" in found.stdout
    assert found.stderr.splitlines()[0] == "greet: done"
    assert found.stderr.splitlines()[-1].startswith("completed in ")
    assert ", 1 step run (" in found.stderr
    assert ESCAPE not in found.stdout + found.stderr


def test_json_output_is_one_object_of_the_promised_shape(shared_home: Path, one_step: Path) -> None:
    found = noetl("run", one_step, "--home", shared_home, "-o", "json")
    assert (found.returncode, found.stderr) == (0, "")
    ended = only_json(found)
    of_all = ["execution_id", "path", "status", "result", "ctx", "duration_s", "steps"]
    assert list(ended) == [*of_all, "discarded", "warnings", "error"]
    assert (ended["discarded"], ended["warnings"]) == ([], [])
    assert (ended["path"], ended["status"], ended["error"]) == ("tests/one", "completed", None)
    assert ended["result"] == {"hello": "world", "deep": {"left": 1, "right": 2}}
    assert [list(step) for step in ended["steps"]] == [["step", "runs", "status", "duration_s"]]
    assert (ended["steps"][0]["step"], ended["steps"][0]["runs"], ended["steps"][0]["status"]) == ("greet", 1, "done")


def test_a_failed_execution_ends_with_1_and_says_why(shared_home: Path, failing: Path) -> None:
    text = noetl("run", failing, "--home", shared_home)
    assert text.returncode == 1
    assert text.stderr.count("it is broken") == 1
    assert "failed in " in text.stderr
    assert re.search(r"^at \S+:\d+: step \w+", text.stderr, re.MULTILINE)
    assert re.search(r"^why: noetl-stream execution why [0-9a-f-]{36}$", text.stderr, re.MULTILINE)
    assert "Traceback" not in text.stderr
    found = noetl("run", failing, "--home", shared_home, "-o", "json")
    assert found.returncode == 1
    ended = only_json(found)
    assert ended["status"] == "failed"
    assert "it is broken" in ended["error"]["message"]
    assert ended["steps"][0]["status"] == "failed"


NOTE = """
  - step: note
    tool: { kind: shell, command: exit 4 }
"""


def test_the_place_of_a_failure_is_where_it_failed_not_where_something_failed_afterwards(
    shared_home: Path, failing: Path
) -> None:
    broken = (
        failing.read_text()
        .rstrip("\n")
        .replace("workflow:", "executor: { spec: { policy: { finally: note } } }\nworkflow:")
    )
    failing.write_text(broken + NOTE)
    before = noetl("run", failing, "--home", shared_home)
    assert "note: failed" in before.stderr
    [place] = re.findall(r"^at \S+: step (\w+)", before.stderr, re.MULTILINE)
    assert place != "note"


def test_a_terminal_shows_the_progress_of_a_command_and_clears_it(shared_home: Path, one_step: Path) -> None:
    seen = on_a_terminal(["run", str(one_step), "--home", str(shared_home)], {"TERM": "xterm"})
    after = seen.rpartition("waiting for a server to accept")[2]
    assert after.index("\r\x1b[2K") < after.index("greet"), "the line is erased before anything else is shown"


def test_a_line_for_each_change_is_asked_for(shared_home: Path, one_step: Path) -> None:
    found = noetl("run", one_step, "--home", shared_home, "--verbose")
    assert found.stderr.splitlines()[:2] == ["greet: started", "greet: done"]


def test_workload_options_are_merged_in_their_order(shared_home: Path, one_step: Path, tmp_path: Path) -> None:
    workload = tmp_path / "workload.yaml"
    workload.write_text("who: file\ndeep: {left: 10}\n")
    options = ["--workload", workload, "--set", "deep.more=[1, true, null]", "--set-string", "who=007"]
    ended = only_json(noetl("run", one_step, *options, "--home", shared_home, "-o", "json"))
    assert ended["result"] == {"hello": "007", "deep": {"left": 10, "right": 2, "more": [1, True, None]}}


@pytest.mark.parametrize(("given", "meant"), [("7", 7), ("a b=c", "a b=c"), ("", ""), ("NaN", "NaN"), ('"7"', "7")])
def test_a_set_value_is_json_if_it_is_json_and_text_otherwise(
    shared_home: Path, one_step: Path, given: str, meant: object
) -> None:
    ended = only_json(noetl("run", one_step, "--set", f"who={given}", "--home", shared_home, "-o", "json"))
    assert ended["result"]["hello"] == meant


def test_the_home_may_come_from_the_environment(shared_home: Path, one_step: Path) -> None:
    assert noetl("run", one_step, NOETL_HOME=str(shared_home)).returncode == 0


def test_a_timeout_ends_the_waiting_and_not_the_execution(shared_home: Path, waiting: Path) -> None:
    with gate() as listening:
        found = noetl("run", waiting, "--set", port_of(listening), "--timeout", "1.5", "--home", shared_home)
        assert found.returncode == 124
        assert "timeout after 1.5 s: execution " in found.stderr
        line, _ = listening.accept()
        with line:
            line.sendall(b"late")
    assert watched_to_its_end(shared_home, found.stderr) == "late"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_prints_how_to_watch_the_execution(
    shared_home: Path, waiting: Path, number: signal.Signals
) -> None:
    with gate() as listening:
        run = start("run", waiting, "--set", port_of(listening), "--home", shared_home)
        line, _ = listening.accept()
        run.send_signal(number)
        stdout, stderr = run.communicate(timeout=PATIENCE_S)
        assert (run.returncode, stdout) == (130, "")
        assert "interrupted: execution " in stderr
        assert "Traceback" not in stderr
        assert "Task" not in stderr
        with line:
            line.sendall(b"went on")
    assert watched_to_its_end(shared_home, stderr) == "went on"


def test_a_run_under_nohup_outlives_its_terminal(shared_home: Path, waiting: Path) -> None:
    with gate() as listening:
        words = [*NOETL, "run", str(waiting), "--set", port_of(listening), "--home", str(shared_home), "-o", "json"]
        run = subprocess.Popen(
            ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        line, _ = listening.accept()
        run.send_signal(signal.SIGHUP)
        with line:
            line.sendall(b"went on")
        stdout, stderr = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, stderr) == (0, "")
    assert json.loads(stdout)["result"] == "went on"


def watched_to_its_end(home: Path, errors: str) -> object:
    """Does what ``run`` said, until the execution has ended; its result."""
    command = errors.split("show it: ")[1].split()
    assert command[:3] == ["noetl-stream", "execution", "get"]
    assert command[4:] == ["--home", str(home)]
    for _ in range(50):
        found = only_json(noetl(*command[1:], "-o", "json"))
        if found["status"] != "running":
            break
    assert found["status"] == "completed"
    return found["result"]


def test_a_reader_that_stops_reading_gets_no_traceback(shared_home: Path, one_step: Path) -> None:
    words = " ".join([*NOETL, "run", str(one_step), "--home", str(shared_home)])
    found = subprocess.run(
        ["bash", "-c", f"{words} | true"], capture_output=True, text=True, timeout=PATIENCE_S, env=environment()
    )
    assert "Traceback" not in found.stderr
    assert "BrokenPipe" not in found.stderr


def test_the_file_is_read_once_so_that_it_may_be_a_pipe(shared_home: Path, one_step: Path) -> None:
    found = subprocess.run(
        [*NOETL, "run", "/dev/stdin", "--home", str(shared_home)],
        input=one_step.read_text(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment(),
    )
    assert found.returncode == 0, found.stderr
    assert "world" in found.stdout


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-"])
def test_run_works_with_standard_streams_closed(shared_home: Path, one_step: Path, closed: str) -> None:
    words = [*NOETL, "run", str(one_step), "--home", str(shared_home), "-o", "json"]
    found = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words], capture_output=True, text=True, timeout=60, env=environment()
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["status"] == "completed"


@pytest.mark.parametrize(
    ("settings", "drawn", "coloured"),
    [({}, True, True), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, False, False)],
)
def test_a_terminal_gets_a_picture_that_honours_its_settings(
    shared_home: Path, failing: Path, settings: dict[str, str], drawn: bool, coloured: bool
) -> None:
    seen = on_a_terminal(["run", str(failing), "--home", str(shared_home)], {"TERM": "xterm", **settings})
    assert ("✗" in seen) is drawn
    assert (f"{ESCAPE}[31m" in seen) is coloured
    assert seen.count("it is broken") == 1


def on_a_terminal(words: list[str], settings: dict[str, str]) -> str:
    """Everything a command writes when its output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*NOETL, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**settings)
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # Linux says so when the last writer has gone
        pass
    finally:
        os.close(ours)
    process.wait(PATIENCE_S)
    return seen.decode()


CALLING = """apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: calling, path: tests/calling }
workload: { other: tests/any, calls: false }
workflow:
  - step: begin
    tool: { kind: noop }
    next: { arcs: [ { step: call, when: "{{ calls }}" }, { step: choose, when: "{{ workload.calls }}" } ] }
  - { step: call, tool: { kind: playbook, path: tests/not-there } }
  - { step: choose, tool: { kind: playbook, path: "{{ workload.other }}" } }
"""


@pytest.mark.parametrize(
    "words", [("run",), ("execution", "start", "--wait"), ("execution", "start", "--each", "ROWS")]
)
@pytest.mark.parametrize("through", ["nothing", "a gateway"])
def test_a_called_playbook_that_is_not_registered_is_named_before_the_run(
    shared_home: Path, tmp_path: Path, words: tuple[str, ...], through: str
) -> None:
    file, rows = tmp_path / "calling.yaml", tmp_path / "rows.jsonl"
    file.write_text(CALLING)
    rows.write_text("{}\n{}\n")
    target = {"NOETL_HOME": str(shared_home)} | ({} if through == "nothing" else {"NOETL_URL": gateway_of(shared_home)})
    found = noetl(*[rows if word == "ROWS" else word for word in words], file, **target)
    assert found.returncode == 0, found.stderr
    warned = [line for line in found.stderr.splitlines() if "[unregistered_playbook]" in line]
    assert warned == [f"{file}:9:49: warning[unregistered_playbook]: no playbook `tests/not-there` is registered"]
    lines = found.stderr.splitlines()
    assert lines[lines.index(warned[0]) + 1] == "  hint: register it: noetl-stream playbook register FILE"
    assert lines.index(warned[0]) == 0
