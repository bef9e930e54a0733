"""``kind: shell`` with files by reference (LANGUAGE §10 *Files and tables*, §12 *shell*)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from noetl_stream.settings.children import ChildSettings
from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.scratch import command_files
from noetl_stream.tools.shell import ShellTool

CSV = b"id,amount\n1,20\n2,22\n"


class Command:
    """Commands of one execution, with the files that it has."""

    def __init__(self, tool: ShellTool) -> None:
        self.tool, self.store = tool, FilesInMemory()

    async def file(self, data: bytes = CSV) -> dict[str, Any]:
        async def pieces() -> AsyncIterator[bytes]:
            yield data

        return await self.store.save(pieces(), name="stored.csv", media_type="text/csv")

    async def run(self, command: str, **inputs: Any) -> Any:
        return (await self.tool.run(tool_call({"command": command, **inputs}, data=self.store))).result

    async def failure(self, command: str, **inputs: Any) -> tuple[str, str]:
        with pytest.raises(ToolFailure) as failed:
            await self.run(command, **inputs)
        return failed.value.error.kind, failed.value.error.message

    async def content(self, value: Any) -> bytes:
        reference = self.store.reference(value)
        assert reference is not None, value
        return b"".join([part async for part in self.store.read(reference)])


@pytest.fixture
async def command() -> AsyncIterator[Command]:
    tool = ShellTool(ChildSettings(), max_scratch_bytes=1_000_000)
    yield Command(tool)
    await tool.close()


async def test_a_command_has_its_files_by_name(command: Command) -> None:
    files = {"orders.csv": await command.file(), "other": await command.file(b"x")}
    done = await command.run("wc -l < orders.csv; cat other; echo; ls", files=files)
    assert done["stdout"].split() == ["3", "x", "orders.csv", "other"]
    assert "files" not in done


async def test_no_command_changes_a_file_that_it_gets(command: Command) -> None:
    changes = "echo x >> a || chmod 777 $(readlink a) || rm $(readlink a) || cat a"
    assert (await command.run(changes, files={"a": await command.file(b"whole")}))["stdout"] == "whole"


async def test_files_that_match_a_pattern_are_kept_by_their_path(command: Command) -> None:
    made = "mkdir -p out/deep; echo 1 > a.csv; echo 2 > out/b.csv; echo 3 > out/deep/c.json; echo 4 > d.txt; : > e.csv"
    done = await command.run(made, outputs=["*.csv", "out/**/*.json", "out/b.*", "none.pdf"])
    assert list(done["files"]) == ["a.csv", "e.csv", "out/b.csv", "out/deep/c.json"]
    found = done["files"]["out/deep/c.json"]
    assert (found["name"], found["media_type"]) == ("c.json", "application/json")
    assert [await command.content(one) for one in done["files"].values()] == [b"1\n", b"", b"2\n", b"3\n"]


async def test_no_link_is_followed(command: Command) -> None:
    links = "ln -s /etc/hosts a.csv; ln -s /etc in; mkdir out; ln -s /etc/hosts out/b.csv; mkfifo c.csv; echo 1 > d.csv"
    done = await command.run(links, outputs=["*.csv", "**/hosts", "out/*"], files={"e.csv": await command.file()})
    assert list(done["files"]) == ["d.csv"]


async def test_a_failed_command_keeps_no_files(command: Command) -> None:
    kind, _ = await command.failure("echo 1 > a.csv; exit 3", outputs=["*.csv"])
    assert kind == "exit_status"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"files": {"../a": None}}, "files.../a: '../a' is not a file name"),
        ({"files": {"a": {"size": 1}}}, "files.a: it is not a file or a table of this execution"),
        ({"outputs": ["/etc/*"]}, "outputs.0: '/etc/*' is not a file pattern: it is relative to the working folder"),
        ({"outputs": ["a/../../b"]}, "outputs.0: 'a/../../b' is not a file pattern"),
        ({"outputs": ["*"], "cwd": "/tmp"}, "`files` and `outputs` are in the command's own folder: leave out `cwd`"),
    ],
)
async def test_a_path_that_cannot_be_a_file_of_the_command_is_reported(
    command: Command, inputs: dict[str, Any], said: str
) -> None:
    kind, message = await command.failure("true", **inputs)
    assert kind == "invalid_input"
    assert said in message


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("touch $(seq 1001)", "outputs: 1,001 files match; at most 1,000 are kept"),
        (
            "head -c 1000001 /dev/zero > a",
            "outputs: a: a task may have 1,000,000 bytes on its worker's disk (NOETL_MAX_SCRATCH_BYTES)",
        ),
    ],
)
async def test_too_many_bytes_of_files_are_reported_with_the_bound(command: Command, made: str, said: str) -> None:
    assert await command.failure(made, outputs=["*"]) == ("limit_exceeded", said)


async def test_a_folder_of_very_many_files_is_not_searched(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_files, "MAX_SEEN", 10)
    assert await command.failure("touch $(seq 11)", outputs=["1"]) == (
        "limit_exceeded",
        "outputs: the working folder has more than 10 files and folders",
    )


async def test_a_file_name_that_is_not_text_is_reported(command: Command) -> None:
    kind, message = await command.failure(r"touch $(printf '\377')", outputs=["*"])
    assert (kind, message) == ("result_not_json", "outputs: '\\udcff' is not a name in UTF-8")
