"""No data is an order to the terminal that shows it: not in tables, details, errors, progress, logs, JSON or YAML."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from gateway_stage import TOKEN, GatewayStage
from rich.console import Console
from ruamel.yaml import YAML

import warm_program
from noetl_stream.cli.base.output import (
    print_documents,
    print_json,
    print_members,
    print_result,
    print_source,
    print_table,
    print_yaml,
    say,
    say_json,
)
from noetl_stream.cli.execution.display.live_progress import LiveProgress
from noetl_stream.cli.execution.display.progress import PlainProgress
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.executions import ReasonDocument, Start
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.telemetry.structured_logs import configure
from noetl_stream.telemetry.terminal import UNSAFE, json_text, shown

ORDERS = {
    "erases the screen": "\x1b[2J",
    "sets the title": "\x1b]0;owned\x07",
    "begins with C1": "\x9b31m",
    "goes back to the start of the line": "all is well\rfailed",
    "deletes what is before it": "abc\x08\x08\x7f",
    "turns the text around": "\u202egpj.exe",
    "isolates": "\u2066hidden\u2069",
    "breaks the line": "a\u2028b",
    "is a tag": "\U000e0041",
    "is no character": "\ud800",
}
EVIL = "ü" + "".join(ORDERS.values())


@pytest.mark.parametrize("order", ORDERS)
def test_control_characters_of_a_terminal_are_written_out(order: str) -> None:
    text = ORDERS[order]
    assert not re.search(UNSAFE, shown(text))
    assert shown(text) != text
    assert json.loads(json_text({text: [text]})) == {text: [text]}
    assert not re.search(UNSAFE, json_text({text: [text]}))


def test_ordinary_text_is_unchanged() -> None:
    for text in ("Grüße, 世界 🎉 👩‍👩‍👧", "a\tb\nc", ""):
        assert shown(text) == text


PRINTED: dict[str, Callable[[Any], object]] = {
    "words": say,
    "JSON": print_json,
    "JSON that is text": lambda value: say_json(json.dumps(value, ensure_ascii=False)),
    "YAML": print_yaml,
    "a table": lambda value: print_table((EVIL,), [[value], [{EVIL: value}]]),
    "members": lambda value: print_members({"one": value, "list": [value], "deep": {EVIL: value}}),
    "a result": lambda value: print_result({EVIL: value}),
    "rows": lambda value: print_result([{EVIL: value}]),
    "a value": lambda value: print_result([value]),
    **{
        form: lambda value, form=form: print_documents([{"name": value}], form, {"name": "name"}, "name")
        for form in ("table", "json", "jsonl", "yaml", "name")
    },
}


@pytest.mark.parametrize("form", PRINTED)
def test_nothing_that_is_printed_has_an_order(capsys: pytest.CaptureFixture[str], form: str) -> None:
    PRINTED[form](EVIL.replace("\ud800", ""))
    printed = capsys.readouterr()
    assert "ü" in printed.out or "\\xfc" in printed.out.lower()
    assert not re.search(UNSAFE, printed.out + printed.err)


def test_yaml_stays_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": EVIL.replace("\ud800", ""), "list": ["plain"]}
    print_yaml(value)
    assert YAML(typ="safe", pure=True).load(capsys.readouterr().out) == value


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_source_is_exact_in_a_file_and_shown_on_a_terminal(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "name: x  # \x1b[2J \u202e\n"
    there, here = os.openpty() if is_terminal else os.pipe()
    with os.fdopen(here, "w", encoding="utf-8") as output, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        print_source(source)
        output.flush()
        written = os.read(there, 10_000).decode().replace("\r\n", "\n")
    os.close(there)
    assert written == (shown(source) if is_terminal else source)


@pytest.mark.parametrize("live", [True, False])
def test_no_progress_has_an_order(live: bool, capsys: pytest.CaptureFixture[str]) -> None:
    reason = ReasonDocument("admission", EVIL, "", None, None, None, None, [], {})
    console = Console(file=io.StringIO(), width=1_000)
    view = LiveProgress(console) if live else PlainProgress(stderr=True)
    try:
        view.waits([reason])
        if isinstance(view, LiveProgress):
            console.print(view.__rich__())
    finally:
        view.close()
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue() + capsys.readouterr().err
    assert "gpj.exe" in printed
    assert not re.search(UNSAFE, printed)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_line_of_a_log_has_an_order(form: Any) -> None:
    before = logging.getLogger().handlers[:]
    written = io.StringIO()
    try:
        configure("info", form, written)
        log = logging.getLogger("noetl_stream.test")
        log.info("a path: %s", EVIL, extra={"name_of_it": EVIL})
        try:
            raise UsageError(EVIL)
        except UsageError:
            log.exception("failed")
    finally:
        logging.getLogger().handlers[:] = before
    assert not re.search(UNSAFE, written.getvalue())
    assert written.getvalue().count("\n") == 2


PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: evil, path: tests/evil, description: DESCRIPTION, labels: {team: DESCRIPTION}}
workflow:
  - step: start
    spec:
      policy:
        admit:
          wait: {timeout_s: 3600, on_timeout: fail}
          rules:
            - {when: "{{ ctx.go is defined }}", then: {allow: true}}
    tool: {kind: noop}
"""


COMMANDS = (
    "execution list",
    "execution get ID",
    "execution ctx ID",
    "execution events ID",
    "execution why ID",
    "execution steps ID",
    "playbook list",
    "playbook get tests/evil",
    "playbook versions tests/evil",
    "audit list",
    "credential list",
)


async def test_no_command_shows_an_order_that_came_with_data() -> None:
    """Another user's execution, credential, reason and playbook, looked at by an operator."""
    evil = EVIL.replace("\ud800", "")
    in_yaml = f'"{evil.encode("unicode_escape").decode()}"'
    async with GatewayStage(GatewayLimits()).open() as stage:
        await stage.operations.playbooks.register(PLAYBOOK.replace("DESCRIPTION", in_yaml).encode(), "evil", "eve")
        start = Start(path="tests/evil", workload={"text": evil}, reason=evil)
        execution_id = (await stage.operations.executions.start(start, "eve")).execution_id
        address, reason = f"/api/v1/executions/{execution_id}/ctx", {"X-Reason": quote(evil)}
        assert (await stage.client.patch(address, json={"seen": evil}, headers=reason)).status == 200
        await stage.operations.credentials.put("shop", {"token": "hidden"}, "eve", "http", evil, [evil])
        place = {"NOETL_URL": stage.url, "NOETL_TOKEN": TOKEN}
        words = [line.replace("ID", execution_id).split() for line in COMMANDS]
        every = [[*line, "-o", form] for line in words for form in ("table", "json", "yaml")]
        every += [["execution", "get", evil], ["run", evil], ["execution", "list", f"--{evil}"]]
        answered = await asyncio.to_thread(warm_program.all_at_once, every, **place)
        for line, found in zip(every, answered, strict=True):
            assert found.stdout + found.stderr, line
            assert not re.search(UNSAFE, found.stdout + found.stderr), line
            assert found.returncode == (0 if line[-2] == "-o" else found.returncode), (line, found.stderr)
            if line[-1] == "json":
                assert json.loads(found.stdout) is not None


def test_commands_print_through_one_module_and_the_line_of_what_they_do() -> None:
    folder = Path(warm_program.__file__).parents[1] / "src" / "noetl_stream" / "cli"
    printing = re.compile(r"click\.s?echo|(?<![\w.])print\(|sys\.std(out|err)\.write")
    found = [file.name for file in folder.rglob("*.py") if printing.search(file.read_text())]
    assert sorted(found) == ["activity.py", "output.py"]
