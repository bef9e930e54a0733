"""``noetl-stream backup`` with embedded stacks: from one home into another, which has its keys."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from cli_program import NOETL, environment, one_clear_line, only_json
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.sealing.keys import new_key
from warm_program import noetl
from written_backups import write_backup

LARGE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/backup}
workflow:
  - step: large
    tool: {kind: noop, args: {text: "{{ 'large ' * 20000 }}"}}
"""
LISTED = ("name", "generation", "executions", "objects")


@pytest.mark.verify
def test_a_backup_of_one_home_is_restored_into_another(
    own_home: Path, tmp_path: Path, playbook: Callable[[str], Path]
) -> None:
    ended = noetl("run", playbook(LARGE), "--home", own_home, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    execution_id = only_json(ended)["execution_id"]
    noetl("credential", "set", "shop", "--kind", "http", "--set", "token=hidden", "--home", own_home)
    noetl("token", "create", "nightly", "--role", "admin", "--home", own_home)
    made = noetl("backup", "create", "backups", "--name", "first", "--home", own_home, cwd=tmp_path)
    assert (made.returncode, made.stdout) == (0, "backups/first\n"), made.stderr
    listed = only_json(noetl("backup", "list", "backups", "-o", "json", cwd=tmp_path))
    assert [[one[key] for key in LISTED] for one in listed] == [["first", 0, 1, 1]]
    again = noetl("backup", "create", "backups", "--name", "first", "--home", own_home, cwd=tmp_path)
    assert "exists already" in one_clear_line(again)

    other = own_home.parent / "other"
    other.mkdir(mode=0o700)
    for key in own_home.glob("*.key"):
        shutil.copy2(key, other)
    restored = noetl("backup", "restore", "backups/first", "--yes", "--home", other, cwd=tmp_path)
    assert restored.returncode == 0, restored.stderr
    for line in ("credential shop: http", "token nightly: admin, all paths", "which is trusted"):
        assert line in restored.stderr
    assert restored.stdout.startswith("restored 1 executions, ")
    found = noetl("execution", "result", execution_id, "--home", other, "-o", "json")
    assert only_json(found) == only_json(noetl("execution", "result", execution_id, "--home", own_home, "-o", "json"))
    assert json.loads(noetl("credential", "list", "-o", "json", "--home", other).stdout)[0]["name"] == "shop"

    stranger = own_home.parent / "stranger"
    unknown = noetl("backup", "restore", "backups/first", "--yes", "--home", stranger, cwd=tmp_path)
    assert unknown.returncode == 2
    assert "is signed with a key that is not trusted" in one_clear_line(unknown)
    assert not stranger.exists()

    refused = noetl("backup", "restore", "backups/first", "--yes", "--home", own_home, cwd=tmp_path)
    assert refused.returncode == 1
    assert "stream EVENTS" in refused.stderr.splitlines()[-2]


OWN = FileKeys(new_key())
TRUSTING = {"NOETL_BACKUP_TRUSTED_KEYS": OWN.public_key}
ROWS = {
    "api_token": [
        'reports\tviewer\t{team/report,"a, b"}\ttoken:boss\t1796000000000\t\\N',
        "boss\tadmin\t{}\tann\t\\N\t\\N",
        "gone\tadmin\t{}\tann\t\\N\t1",
    ],
    "browser_session": ["t1"],
    "credential": ["shop\thttp", "ho\\\\st\x1b[31m\tpostgres"],
    "aggregate": ['Schedule\tteam/nightly\t{"terms": {"playbook": "team/report"}, "by": "token:boss"}', "Limit\tx\t{}"],
    "catalog": ["team/report\t1", "team/report\t2"],
    "grant_revision": [
        "2\tgrants:\\n- {paths: [team\x1b], credentials: [shop]}\\n\t1796000000000\ttoken:boss",
        "1\tgrants: []\t1795000000000\tann",
    ],
}


def written(folder: Path, keys: FileKeys = OWN, name: str = "nightly") -> Path:
    asyncio.run(write_backup(folder, keys, ROWS, name))
    return folder / name


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """Settings of a machine with neither servers nor keys."""
    return {
        "HOME": str(tmp_path),
        "NOETL_NATS_URL": "nats://127.0.0.1:1",
        "NOETL_POSTGRES_DSN": "postgresql://127.0.0.1:1/x",
    }


def test_verify_says_who_has_signed_and_is_content_with_a_trusted_key_only(
    tmp_path: Path, nowhere: dict[str, str]
) -> None:
    signed, unsigned = written(tmp_path), written(tmp_path, FileKeys(), "old")
    trusted = noetl("backup", "verify", signed, **nowhere, **TRUSTING)
    assert (trusted.returncode, trusted.stderr) == (0, "")
    assert trusted.stdout.splitlines() == [
        f"{signed} is whole: 0 executions, 0 journal entries, 1 objects",
        f"signed with {OWN.public_key}, which is trusted",
    ]
    private = noetl("backup", "verify", signed, **nowhere, NOETL_BACKUP_SIGNING_KEY=OWN.signing_key)
    assert private.stdout == trusted.stdout
    unknown = noetl("backup", "verify", signed, **nowhere)
    assert unknown.returncode == 1
    assert unknown.stdout.splitlines()[1:] == [f"{signed} is signed with a key that is not trusted: {OWN.public_key}"]
    assert "NOETL_BACKUP_TRUSTED_KEYS" in unknown.stderr
    old = noetl("backup", "verify", unsigned, **nowhere, **TRUSTING)
    assert (old.returncode, "--unsigned" in old.stderr) == (1, True)
    assert old.stdout.splitlines()[1] == f"{unsigned} is not signed: whoever can write there may have made it"
    accepted = noetl("backup", "verify", unsigned, "--unsigned", **nowhere, **TRUSTING)
    assert (accepted.returncode, accepted.stdout.splitlines()[1]) == (0, "not signed")
    listed = noetl("backup", "list", tmp_path, "-o", "json", **nowhere, **TRUSTING)
    assert {one["name"]: one["signature"] for one in only_json(listed)} == {"nightly": "trusted", "old": "none"}


def test_verify_says_when_an_older_backup_stands_under_another_name(tmp_path: Path, nowhere: dict[str, str]) -> None:
    shutil.copytree(written(tmp_path), tmp_path / "newest")
    moved = noetl("backup", "verify", tmp_path / "newest", **nowhere, **TRUSTING)
    assert moved.returncode == 0
    assert "it was made as 'nightly', 2026-11-29T02:17:00Z" in moved.stdout.splitlines()[2]


def test_a_backup_shows_where_it_is_from_and_what_it_brings(tmp_path: Path, nowhere: dict[str, str]) -> None:
    folder = written(tmp_path)
    shown = noetl("backup", "show", folder, **nowhere, **TRUSTING)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines() == [
        f"{folder}, made 2026-11-29T02:17:00Z by ann@host as 'nightly'",
        "with release 0.4.0, from postgresql://db.example/noetl",
        "generation 3, schema 0034_limit_slot",
        f"signed with {OWN.public_key}, which is trusted",
        "0 executions, 0 journal entries, 1 objects",
        "it brings",
        "  token boss: admin, all paths, made by ann",
        "  token reports: viewer, team/report, a, b, made by token:boss, until 2026-11-30T00:53:20.000+00:00",
        "  2 valid tokens, 1 revoked ones, 1 browser sessions",
        "  credential shop: http",
        r"  credential ho\st\x1b[31m: postgres",
        "  schedule team/nightly: starts team/report for token:boss",
        "  1 registered playbooks",
        "  revision 2 of the grants, registered by token:boss:",
        "    grants:",
        r"    - {paths: [team\x1b], credentials: [shop]}",
    ]
    document = only_json(noetl("backup", "show", folder, "-o", "json", **nowhere, **TRUSTING))
    assert document["brings"]["tokens"][1]["paths"] == ["team/report", "a, b"]
    assert (document["made_by"], document["signature"]) == ("ann@host", "trusted")


def test_a_restore_shows_what_it_brings_and_asks(tmp_path: Path, nowhere: dict[str, str]) -> None:
    folder = written(tmp_path)
    asked = noetl("backup", "restore", folder, **nowhere, **TRUSTING)
    assert asked.returncode == 2
    assert "  token boss: admin, all paths, made by ann\n" in asked.stderr
    assert f"this would restore {folder}, and there is no terminal to ask at" in asked.stderr
    assert "--yes" in asked.stderr.splitlines()[-1]
    confirmed = noetl("backup", "restore", folder, "--yes", **nowhere, **TRUSTING)
    assert (confirmed.returncode, "token boss" in confirmed.stderr) == (3, True), "it goes on to the servers"
    for more in ((), ("--objects-only",)):
        refused = noetl("backup", "restore", folder, "--yes", *more, **nowhere)
        assert refused.returncode == 2
        assert "is signed with a key that is not trusted" in one_clear_line(refused)


def test_a_restore_that_is_not_confirmed_restores_nothing(tmp_path: Path, nowhere: dict[str, str]) -> None:
    folder = written(tmp_path)
    ours, theirs = pty.openpty()
    command = [*NOETL, "backup", "restore", str(folder)]
    given = environment(**nowhere, **TRUSTING)
    asking = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=given, start_new_session=True)
    os.close(theirs)
    seen = b""
    for awaited, answer in ((b"[y/N]: ", b"n\n"), (b"nothing was restored", b"")):
        while awaited not in seen:
            seen += os.read(ours, 1000)
        os.write(ours, answer)
    assert asking.wait(60) == 1
    os.close(ours)
    assert b"token boss: admin, all paths" in seen


