"""The scratch folders of tasks on the disk of a worker."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

import duckdb
import pytest
from msgspec.structs import replace

from noetl_stream.sealing.data_references import Column, DataReference
from noetl_stream.testing.calls import FilesInMemory
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.tools.scratch import kept_tables
from noetl_stream.tools.scratch.scratch import MAX_FILES, ScratchFolders, file_name
from noetl_testkit.waiting import until


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return [found.name for found in folder.iterdir()]


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def saved(files: FilesInMemory, data: bytes, name: str = "a.csv") -> DataReference:
    found = files.reference(await files.save(pieces(data), name=name))
    assert found is not None
    return found


async def test_a_file_has_its_name_and_content_and_goes_with_its_task(temporary: Path) -> None:
    files = FilesInMemory()
    async with ScratchFolders().folder() as scratch:
        first = await scratch.fetch(files, await saved(files, b"one"), "orders.csv")
        second = await scratch.fetch(files, await saved(files, b"two"), "orders.csv")
        assert [first.name, second.name] == ["orders.csv", "orders.csv"]
        assert [first.read_bytes(), second.read_bytes()] == [b"one", b"two"]
        assert first.stat().st_mode & 0o777 == 0o444
        assert names_in(temporary) == [scratch.folder.parent.name]
    assert names_in(temporary) == []


async def test_the_folder_of_a_killed_worker_goes_with_the_next_start(temporary: Path) -> None:
    (temporary / "noetl-scratch-left" / "files").mkdir(parents=True)
    async with ScratchFolders().folder() as scratch:
        ScratchFolders()
        assert names_in(temporary) == [scratch.folder.parent.name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "passwd"),
        ("..", "file"),
        (".bashrc", "bashrc"),
        ("a\0b\n.csv", "ab.csv"),
        ("C:\\data\\x.csv", "x.csv"),
        ("", "file"),
        ("ä" * 300 + ".csv", "ä" * 98 + ".csv"),
    ],
)
def test_no_name_leads_out_of_the_folder(name: str, expected: str) -> None:
    assert file_name(name) == expected


async def test_all_files_of_a_task_have_one_bound() -> None:
    files = FilesInMemory()
    reference = await saved(files, b"12345")
    async with ScratchFolders(9).folder() as scratch:
        await scratch.fetch(files, reference, "a")
        with pytest.raises(ToolFailure) as failed:
            await scratch.fetch(files, reference, "a")
    assert (failed.value.error.kind, failed.value.error.message) == (
        "limit_exceeded",
        "the file a.csv: a task may have 9 bytes on its worker's disk (NOETL_MAX_SCRATCH_BYTES)",
    )


async def test_ten_thousand_files_are_too_many() -> None:
    files = FilesInMemory()
    reference = await saved(files, b"")
    async with ScratchFolders().folder() as scratch:
        for _ in range(MAX_FILES):
            await scratch.fetch(files, reference, "a")
        with pytest.raises(ToolFailure) as failed:
            await scratch.fetch(files, reference, "a")
    assert failed.value.error.message == "the file a.csv: a task may have 1,000 files on its worker's disk"


async def test_a_full_disk_is_the_trouble_of_the_worker() -> None:
    class Full(FilesInMemory):
        async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
            yield b"1"
            raise OSError(errno.ENOSPC, "No space left on device")

    files = Full()
    reference = await saved(files, b"12345")
    with pytest.raises(WorkerUnfit, match=r"cannot write the file a.csv to .*: No space left on device"):
        async with ScratchFolders().folder() as scratch:
            await scratch.fetch(files, reference, "a.csv")


async def test_a_file_that_is_lost_while_it_is_read_is_a_lost_result(temporary: Path) -> None:
    class Lossy(FilesInMemory):
        async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
            yield b"1"
            raise ToolFailure.of("result_lost", f"{reference.what} is lost")

    files = Lossy()
    reference = await saved(files, b"12345")
    with pytest.raises(ToolFailure, match=r"the file a.csv is lost"):
        async with ScratchFolders().folder() as scratch:
            await scratch.fetch(files, reference, "a.csv")
    assert names_in(temporary) == []


class Table(FilesInMemory):
    """A table of six rows, of which each iteration of a loop reads two."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched = self.asked = 0

    @classmethod
    async def made(cls, folder: Path) -> tuple[Self, Sequence[DataReference]]:
        files, path = cls(), folder / "six.parquet"
        duckdb.sql("from range(6)").write_parquet(str(path))
        columns = [Column("range", "BIGINT")]
        found = files.reference(await files.save(pieces(path.read_bytes()), columns=columns, rows=6))
        path.unlink()
        assert found is not None
        return files, [replace(found, first=first, rows=2) for first in (0, 2, 4)]

    def read(self, reference: DataReference) -> AsyncIterator[bytes]:
        self.asked += 1
        return self._counted(super().read(reference))

    async def _counted(self, found: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.fetched += 1
        async for piece in found:
            yield piece


async def fetch(folders: ScratchFolders, files: Table, reference: DataReference) -> bytes:
    async with folders.folder() as scratch:
        return (await scratch.fetch(files, reference, "t.parquet")).read_bytes()


async def test_iterations_over_the_parts_of_a_table_fetch_it_once(temporary: Path) -> None:
    files, parts = await Table.made(temporary)
    folders = ScratchFolders()
    found = await asyncio.gather(*(fetch(folders, files, part) for part in parts * 20))
    found += [await fetch(folders, files, part) for part in parts * 20]
    assert len(set(found)) == 1
    assert (files.fetched, files.asked) == (1, 120)  # each is noted as a reader of the table
    await folders.close()
    assert names_in(temporary) == []


async def test_a_whole_table_is_not_kept(temporary: Path) -> None:
    files, (part, *_) = await Table.made(temporary)
    folders = ScratchFolders()
    for _ in range(2):
        await fetch(folders, files, replace(part, rows=6))
    assert (files.fetched, names_in(temporary)) == (2, [])


async def test_a_whole_table_is_kept_for_tasks_that_wait_for_it(temporary: Path) -> None:
    files, (part, *_) = await Table.made(temporary)
    folders, together = ScratchFolders(), asyncio.Barrier(3)

    async def fetch_together() -> None:
        async with folders.folder() as scratch:
            await together.wait()
            await scratch.fetch(files, replace(part, rows=6), "t.parquet")

    await asyncio.gather(*(fetch_together() for _ in range(3)))
    assert files.fetched == 1
    await folders.close()


async def test_nothing_is_kept_where_a_task_could_change_it(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "landlock_version", lambda: 0)
    files, parts = await Table.made(temporary)
    folders = ScratchFolders()
    for part in parts:
        await fetch(folders, files, part)
    assert (files.fetched, names_in(temporary)) == (3, [])


async def test_a_table_that_somebody_has_changed_is_fetched_again(temporary: Path) -> None:
    files, parts = await Table.made(temporary)
    folders = ScratchFolders()
    async with folders.folder() as scratch:
        path = await scratch.fetch(files, parts[0], "t.parquet")
        right = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(b"wrong")
        assert await fetch(folders, files, parts[1]) == right
    assert files.fetched == 2
    await folders.close()


async def test_kept_tables_have_a_share_of_the_disk_and_an_end(temporary: Path) -> None:
    files, parts = await Table.made(temporary)
    folders = ScratchFolders(kept_s=0.0)
    await fetch(folders, files, parts[0])
    await until(lambda: not list(temporary.glob("*/*")))
    await folders.close()

    files, parts = await Table.made(temporary)
    small = ScratchFolders(parts[0].size * kept_tables.KEPT_SHARE - 1)
    for part in parts:
        await fetch(small, files, part)
    assert (files.fetched, names_in(temporary)) == (3, [])


async def test_an_iteration_that_is_cancelled_leaves_the_fetch_to_the_next_one(temporary: Path) -> None:
    files, parts = await Table.made(temporary)
    folders, begun = ScratchFolders(), asyncio.Event()

    class Slow(Table):
        async def _counted(self, found: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            begun.set()
            await asyncio.Event().wait()
            yield b""

    first = asyncio.create_task(fetch(folders, Slow(), parts[0]))
    await begun.wait()
    second = asyncio.create_task(fetch(folders, files, parts[1]))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert len(await second) == parts[1].size
    await folders.close()
