"""Mistakes of a person: one clear line, the right exit code, never a traceback."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from cli_program import one_clear_line
from noetl_stream.sealing.keys import new_key
from warm_program import all_at_once, noetl

NOBODY_LISTENS = "nats://127.0.0.1:1"
NO_POSTGRES = "postgresql://someone:secret@127.0.0.1:1/nothing"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    found = noetl("run", tmp_path / "absent.yaml")
    assert found.returncode == 2
    assert "absent.yaml: no such file" in one_clear_line(found)


def test_a_folder_is_not_a_playbook(tmp_path: Path) -> None:
    found = noetl("run", tmp_path)
    assert found.returncode == 2
    assert "is a folder" in one_clear_line(found)


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\x00\x00\xd0", b"apiVersion: \xff\xfe", b"name: caf\xe9"])
def test_a_file_that_is_not_text_is_named_with_its_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(content)
    found = noetl("run", file)
    assert found.returncode == 2
    assert found.stdout == ""
    assert re.fullmatch(
        rf"noetl-stream: {re.escape(str(file))}:1: byte 0x[0-9a-f]{{2}} is not UTF-8\n  save the file as UTF-8\n",
        found.stderr,
    )


def test_an_invalid_playbook_gets_all_its_diagnostics_and_nothing_is_started(tmp_path: Path, fresh_home: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: b}\n"
        "workflow:\n  - step: start\n    tol: {kind: noop}\n  - step: other\n    tool: {kind: nop}\n"
    )
    found = noetl("run", file, "--home", fresh_home)
    assert found.returncode == 2
    assert found.stdout == ""
    lines = [line for line in found.stderr.splitlines() if ": error[" in line]
    assert [line.removeprefix(f"{file}:").split(":")[0] for line in lines] == ["6", "8"] or len(lines) >= 2
    assert "did you mean" in found.stderr
    assert not fresh_home.exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--set", "alone"),
        ("--set", "=1"),
        ("--set-string", "a..b=1"),
        ("--set", ".a=1"),
        ("--workload", "absent.yaml"),
        ("--workload", "."),
    ],
)
def test_a_workload_option_that_cannot_be_is_named(one_step: Path, options: tuple[str, str]) -> None:
    found = noetl("run", one_step, *options)
    assert found.returncode == 2
    assert options[0] in one_clear_line(found)


@pytest.mark.parametrize(
    "content", [b"[1, 2]", b"{a: ", b"\xff", b"a: 2020-01-01\nb: !!python/object:os.system x", b""]
)
def test_a_workload_file_must_hold_a_mapping_of_plain_values(one_step: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "workload.yaml"
    file.write_bytes(content)
    found = noetl("run", one_step, "--workload", file)
    assert found.returncode == 2
    assert "--workload" in one_clear_line(found)


@pytest.mark.parametrize("options", [("--timeout", "0"), ("--timeout", "soon"), ("-o", "xml"), ("--home", "")])
def test_an_option_that_cannot_be_is_a_usage_error(one_step: Path, options: tuple[str, str]) -> None:
    found = noetl("run", one_step, *options)
    assert found.returncode == 2
    assert f"Invalid value for '{options[0]}" in found.stderr
    assert "Traceback" not in found.stderr


def test_one_own_server_is_not_enough(one_step: Path) -> None:
    found = noetl("run", one_step, NOETL_POSTGRES_DSN=NO_POSTGRES)
    assert found.returncode == 2
    assert "NOETL_NATS_URL" in one_clear_line(found)


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("server", "NOETL_POSTGRES_DSN NOETL_SERVER_KEY NOETL_ACCESS_KEY"),
        ("dev", "NOETL_POSTGRES_DSN NOETL_SERVER_KEY NOETL_ACCESS_KEY"),
        ("gateway", "NOETL_POSTGRES_DSN NOETL_ACCESS_KEY"),
        ("execution list", "NOETL_POSTGRES_DSN NOETL_ACCESS_KEY"),
        ("database migrate", "NOETL_POSTGRES_DSN"),
    ],
)
def test_all_missing_settings_for_own_servers_are_reported_at_once(command: str, needed: str) -> None:
    found = noetl(*command.split(), NOETL_NATS_URL=NOBODY_LISTENS)
    assert found.returncode == 2
    message = one_clear_line(found)
    assert [word for word in message.replace(",", " ").split() if word.startswith("NOETL_")] == needed.split()
    assert "`noetl-stream setup --nats URL --postgres URL`" in message


def test_a_nats_that_does_not_answer_is_named(one_step: Path) -> None:
    found_all = all_at_once(
        [("run", one_step), ("stream", "ensure")],
        NOETL_NATS_URL=NOBODY_LISTENS,
        NOETL_POSTGRES_DSN=NO_POSTGRES,
        NOETL_ACCESS_KEY=new_key(),
    )
    for found in found_all:
        assert found.returncode == 3, found.args
        assert "cannot reach NATS at nats://127.0.0.1:1" in one_clear_line(found), found.args


def test_a_postgres_that_does_not_answer_is_named_without_its_password() -> None:
    found = noetl("database", "migrate", NOETL_NATS_URL=NOBODY_LISTENS, NOETL_POSTGRES_DSN=NO_POSTGRES)
    assert found.returncode == 3
    message = one_clear_line(found)
    assert "Postgres at" in message
    assert "127.0.0.1:1" in message
    assert "secret" not in message


def test_a_port_where_something_else_listens_is_not_nats(one_step: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"nats://127.0.0.1:{other.getsockname()[1]}"
        found = noetl("run", one_step, NOETL_NATS_URL=url, NOETL_POSTGRES_DSN=NO_POSTGRES, NOETL_ACCESS_KEY=new_key())
    assert found.returncode == 3
    assert f"cannot reach NATS at {url}" in one_clear_line(found)


def test_a_home_that_is_a_file_is_named(one_step: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = noetl("run", one_step, "--home", file)
    assert found.returncode == 2
    assert "must be a folder" in one_clear_line(found)


@pytest.mark.parametrize("command", [("run", "FILE"), ("dev",), ("execution", "list"), ("background",)])
def test_a_home_that_cannot_be_made_is_named(one_step: Path, command: tuple[str, ...]) -> None:
    words = [one_step if word == "FILE" else word for word in command]
    found = noetl(*words, "--home", "/proc/noetl")
    assert found.returncode == 3
    assert "/proc/noetl" in one_clear_line(found)


@pytest.mark.parametrize(
    ("variable", "value"), [("NOETL_SLOTS", "many"), ("NOETL_LOG_LEVEL", "loud"), ("NOETL_POOL", "a b")]
)
def test_a_variable_that_cannot_be_is_named(variable: str, value: str) -> None:
    found = noetl("worker", **{variable: value})
    assert found.returncode == 2
    assert variable in one_clear_line(found)