def test_a_restore_without_the_key_that_decrypts_says_which_it_needs(tmp_path: Path, nowhere: dict[str, str]) -> None:
    made = noetl("backup", "make-key", tmp_path / "reader.key", "--encryption")
    recipient = made.stdout.strip()
    folder = written(tmp_path, replace(OWN, recipients=(recipient,)))
    verified = noetl("backup", "verify", folder, **nowhere, **TRUSTING)
    assert (verified.returncode, "its rows and objects were not looked at" in verified.stdout) == (0, True)
    for command in ("show", "restore"):
        refused = noetl("backup", command, folder, **nowhere, **TRUSTING)
        assert refused.returncode == 2
        assert f"is encrypted to {recipient}" in one_clear_line(refused)
    opening = {**nowhere, **TRUSTING, "NOETL_BACKUP_IDENTITY_FILE": str(tmp_path / "reader.key")}
    assert "token boss" in noetl("backup", "show", folder, **opening).stdout
    assert "not looked at" not in noetl("backup", "verify", folder, **opening).stdout


def test_a_pair_of_keys_is_made_for_its_owner_alone_and_never_replaced(tmp_path: Path, nowhere: dict[str, str]) -> None:
    made = noetl("backup", "make-key", tmp_path / "sign.key")
    assert (made.returncode, (tmp_path / "sign.key").stat().st_mode & 0o777) == (0, 0o600)
    again = noetl("backup", "make-key", tmp_path / "sign.key")
    assert (again.returncode, "exists already" in one_clear_line(again)) == (2, True)
    absent = noetl("backup", "make-key", tmp_path / "absent" / "sign.key")
    assert (absent.returncode, "No such file" in one_clear_line(absent)) == (2, True)
    given = {**nowhere, "NOETL_BACKUP_SIGNING_KEY_FILE": str(tmp_path / "sign.key"), **TRUSTING}
    listed = only_json(noetl("backup", "keys", "-o", "json", **given))
    assert [(one["files"], one["use"], one["key"]) for one in listed] == [
        ("backup", "sign", made.stdout.strip()),
        ("backup", "trust", OWN.public_key),
    ]


def test_a_damaged_backup_is_named_and_exits_with_1(tmp_path: Path) -> None:
    missing = noetl("backup", "verify", tmp_path)
    assert missing.returncode == 2
    assert "is not a finished backup" in missing.stderr
