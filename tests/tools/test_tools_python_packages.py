"""The packages of bundles: unpacked once, seen by the children of their playbook alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from noetl_stream.model.bundles import MAX_BUNDLE_BYTES, named_bundle, zip_of
from noetl_stream.settings.children import CONFINEMENTS, ChildSettings, Confinement
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import ToolCall, ToolFailure, WorkerUnfit
from noetl_stream.tools.python.packages import PackageFolders
from noetl_stream.tools.python.tool import PythonTool
from noetl_testkit.waiting import TIMEOUT_S

in_child = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Stored:
    """A bundle with a module ``shop``, and how often it was read."""

    data: bytes
    name: str = ""
    reads: int = 0
    fails: list[Exception] = field(default_factory=list)

    @classmethod
    def of(cls, source: str, size: int = 0) -> Stored:
        files = {"packages/shop/__init__.py": source.encode(), "packages/shop/data.txt": b"x" * size}
        data = zip_of(files)
        return cls(data, str(named_bundle("team/shop", data)))

    async def read(self) -> bytes:
        self.reads += 1
        if self.fails:
            raise self.fails.pop()
        return self.data

    def call(self, **inputs: Any) -> ToolCall:
        """The call of a task, by default of the function ``told`` of the module."""
        made = tool_call(inputs or {"function": "shop:told", "args": {}}, trust_domain=self.name)
        return replace(made, bundle=self.name, read_bundle=self.read)


TOLD = "def told() -> str:\n    return {text!r}\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tool() -> AsyncIterator[PythonTool]:
    tool = PythonTool(max_children=2)
    yield tool
    await tool.close()


async def run(tool: PythonTool, call: ToolCall) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        return (await tool.run(call)).result


@in_child
async def test_a_bundle_is_read_once_and_a_new_one_never_meets_old_modules(tool: PythonTool) -> None:
    old, new = Stored.of(TOLD.format(text="old")), Stored.of(TOLD.format(text="new"))
    assert [await run(tool, one.call()) for one in (old, new, old, new)] == ["old", "new", "old", "new"]
    assert (old.reads, new.reads) == (1, 1)


@in_child
@pytest.mark.parametrize("least", CONFINEMENTS)
async def test_code_sees_its_own_packages_alone_and_cannot_change_them(least: Confinement) -> None:
    other, own = Stored.of(TOLD.format(text="other")), Stored.of("import os\nHERE = os.path.dirname(__file__)\n")
    tool = PythonTool(ChildSettings(confinement=least), max_children=2)
    try:
        await run(tool, other.call())
        where = await run(tool, own.call(code="import shop\nreturn shop.HERE"))
        tried = f"""
import os, pathlib
found = []
for change in (lambda: pathlib.Path({where!r}, "new.py").write_text("x"), lambda: os.listdir({where!r} + "/../../..")):
    try:
        found.append(change())
    except OSError as error:
        found.append(type(error).__name__)
return [found[0], os.listdir({where!r} + "/..")]
"""
        written, beside = await run(tool, own.call(code=tried))
    except WorkerUnfit:
        pytest.skip(f"this machine has no confinement {least}")
    finally:
        await tool.close()
    assert written in ("PermissionError", "OSError") and beside == ["shop"]


@in_child
async def test_modules_of_the_worker_come_before_those_of_a_bundle(tool: PythonTool) -> None:
    data = zip_of(
        {"packages/json.py": b"raise SystemExit('shadowed')", "packages/msgspec/__init__.py": b"shadowed = 1"}
    )
    stored = Stored(data, str(named_bundle("team/shop", data)))
    assert await run(tool, stored.call(code="import json, msgspec\nreturn hasattr(msgspec, 'shadowed')")) is False


@in_child
async def test_a_bundle_that_is_lost_or_damaged_is_an_error_with_its_name(tool: PythonTool) -> None:
    lost = Stored.of(TOLD.format(text="lost"))
    lost.fails = [ToolFailure.of("bundle_lost", "nothing is stored")]
    broken = Stored(b"no zip file", named_bundle("team/shop", b"no zip file").project + "@" + "0" * 64)
    for stored, why in ((lost, "nothing is stored"), (broken, "are damaged: not a bundle")):
        with pytest.raises(ToolFailure) as failed:
            await run(tool, stored.call())
        assert failed.value.error.kind == "bundle_lost" and why in failed.value.error.message
    assert await run(tool, lost.call()) == "lost", "what could not be read is read again"


def names_in(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


async def folder_of(folders: PackageFolders, stored: Stored) -> Path:
    async with folders.of(stored.call()) as folder:
        return Path(folder)


@pytest.fixture
async def used() -> set[str]:
    return set()


@pytest.fixture
async def folders(used: set[str]) -> AsyncIterator[PackageFolders]:
    folders = PackageFolders(lambda: used, kept_bytes=3 * (MAX_BUNDLE_BYTES // 2 + 1_000))
    yield folders
    await folders.close()


async def test_the_longest_unused_packages_make_room_unless_a_child_lives_in_them(
    folders: PackageFolders, used: set[str]
) -> None:
    first, second, third, fourth = (Stored.of(str(n), MAX_BUNDLE_BYTES // 2) for n in range(4))
    places = [await folder_of(folders, one) for one in (first, second)]
    used.add(str(places[0]))
    places.append(await folder_of(folders, third))
    await folder_of(folders, first)
    places.append(await folder_of(folders, fourth))
    assert [place.exists() for place in places] == [True, False, True, True]
    await folder_of(folders, second)
    assert [one.reads for one in (first, second, third, fourth)] == [1, 2, 1, 1]


async def test_concurrent_runs_read_packages_once(folders: PackageFolders) -> None:
    stored = Stored.of("")
    assert len({*await asyncio.gather(*(folder_of(folders, stored) for _ in range(5)))}) == stored.reads == 1


async def test_an_interrupted_download_leaves_nothing(folders: PackageFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored.of("")
    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(WorkerUnfit, match="cannot unpack the packages of a bundle: No space left on device"):
            await folder_of(folders, stored)
    place = await folder_of(folders, stored)
    assert [one.name for one in place.parent.parent.iterdir()] == [place.parent.name]


async def test_folders_of_a_killed_process_are_removed_at_the_next_start_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living = PackageFolders(set)
    place, kept = await folder_of(living, Stored.of("")), tmp_path / "noetl-packages-link"
    kept.symlink_to("/")
    unpacked = f"PackageFolders(set)._write('0', {Stored.of('').data!r})"
    killed = f"import os\nfrom noetl_stream.tools.python.packages import *\n{unpacked}\nos.kill(os.getpid(), 9)"
    environment = {"TMPDIR": str(tmp_path)}
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", killed], env=environment, check=False)
    assert ended.returncode == -9 and len(names_in(tmp_path)) == 3
    PackageFolders(set)
    assert names_in(tmp_path) == {place.parent.parent.name, kept.name}
    assert place.exists()
    await living.close()
