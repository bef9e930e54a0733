"""Whoever can write where backups are kept tries to have one restored that nobody made."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.adapters.files.folder import FolderFiles
from noetl_stream.backup.contents import rights_of
from noetl_stream.backup.folder import MAX_TEXT_BYTES
from noetl_stream.backup.reader import BackupReader
from noetl_stream.backup.restore import doubt_of, problems_of, restore_backup, restore_objects
from noetl_stream.errors import UsageError
from noetl_stream.sealing.age import new_identity, recipient_of
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.sealing.keys import new_key
from written_backups import sum_again, write_backup

OWN = FileKeys(new_key())
STRANGER = FileKeys(new_key())
IDENTITY = new_identity()
VIEWER = "reports\tviewer\t{}\tann\t\\N\t\\N"
PLANTED = "planted\tadmin\t{}\tann\t\\N\t\\N"
NOTHING: Any = None
"""Neither the database nor the object store is asked for anything."""


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    """A backup of our own, with one token."""
    await write_backup(tmp_path, OWN, {"api_token": [VIEWER]})
    return tmp_path / "nightly"


def opened(folder: Path, keys: FileKeys = OWN) -> BackupReader:
    return BackupReader(FolderFiles(folder), keys)


async def refusal(folder: Path, keys: FileKeys = OWN) -> str:
    """Why a backup is not restored, and neither are its objects."""
    with pytest.raises(UsageError) as refused:
        await restore_backup(opened(folder, keys), NOTHING, NOTHING)
    with pytest.raises(UsageError) as refused_objects:
        await restore_objects(opened(folder, keys), NOTHING)
    assert refused.value.message == refused_objects.value.message
    return refused.value.message


def plant(folder: Path) -> None:
    """Adds an admin, and makes manifest and checksums fit, as anybody can."""
    (folder / "tables/api_token.copy.gz").write_bytes(gzip.compress(f"{VIEWER}\n{PLANTED}\n".encode()))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["rows"]["api_token"] = 2
    (folder / "manifest.json").write_text(json.dumps(manifest))
    sum_again(folder)


async def test_a_planted_admin_is_not_restored(backup: Path) -> None:
    assert problems_of(opened(backup)) == [] and doubt_of(opened(backup)) is None
    plant(backup)
    assert problems_of(opened(backup)) == ["SHA256SUMS: its signature is of another text"]
    assert "is damaged" in await refusal(backup)
    assert "is damaged" in await refusal(backup, replace(OWN, accepts_unsigned=True))


async def test_a_planted_admin_without_any_signature_is_not_restored(backup: Path) -> None:
    plant(backup)
    (backup / "SHA256SUMS.sig").unlink()
    assert "is damaged: SHA256SUMS: its signature is missing" in await refusal(
        backup, replace(OWN, accepts_unsigned=True)
    )
    (backup / "SHA256SUMS").write_text((backup / "SHA256SUMS").read_text().partition("\n")[2])
    assert problems_of(opened(backup)) == [], "it is whole"
    assert f"{backup} is not signed: whoever can write there may have made it" in await refusal(backup)


async def test_a_changed_manifest_is_noticed(backup: Path) -> None:
    text = (backup / "manifest.json").read_text()
    (backup / "manifest.json").write_text(text.replace("ann@host", "boss@host"))
    assert problems_of(opened(backup)) == ["manifest.json: damaged: its checksum differs"]
    assert "is damaged: manifest.json" in await refusal(backup)


async def test_a_backup_that_a_stranger_has_signed_is_not_restored(tmp_path: Path) -> None:
    await write_backup(tmp_path, STRANGER, {"api_token": [PLANTED]})
    message = await refusal(tmp_path / "nightly")
    assert f"is signed with a key that is not trusted: {STRANGER.public_key}" in message


async def test_a_signature_says_nothing_of_another_backup(backup: Path, tmp_path: Path) -> None:
    await write_backup(tmp_path, OWN, {}, "other")
    shutil.copy(tmp_path / "other/SHA256SUMS.sig", backup)
    assert "its signature is of another text" in await refusal(backup)
    shutil.copy(tmp_path / "other/SHA256SUMS", backup)
    assert "is damaged: manifest.json: damaged" in await refusal(backup)


async def test_the_signature_of_an_archive_by_the_same_key_is_none_of_a_backup(backup: Path) -> None:
    lines = (backup / "SHA256SUMS").read_text().partition("\n")[2]
    signed = OWN.sign("archive", lines)
    (backup / "SHA256SUMS").write_bytes(signed.text)
    (backup / "SHA256SUMS.sig").write_bytes(signed.signature)
    assert "it is the signature of another kind: archive" in await refusal(backup)


@pytest.mark.parametrize("signature", [b"", b"x", b"x" * 64, b"x" * 100_000], ids=len)
async def test_an_invalid_signature_is_an_error(backup: Path, signature: bytes) -> None:
    (backup / "SHA256SUMS.sig").write_bytes(signature)
    assert "is damaged: SHA256SUMS: its signature is" in await refusal(backup)


def test_checksums_without_end_are_refused(backup: Path) -> None:
    with (backup / "SHA256SUMS").open("wb") as file:
        file.truncate(MAX_TEXT_BYTES + 1)
    with pytest.raises(UsageError, match="SHA256SUMS has more than 268435456 bytes"):
        opened(backup)


async def test_a_backup_of_a_key_that_was_replaced_is_trusted_while_its_public_key_is(backup: Path) -> None:
    new = FileKeys(new_key(), trusted_keys=(STRANGER.public_key, OWN.public_key))
    assert doubt_of(opened(backup, new)) is None
    assert doubt_of(opened(backup, replace(new, trusted_keys=()))) is not None


async def test_a_file_that_is_replaced_after_its_check_is_not_used(backup: Path) -> None:
    found = opened(backup)
    assert problems_of(found) == []
    (table,) = (one for one in found.manifest.database.tables if one.name == "api_token")
    for data in (gzip.compress(f"{PLANTED}\n".encode()), b"no gzip", b""):
        (backup / "tables/api_token.copy.gz").write_bytes(data)
        with pytest.raises(UsageError, match=r"api_token\.copy\.gz"):
            _ = [piece async for piece in found.lines(table)]


async def test_a_cut_or_changed_file_of_an_encrypted_backup_is_found_without_its_key(tmp_path: Path) -> None:
    keys = replace(OWN, recipients=(recipient_of(IDENTITY),))
    await write_backup(tmp_path, keys, {"api_token": [VIEWER] * 10_000})
    folder = tmp_path / "nightly"
    assert problems_of(opened(folder)) == []
    for name in ("tables/api_token.copy.gz.age", "objects/00001.tar.age"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-20])
        assert problems_of(opened(folder)) == [f"{name}: damaged: its checksum differs"]
        (folder / name).write_bytes(whole)


async def test_ciphertext_that_is_cut_is_refused_where_its_checksums_fit(tmp_path: Path) -> None:
    unsigned = FileKeys(recipients=(recipient_of(IDENTITY),), identities=(IDENTITY,), accepts_unsigned=True)
    await write_backup(tmp_path, unsigned, {"api_token": [VIEWER] * 50_000})
    file = tmp_path / "nightly/tables/api_token.copy.gz.age"
    file.write_bytes(file.read_bytes()[:-20])
    sum_again(tmp_path / "nightly")
    with pytest.raises(UsageError, match=r"api_token\.copy\.gz\.age was modified or cut off"):
        problems_of(opened(tmp_path / "nightly", unsigned))
    with pytest.raises(UsageError, match="no identity here opens it"):
        problems_of(opened(tmp_path / "nightly", replace(unsigned, identities=(new_identity(),))))


async def test_an_unsigned_backup_is_restored_only_on_request(tmp_path: Path) -> None:
    await write_backup(tmp_path, FileKeys(), {"api_token": [PLANTED]})
    assert "is not signed" in await refusal(tmp_path / "nightly")
    assert doubt_of(opened(tmp_path / "nightly", replace(OWN, accepts_unsigned=True))) is None


async def test_a_backup_of_an_older_release_is_whole_for_who_accepts_it(tmp_path: Path) -> None:
    await write_backup(tmp_path, FileKeys(), {"api_token": [VIEWER]})
    path = tmp_path / "nightly/manifest.json"
    manifest = json.loads(path.read_text())
    for name in ("name", "made_by", "source", "recipients"):
        del manifest[name]
    path.write_text(json.dumps(manifest | {"format": 1}))
    sum_again(tmp_path / "nightly")
    older = opened(tmp_path / "nightly", replace(OWN, accepts_unsigned=True))
    assert problems_of(older) == []
    assert [one.name for one in rights_of(older).tokens] == ["reports"]
