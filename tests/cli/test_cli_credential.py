"""``noetl-stream credential``: values go in and never come out."""

from __future__ import annotations

import getpass
import json
import os
import pty
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli_program import NOETL, environment, one_clear_line, only_json
from noetl_stream.cli.credential import credential
from noetl_stream.errors import UsageError
from noetl_stream.sealing.keys import new_key
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

SECRET = "cli-s3cret-value"
LATIN = "first line\ncafé".encode("latin-1")


def fed(home: Path, value: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """``credential set`` with ``value`` on standard input."""
    command = [*NOETL, "credential", "set", *arguments, "--value-stdin", "--home", str(home)]
    return subprocess.run(
        command, input=value, capture_output=True, text=True, timeout=60, env=environment(**settings), check=False
    )


def shown(home: Path, name: str) -> Any:
    return only_json(noetl("credential", "show", name, "-o", "json", "--home", home))


def test_a_credential_is_stored_listed_shown_and_deleted_without_its_value(shared_home: Path) -> None:
    stored = fed(
        shared_home, SECRET, "cli_all", "--kind", "http", "--tag", "a", "--tag", "b", "--description", "an API"
    )
    assert stored.returncode == 0, stored.stderr
    assert stored.stdout.startswith("stored cli_all, version 1, with key ")
    listed = noetl("credential", "list", "--home", shared_home)
    table = noetl("credential", "show", "cli_all", "--home", shared_home)
    found = shown(shared_home, "cli_all")
    assert (found["name"], found["kind"], found["tags"], found["version"]) == ("cli_all", "http", ["a", "b"], 1)
    rows = only_json(noetl("credential", "list", "-o", "json", "--home", shared_home))
    assert found in rows
    assert "cli_all" in listed.stdout and "an API" in listed.stdout and "tags: a, b" in table.stdout
    deleted = noetl("credential", "delete", "cli_all", "--home", shared_home)
    assert deleted.stdout == "deleted cli_all\n"
    for ended in (stored, listed, table, deleted):
        assert SECRET not in ended.stdout + ended.stderr
    assert "credential 'cli_all' not found" in one_clear_line(
        noetl("credential", "show", "cli_all", "--home", shared_home)
    )


def test_a_value_comes_from_a_file_or_from_members(shared_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "value.json"
    file.write_text(json.dumps({"token": SECRET}))
    assert noetl("credential", "set", "cli_file", "--file", file, "--home", shared_home).returncode == 0
    members = ["--set", "username=ann", "--set", f"password={SECRET}=x"]
    found = noetl("credential", "set", "cli_file", *members, "--home", shared_home)
    assert found.returncode == 0
    assert found.stderr == "warning: other users of this machine can see values on the command line\n"
    assert shown(shared_home, "cli_file")["version"] == 2


def test_a_value_is_asked_for_twice_on_a_terminal_and_not_shown(shared_home: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*NOETL, "credential", "set", "cli_typed", "--home", str(shared_home)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(), start_new_session=True
    )
    os.close(theirs)
    seen = b""
    for prompt in (b"Value: ", b"confirmation: "):
        while prompt.lower() not in seen.lower():
            seen += os.read(ours, 1000)
        os.write(ours, f"{SECRET}\n".encode())
    while b"stored cli_typed" not in seen:
        seen += os.read(ours, 1000)
    assert process.wait(60) == 0
    os.close(ours)
    assert SECRET.encode() not in seen


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cli_wrong"], "no value given"),
        (["cli_wrong", "--set", "a=long enough", "--value-stdin"], "cannot be combined"),
        (["cli_wrong", "--set", "novalue"], "--set expects KEY=VALUE"),
        (["cli_wrong", "--value-stdin"], "standard input is empty"),
        (["cli wrong", "--set", "a=long enough"], "'cli wrong' is not a valid credential name"),
        (["cli_wrong", "--set", "password=abc"], "fewer than 4 characters"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused(shared_home: Path, arguments: list[str], problem: str) -> None:
    found = noetl("credential", "set", *arguments, "--home", shared_home)
    assert found.returncode == 2
    assert problem in found.stderr
    assert "abc" not in found.stderr


@pytest.mark.parametrize(
    ("where", "refused"),
    [
        ("--value-stdin", "stdin:2: byte 0xe9 is not UTF-8"),
        ("--file", "value:2: byte 0xe9 is not UTF-8"),
    ],
)
def test_a_value_that_is_not_utf_8_is_named_with_the_line(tmp_path: Path, where: str, refused: str) -> None:
    (tmp_path / "value").write_bytes(LATIN)
    file = [str(tmp_path / "value")] if where == "--file" else []
    found = CliRunner().invoke(credential, ["set", "cli_wrong", where, *file], input=LATIN)
    assert isinstance(found.exception, UsageError) and found.exception.message.endswith(refused)
    assert "UTF-8" in (found.exception.hint or "")


def test_a_json_value_that_is_broken_is_refused_without_being_shown(shared_home: Path) -> None:
    found = fed(shared_home, '{"password": "hidden-value"', "cli_wrong")
    assert "standard input starts like a JSON object but is not valid JSON" in one_clear_line(found)
    assert "hidden-value" not in found.stderr


def test_rotation_seals_everything_with_an_own_key(shared_home: Path) -> None:
    fed(shared_home, SECRET, "cli_rotated")
    before = shown(shared_home, "cli_rotated")["key_id"]
    own, other = new_key(), new_key()
    rotated = noetl("credential", "rotate", "--home", shared_home, NOETL_CREDENTIAL_KEY=own)
    assert rotated.returncode == 0 and rotated.stdout.endswith("credentials with the current key\n")
    after = shown(shared_home, "cli_rotated")
    assert after["key_id"] != before
    assert after["version"] == 1
    lost = noetl("credential", "rotate", "--home", shared_home, NOETL_CREDENTIAL_KEY=other)
    assert lost.returncode == 1
    assert f"encrypted with key {after['key_id']}, which is not configured" in lost.stderr
    back = noetl(
        "credential", "rotate", "--home", shared_home, NOETL_CREDENTIAL_OLD_KEYS=own, NOETL_CREDENTIAL_KEY=other
    )
    assert back.returncode == 0
    made = (shared_home / "credential.key").read_text()
    home = noetl(
        "credential", "rotate", "--home", shared_home, NOETL_CREDENTIAL_OLD_KEYS=other, NOETL_CREDENTIAL_KEY=made
    )
    assert home.returncode == 0
    assert shown(shared_home, "cli_rotated")["key_id"] == before


def test_the_audit_says_who_stored_and_deleted_one(shared_home: Path) -> None:
    fed(shared_home, SECRET, "cli_audited")
    assert noetl("credential", "delete", "cli_audited", "--home", shared_home).returncode == 0
    found = only_json(noetl("audit", "list", "--home", shared_home, "-o", "json"))
    entries = [entry for entry in found if entry["target"] == "cli_audited"]
    assert [(entry["operation"], entry["status"]) for entry in entries] == [
        ("deleteCredential", 204),
        ("putCredential", 200),
    ]
    assert {entry["principal"] for entry in entries} == {getpass.getuser()}
    assert SECRET not in str(found)


def test_the_audit_can_be_verified(shared_home: Path) -> None:
    fed(shared_home, SECRET, "cli_verified")
    verified = noetl("audit", "verify", "--home", shared_home)
    assert verified.returncode == 0, verified.stderr
    assert "no faults" in verified.stdout


def test_the_embedded_stacks_key_is_its_owners_alone(shared_home: Path) -> None:
    assert stat.S_IMODE((shared_home / "credential.key").stat().st_mode) == 0o600


PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: keychain, path: tests/keychain}
keychain:
- {name: token, kind: credential, credential: cli_used}
workflow:
- step: read
  tool:
    kind: python
    args: {token: "{{ keychain.token }}"}
    code: "result = {'length': len(token), 'said': f'<{token}>'}"
"""


def test_a_playbook_uses_what_was_stored(shared_home: Path, tmp_path: Path) -> None:
    assert fed(shared_home, SECRET, "cli_used").returncode == 0
    file = tmp_path / "keychain.yaml"
    file.write_text(PLAYBOOK)
    found = noetl("run", file, "-o", "json", "--home", shared_home)
    assert found.returncode == 0, found.stderr
    assert only_json(found)["result"] == {"length": len(SECRET), "said": "<***>"}
