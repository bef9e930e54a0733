"""The cluster that a release packs is the one that ``initdb``, the first start and the migrations make (ADR 32)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from noetl_stream.errors import LocalStackError
from noetl_stream.local import EmbeddedStack, cluster_archive
from noetl_stream.local.binaries import find_postgres_programs, postgres_version
from noetl_stream.local.cluster_archive import ClusterArchive, archive_path, crc32c
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import open_stack, prepare_embedded

NOWHERE = Path("/nowhere")

CATALOG = {
    "roles": """
        select rolname, rolsuper, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconfig
        from pg_roles order by 1""",
    "databases": """
        select datname, datacl::text, pg_get_userbyid(datdba), encoding, datlocprovider, datcollate, datlocale
        from pg_database where datname in ('noetl', 'playbooks', 'template1') order by 1""",
    "migrations": "select number, name, checksum from noetl.migration order by 1",
    "settings": "select name, setting from pg_settings where source = 'configuration file' order by 1",
}


def dump(dsn: str) -> list[str]:
    """Everything in a database but when its migrations were applied."""
    command = [find_postgres_programs() / "pg_dump", "--exclude-table-data=noetl.migration", dsn]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if "restrict" not in line]  # these have a key of their own


async def catalog(dsn: str) -> dict[str, list[Any]]:
    connection = await asyncpg.connect(dsn)
    found = {name: [tuple(row) for row in await connection.fetch(query)] for name, query in CATALOG.items()}
    await connection.close()
    return found


def prepared(home: Path) -> dict[str, list[Any]]:
    """What is in the databases of a home once a server has started there."""
    with open_stack(Settings(home_folder=home)) as stack:
        asyncio.run(prepare_embedded(stack))
        assert stack.embedded is not None
        address = stack.embedded.address
        dumps = {"noetl": dump(address.postgres_dsn), "playbooks": dump(address.playbooks_dsn)}
        return {**asyncio.run(catalog(address.postgres_dsn)), **dumps}


def access_of(home: Path) -> dict[str, tuple[int, int]]:
    """The mode and owner of each file and folder that both have."""
    data = home / "postgres" / "data"
    found = {str(path.relative_to(data)): path.stat() for path in data.rglob("*")}
    return {name: (status.st_mode, status.st_uid) for name, status in found.items()}


@pytest.fixture
def packed() -> ClusterArchive:
    """The archive of this environment."""
    found = ClusterArchive.find(postgres_version(find_postgres_programs()))
    assert found is not None, "there is none, or a stale one: run make, or python scripts/pack_cluster.py"
    return found


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[bytes], None]:
    """Puts another archive in the place of that of this environment."""

    def put(content: bytes) -> None:
        name = archive_path(postgres_version(find_postgres_programs())).name
        monkeypatch.setattr(cluster_archive, "FOLDER", tmp_path)
        (tmp_path / name).write_bytes(content)

    return put


def text_of(archive: ClusterArchive) -> bytes:
    return msgspec.json.encode(archive.index) + b"\n" + archive.packed


def test_a_home_from_the_archive_is_the_one_that_is_made_from_scratch(
    packed: ClusterArchive, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = prepared(place / "unpacked")
    monkeypatch.setattr(cluster_archive, "FOLDER", NOWHERE)
    made = prepared(place / "made")
    assert "CREATE TABLE noetl.event_other (" in made["noetl"]
    for name, found in made.items():
        assert unpacked[name] == found, name
    here, there = access_of(place / "unpacked"), access_of(place / "made")
    common = here.keys() & there.keys()
    assert len(common) > 500
    assert {name: here[name] for name in common} == {name: there[name] for name in common}
    assert {mode & 0o077 for mode, _ in here.values()} == {0}


def test_a_new_home_unpacks_the_packed_cluster(
    packed: ClusterArchive, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr("noetl_stream.local.postgres_server.DataFolder._initialize", made.append)
    EmbeddedStack.join(place / "home").leave()
    assert made == []


def test_each_home_is_a_cluster_with_a_system_identifier_of_its_own(packed: ClusterArchive, place: Path) -> None:
    programs = find_postgres_programs()
    folders = [place / "one", place / "two"]
    for folder in folders:
        folder.mkdir(mode=0o700)
        packed.unpack(folder, None)
    said = [
        subprocess.run([programs / "pg_controldata", folder], capture_output=True, text=True, check=True).stdout
        for folder in folders
    ]
    identifiers = [line.split()[-1] for text in said for line in text.splitlines() if "system identifier" in line]
    assert len(set(identifiers)) == 2
    assert "WARNING" not in "".join(said)  # of a wrong checksum
    for folder, identifier in zip(folders, identifiers, strict=True):
        (log,) = (folder / "pg_wal").glob("0*")
        assert str(int.from_bytes(log.read_bytes()[24:32], sys.byteorder)) == identifier


def test_the_checksum_of_the_control_file_is_the_published_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_an_archive_holds_no_password_and_no_log(packed: ClusterArchive) -> None:
    contents = zlib.decompress(packed.packed)
    assert b"SCRAM-SHA-256$" not in contents
    assert b"CREATE ROLE" not in contents
    assert len([name for name in packed.index.files if name.startswith("pg_wal/0")]) == 1


def test_a_stale_archive_is_not_used(packed: ClusterArchive, archives: Callable[[bytes], None]) -> None:
    version = postgres_version(find_postgres_programs())
    for name in (
        "adapters/postgres/schema/migrations/0001_partition.sql",
        "adapters/postgres/schema/migrations/0000_gone.sql",
    ):
        changed = {**packed.index.made_from, name: "0" * 64}
        archives(text_of(ClusterArchive(msgspec.structs.replace(packed.index, made_from=changed), packed.packed)))
        assert ClusterArchive.find(version) is None
    for cut_off in (b"", text_of(packed)[:1000]):
        archives(cut_off)
        assert ClusterArchive.find(version) is None
    archives(text_of(packed))
    assert ClusterArchive.find(version) is not None
    assert ClusterArchive.find("17.1") is None


@pytest.mark.parametrize("kept", [0.5, 0.0])
def test_a_damaged_archive_is_no_reason_to_fail(
    packed: ClusterArchive,
    archives: Callable[[bytes], None],
    place: Path,
    caplog: pytest.LogCaptureFixture,
    kept: float,
) -> None:
    archives(text_of(ClusterArchive(packed.index, packed.packed[: int(len(packed.packed) * kept)])))
    EmbeddedStack.join(place / "home").leave()
    assert [record.message[:36] for record in caplog.records] == ["making the cluster from scratch: a f"]


def test_a_cluster_that_this_postgres_refuses_is_made_from_scratch(
    packed: ClusterArchive, archives: Callable[[bytes], None], place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without = {name: number for name, number in packed.index.files.items() if name != "global/pg_control"}
    archives(text_of(ClusterArchive(msgspec.structs.replace(packed.index, files=without), packed.packed)))
    EmbeddedStack.join(place / "home").leave()
    assert "making the cluster from scratch: a file of this installation is damaged" in caplog.text


def test_a_full_disk_is_named_while_an_archive_is_unpacked(
    packed: ClusterArchive, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, content: memoryview) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(cluster_archive, "_write", full)
    with pytest.raises(LocalStackError, match="no space left on device"):
        EmbeddedStack.join(place / "home")
