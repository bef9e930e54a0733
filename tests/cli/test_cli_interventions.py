"""``execution patch|signal|token|cancel|pause|resume`` as a newcomer tries them, the wrong way too."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_program import HEAD, one_clear_line, only_json
from noetl_stream.cli.execution.workload import workload_of
from noetl_stream.sealing.keys import new_key
from warm_program import all_at_once, noetl

WAITS = (
    HEAD
    + """\
metadata: {name: asks, path: tests/asks}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: ear}, {step: gate}]}
  - step: ear
    tool:
      - {name: hear, kind: wait, signal: go, timeout_s: 600}
      - {name: tell, kind: noop, args: {heard: "{{ hear }}"}}
  - step: gate
    spec:
      policy:
        admit:
          rules: [{when: "{{ ctx.open | default(false) }}", then: {allow: true}}]
          wait: {timeout_s: 600}
    tool: {kind: noop, args: {ctx: "{{ ctx }}"}}
"""
)
VERBS = {
    "patch": ("--set", "a=1"),
    "signal": ("go",),
    "token": ("gate",),
    "cancel": (),
    "pause": (),
    "resume": (),
    "retry-now": (),
}

Program = Callable[..., subprocess.CompletedProcess[str]]


class Waiting:
    """An execution that waits for a signal and for a patch."""

    def __init__(self, home: Path, execution_id: str) -> None:
        self.home = home
        self.execution_id = execution_id

    def ask(self, verb: str, *words: object) -> subprocess.CompletedProcess[str]:
        return noetl("execution", verb, self.execution_id, *words, "--home", self.home)

    def refused(self, verb: str, *words: object, code: int) -> str:
        """What is said when it cannot be: one clear line, and this code."""
        found = self.ask(verb, *words)
        assert found.returncode == code, found
        return one_clear_line(found)

    def described(self) -> Any:
        return only_json(self.ask("get", "-o", "json"))

    def ended(self) -> Any:
        """Asks until it has ended: each answer takes a while."""
        for _ in range(100):
            found = self.described()
            if found["status"] not in ("running", "waiting"):
                break
        return found


@pytest.fixture
def waiting(shared_home: Path, playbook: Callable[[str], Path]) -> Waiting:
    begun = noetl("run", playbook(WAITS), "--home", shared_home, "--timeout", "1")
    (execution_id,) = re.findall(r"execution (\S+) continues", begun.stderr)
    return Waiting(shared_home, execution_id)


pytestmark = pytest.mark.xdist_group("stack")


def test_get_says_what_is_waited_for_and_until_when(waiting: Waiting) -> None:
    shown = waiting.ask("get").stdout
    assert re.search(r"^ear\.hear waits for signal go, until \d{4}-", shown, re.M)
    assert re.search(r"^gate waits for admission, until \d{4}-", shown, re.M)
    found = waiting.described()
    assert found["status"] == "waiting"
    assert sorted((wait["step"], wait["for"]) for wait in found["waits"]) == [
        ("ear", "signal go"),
        ("gate", "admission"),
    ]


def test_a_signal_and_a_patch_answer_an_approval(waiting: Waiting) -> None:
    reply = waiting.ask("signal", "go", "--payload", '{"by": "ada"}')
    assert (reply.returncode, reply.stderr) == (0, "")
    assert re.fullmatch(rf"{waiting.execution_id}: done, at position \d+\n", reply.stdout)
    answer = only_json(waiting.ask("patch", "--set", "open=true", "--set-string", "n=1", "-o", "json"))
    assert answer.keys() == {"execution_id", "position"}
    found = waiting.ended()
    assert (found["status"], found["result"], found["waits"]) == ("completed", {"ctx": {"n": "1", "open": True}}, [])
    assert waiting.refused("signal", "go", code=1) == (
        f"noetl-stream: execution {waiting.execution_id} has ended (completed)\n"
    )


@pytest.mark.parametrize("verb", VERBS)
def test_an_id_that_names_no_execution_is_a_usage_error(shared_home: Path, verb: str) -> None:
    found = noetl("execution", verb, "no-such-id", *VERBS[verb], "--home", shared_home)
    assert found.returncode == 2
    assert one_clear_line(found).startswith("noetl-stream: execution no-such-id not found\n")


@pytest.mark.parametrize("execution_id", ["", "a b", "a.b", "x" * 65, "*"])
def test_an_impossible_id_is_a_usage_error(execution_id: str) -> None:
    found = noetl("execution", "cancel", execution_id, "--home", "/nowhere/at/all")
    assert found.returncode == 2
    assert "is not an execution id" in one_clear_line(found)


@pytest.mark.parametrize(("verb", "word"), [("signal", "NAME"), ("token", "STEP"), ("pause", "ID")])
def test_a_word_that_is_missing_is_named(verb: str, word: str) -> None:
    found = noetl("execution", verb, *(["some-id"] if word != "ID" else []))
    assert (found.returncode, found.stdout) == (2, "")
    assert f"Missing argument '{word}'" in found.stderr


def test_a_repeated_request_succeeds_with_a_notice(waiting: Waiting) -> None:
    already = f"{waiting.execution_id}: already done\n"
    assert waiting.ask("resume").stdout == already
    assert "done" in waiting.ask("pause").stdout
    second = waiting.ask("pause")
    assert (second.returncode, second.stdout) == (0, already)
    assert only_json(waiting.ask("pause", "-o", "json")) == {"execution_id": waiting.execution_id, "already": True}
    assert waiting.described()["status"] == "paused"
    assert "done" in waiting.ask("cancel", "--reason", "enough").stdout
    assert waiting.refused("cancel", code=1).endswith("has ended (cancelled)\n")
    found = waiting.described()
    assert (found["status"], found["error"]["message"]) == ("cancelled", "enough")
    assert {step["step"]: step["status"] for step in found["steps"]} == {"start": "done", "ear": "cancelled"}
    assert "error: cancelled: enough\n" in waiting.ask("get").stdout


def test_a_token_to_an_unknown_step_is_refused_with_those_there_are(waiting: Waiting) -> None:
    reply = waiting.refused("token", "gaet", code=1)
    assert reply == "noetl-stream: playbook tests/asks has no step gaet; it has start, ear, gate\n"


def test_a_patch_that_cannot_be_is_refused_before_anything_changes(waiting: Waiting, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_text(json.dumps({"a": "x" * 1_100_000}))
    for words, code, why in (
        ((), 2, "nothing to patch"),
        (("--set", "a"), 2, "--set 'a': expected KEY=VALUE"),
        (("--set", "a.b=1"), 2, "'a.b=1' would replace all of 'a'"),
        (("--file", tmp_path / "absent.yaml"), 2, "--file"),
        (("--if-version", "7", "--set", "a=1"), 1, "ctx is at version 1, not 7: read it again"),
        (("--file", large), 1, "limits.max_ctx_bytes is 1048576"),
    ):
        assert why in waiting.refused("patch", *words, code=code)
    assert waiting.described()["ctx"] == {}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a: .nan", "Out of range float values"),
        ("a: .inf", "Out of range float values"),
        ("[1, 2]", "expected a mapping"),
        ("{a: ", "not YAML or JSON"),
        ('{"a": ' + "[" * 2000 + "]" * 2000 + "}", "nested more than 200 levels deep"),
    ],
    ids=["nan", "infinity", "a list", "half", "deep"],
)
def test_a_file_of_keys_must_hold_plain_values(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(content)
    found = noetl("execution", "patch", "some-id", "--file", file)
    assert found.returncode == 2
    reply = one_clear_line(found)
    assert reply.startswith(f"noetl-stream: --file {file}: ") and why in reply


@pytest.mark.parametrize(
    "text", ['{"n": 12345678901234567.89, "list": [0.5, 1]}', "n: 1234567890123456.789_1\n2: .5\nx: 1.5e3"]
)
def test_digits_that_a_file_loses_are_named_in_json_and_yaml(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(text)
    assert workload_of(file, (), ())["n"] == float(re.findall('n"?: ([0-9._]+)', text)[0])
    said = capsys.readouterr().err
    assert said.startswith(f"warning: --workload {file}: digits are lost") and said.endswith(": /n\n")


def test_a_file_that_is_not_utf_8_is_named_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_bytes("a: 1\nb: café\n".encode("latin-1"))
    found = noetl("execution", "patch", "some-id", "--file", file)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == f"noetl-stream: --file {file}:2: byte 0xe9 is not UTF-8\n  save the file as UTF-8\n"


def test_a_merge_goes_deep_and_null_deletes(waiting: Waiting) -> None:
    version = waiting.described()["ctx_version"]
    assert waiting.ask("patch", "--set", 'order={"a": 1, "b": 2}', "--if-version", version).returncode == 0
    (shown,) = re.findall(r"^ctx, version (\d+):$", waiting.ask("get").stdout, re.M)
    words = ("--merge", "--set", "order.b=3", "--set", "order.a=null", "--if-version", shown)
    assert waiting.ask("patch", *words).returncode == 0
    assert waiting.refused("patch", *words, code=1).endswith("read it again\n")
    assert waiting.described()["ctx"] == {"order": {"b": 3}}


def test_a_value_that_is_not_json_stays_text_and_is_never_lost(waiting: Waiting) -> None:
    assert waiting.ask("patch", "--set", "a=NaN", "--set", "b=1e999", "--set", "c=-Infinity").returncode == 0
    assert waiting.described()["ctx"] == {"a": "NaN", "b": "1e999", "c": "-Infinity"}
    assert waiting.ask("signal", "go", "--payload", '{"a": NaN}').returncode == 0
    processed = [
        event["data"]
        for event in only_json(waiting.ask("events", "-o", "json"))
        if event["name"] == "task.processed" and event["data"]["task"] == "hear"
    ]
    assert [fact["outcome"]["result"]["value"] for fact in processed] == ['{"a": NaN}']


def test_a_signal_that_cannot_be_is_refused(waiting: Waiting) -> None:
    assert "the name of a signal must not be empty" in waiting.refused("signal", "", code=2)
    payload = json.dumps("x" * 70_000)
    reply = waiting.refused("signal", "go", "--payload", payload, code=1)
    assert reply == "noetl-stream: the payload has 70002 bytes; limits.max_inline_bytes is 65536\n"


def test_a_command_on_a_new_home_reports_that_nothing_is_there(fresh_home: Path) -> None:
    """A home that nobody has used is made ready by looking at it; no server is started for an id that is not there."""
    found = noetl("execution", "cancel", "some-id", "--home", fresh_home)
    assert (found.returncode, one_clear_line(found).splitlines()[0]) == (2, "noetl-stream: execution some-id not found")
    assert not (fresh_home / "background.log").exists()
    assert only_json(noetl("execution", "list", "--home", fresh_home, "-o", "json")) == []


def test_servers_that_do_not_answer_are_named() -> None:
    away = {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_POSTGRES_DSN": "postgresql://u:secret@127.0.0.1:1/n"}
    away["NOETL_ACCESS_KEY"] = new_key()
    for found in all_at_once([("execution", verb, "some-id", *words) for verb, words in VERBS.items()], **away):
        assert found.returncode == 3, found.args
        reply = one_clear_line(found)
        assert "cannot reach NATS at nats://127.0.0.1:1" in reply and "secret" not in reply, found.args
