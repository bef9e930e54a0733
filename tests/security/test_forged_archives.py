"""Whoever can write where archives are kept tries to have read, or deleted unarchived, what nobody archived."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from noetl_stream.adapters.archive import ParquetArchive
from noetl_stream.adapters.files.folder import FolderFiles
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    ExecutionFilter,
    ListedExecutionDocument,
    ResultDocument,
)
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER, worker_identity
from noetl_stream.sealing.age import new_identity, recipient_of
from noetl_stream.sealing.chunk_reader import CHUNK_BYTES
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.sealing.keys import new_key
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import own_endpoint
from warm_program import noetl

OWN = FileKeys(new_key())
STRANGER = FileKeys(new_key())
IDENTITY = new_identity()
FIRST, SECOND = "019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-8000-000000000002"
SHOWN = {"status": "completed", "error": None, "result": None}
LISTED = SHOWN | {
    "path": "team/report",
    "version": None,
    "digest": "d",
    "duration_s": 1.0,
    "labels": {},
    **dict.fromkeys(("started", "updated", "finished"), "2026-11-29T02:17:00.000+00:00"),
}
DOCUMENT = LISTED | {
    "ctx": {},
    "ctx_version": 0,
    "position": 7,
    "discarded_tokens": 0,
    "trace_id": "",
    "principal": "ann",
    **dict.fromkeys(("discarded", "warnings", "rerun_of", "parent", "steps", "waits")),
}


def archive_in(folder: Path, keys: FileKeys = OWN) -> ParquetArchive:
    return ParquetArchive(FolderFiles(folder), keys)


def put(folder: Path, execution_id: str, keys: FileKeys = OWN, result: str = "") -> Path:
    """Archives an execution with this result; returns its file."""
    batch = archive_in(folder, keys).begin()
    batch.add(
        converted(LISTED, ListedExecutionDocument, execution_id),
        converted(DOCUMENT | {"result": result}, ExecutionDocument, execution_id),
        converted(SHOWN | {"result": result}, ResultDocument, execution_id),
    )
    batch.finish()
    (file,) = (path for path in folder.rglob(f"{execution_id}*") if path.suffix in (".parquet", ".age"))
    return file


def converted(fields: dict[str, Any], kind: Any, execution_id: str) -> Any:
    return msgspec.convert({**fields, "execution_id": execution_id}, kind)


def beside(file: Path, end: str) -> Path:
    return file.with_name(file.name + end)


def refusals(folder: Path, keys: FileKeys = OWN) -> set[str]:
    """Why an archived execution is not shown by any read."""
    archive, found = archive_in(folder, keys), set()
    for read in (
        lambda: archive.get(FIRST),
        lambda: archive.result(FIRST),
        lambda: archive.events(FIRST, 0, None),
        lambda: archive.page(ExecutionFilter(), 10, None),
    ):
        with pytest.raises(UsageError) as refused:
            read()
        found.add(refused.value.message)
    return found


def test_an_unsigned_archive_is_read_only_on_request(tmp_path: Path) -> None:
    file = put(tmp_path, FIRST, FileKeys(), result="planted")
    (message,) = refusals(tmp_path)
    assert message == f"archive {file} is not signed: whoever can write there may have made it"
    assert archive_in(tmp_path, replace(OWN, accepts_unsigned=True)).result(FIRST).result == "planted"


def test_an_archive_signed_by_a_stranger_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, FIRST, STRANGER)
    (message,) = refusals(tmp_path)
    assert f"is signed with a key that is not trusted: {STRANGER.public_key}" in message
    trusting = replace(OWN, trusted_keys=(STRANGER.public_key,))
    assert archive_in(tmp_path, trusting).get(FIRST).position == 7


def test_a_file_under_the_signature_of_another_is_not_read(tmp_path: Path) -> None:
    mine = put(tmp_path / "own", FIRST)
    shutil.copy(put(tmp_path / "strange", FIRST, STRANGER, result="planted"), mine)
    assert "is damaged" in "".join(refusals(tmp_path / "own"))
    second = put(tmp_path / "second", SECOND)
    for end in (".sums", ".sums.sig"):
        shutil.copy(beside(second, end), beside(mine, end))
    (message,) = refusals(tmp_path / "own")
    assert "is damaged" in message
    assert "is of another file" in message


@pytest.mark.parametrize("keys", [OWN, replace(OWN, recipients=(recipient_of(IDENTITY),), identities=(IDENTITY,))])
def test_a_changed_byte_is_noticed_where_it_is_read(tmp_path: Path, keys: FileKeys) -> None:
    result = os.urandom(3 * CHUNK_BYTES).hex()
    file = put(tmp_path, FIRST, keys, result)
    whole = file.read_bytes()
    assert len(whole) > 3 * CHUNK_BYTES
    assert archive_in(tmp_path, keys).result(FIRST).result == result
    for at in (len(whole) // 3, len(whole) // 2, len(whole) - 30):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(UsageError, match="is damaged: its checksums differ"):
            archive_in(tmp_path, keys).get(FIRST)
            archive_in(tmp_path, keys).result(FIRST)


@pytest.mark.parametrize("text", ["", "\n", "\xff\n\n\n"])
def test_checksums_that_are_none_are_an_error_whoever_has_signed_them(tmp_path: Path, text: str) -> None:
    file = put(tmp_path, FIRST)
    signed = STRANGER.sign("archive", text)
    beside(file, ".sums").write_bytes(signed.text)
    beside(file, ".sums.sig").write_bytes(signed.signature)
    (message,) = refusals(tmp_path, replace(OWN, accepts_unsigned=True))
    assert "is of another file" in message


def test_the_signature_of_a_backup_by_the_same_key_is_none_of_an_archive(tmp_path: Path) -> None:
    file = put(tmp_path, FIRST)
    signed = OWN.sign("backup", beside(file, ".sums").read_text().partition("\n")[2])
    beside(file, ".sums").write_bytes(signed.text)
    beside(file, ".sums.sig").write_bytes(signed.signature)
    (message,) = refusals(tmp_path)
    assert "it is the signature of another kind: backup" in message


def test_a_server_does_not_take_a_planted_file_for_an_archived_execution(tmp_path: Path) -> None:
    """It would delete the execution, and archive nothing."""
    put(tmp_path, FIRST, STRANGER)
    put(tmp_path / "unsigned", FIRST, FileKeys())
    assert archive_in(tmp_path).positions([FIRST]) == {}
    assert archive_in(tmp_path / "unsigned").positions([FIRST]) == {}
    put(tmp_path / "own", FIRST)
    assert archive_in(tmp_path / "own").positions([FIRST]) == {FIRST: 7}


def test_a_server_that_cannot_decrypt_its_archive_archives_again(tmp_path: Path) -> None:
    keys = replace(OWN, recipients=(recipient_of(IDENTITY),))
    put(tmp_path, FIRST, keys)
    assert archive_in(tmp_path, keys).positions([FIRST]) == {}
    assert archive_in(tmp_path, replace(keys, identities=(IDENTITY,))).positions([FIRST]) == {FIRST: 7}


def test_commands_name_what_is_wrong_in_a_line(tmp_path: Path) -> None:
    nowhere = {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_ARCHIVE_TRUSTED_KEYS": OWN.public_key}
    file = put(tmp_path, FIRST, result="x" * 100)
    read = noetl("execution", "get", FIRST, "--archive", tmp_path, "-o", "json", **nowhere)
    assert read.returncode == 0, read.stderr
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    damaged = noetl("execution", "get", FIRST, "--archive", tmp_path, **nowhere)
    assert (damaged.returncode, damaged.stderr.splitlines()) == (
        2,
        [f"noetl-stream: archive {file} is damaged: its checksums differ"],
    )
    for name in (".sums", ".sums.sig"):
        beside(file, name).unlink()
    unsigned = noetl("execution", "list", "--archive", tmp_path, **nowhere)
    assert (unsigned.returncode, "--unsigned" in unsigned.stderr) == (2, True)
    file.unlink()
    put(tmp_path, FIRST, FileKeys())
    assert FIRST in noetl("execution", "list", "--archive", tmp_path, "--unsigned", **nowhere).stdout


@pytest.mark.parametrize("identity", [ADMIN, SERVER, GATEWAY, worker_identity("default")])
def test_servers_alone_hold_the_key_that_signs_archives_and_none_that_of_backups(identity: str) -> None:
    given = {
        "NOETL_NATS_URL": "nats://here",
        "NOETL_POSTGRES_DSN": "postgresql://here/db",
        **{f"NOETL_{name}_KEY": new_key() for name in ("SERVER", "ACCESS", "BACKUP_SIGNING", "ARCHIVE_SIGNING")},
    }
    endpoint = own_endpoint(Settings.from_environment(given), identity)
    expected = given["NOETL_ARCHIVE_SIGNING_KEY"] if identity == SERVER else ""
    assert endpoint.retention.archive_keys.signing_key == expected
    assert given["NOETL_BACKUP_SIGNING_KEY"] not in msgspec.json.encode(endpoint, enc_hook=str).decode()
