"""Parts of the language server: when documents are checked, and which files of a folder are playbooks."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from noetl_stream.language_server import documents
from noetl_stream.language_server.documents import WorkspaceFiles
from noetl_stream.language_server.language_server import DocumentChecks
from noetl_stream.playbook.diagnostics import Diagnostic

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"


class Told:
    """What checks tell, and the texts that were checked. A text ``broken`` is a fault; one that begins with ``slow``
    waits until it may end."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.faults: list[str] = []
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.news = asyncio.Event()
        self.checks = DocumentChecks(self._check, self._tell, self._fail)

    def _check(self, text: str, file: str) -> tuple[Diagnostic, ...]:
        self.checked.append(text)
        if text == "broken":
            raise RecursionError("too deep")
        if text.startswith("slow"):
            self.begun.set()
            assert self.may_end.wait(60)
        return (Diagnostic("error", "code", text, None, file, 1, 1, ""),)

    def _tell(self, uri: str, found: tuple[Diagnostic, ...]) -> None:
        self.told.append((uri, found[0].message))
        self.news.set()

    def _fail(self, error: Exception) -> None:
        self.faults.append(str(error))
        self.news.set()

    async def next(self) -> None:
        await asyncio.wait_for(self.news.wait(), 60)
        self.news.clear()


async def until_it_waits() -> None:
    """The loop turns so often that what was asked waits for the thread."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_only_the_last_of_several_quick_edits_is_checked() -> None:
    it = Told()
    for text in ("a", "ab", "abc"):
        it.checks.ask("one", "one.yaml", text, pause_s=0)
    it.checks.ask("two", "two.yaml", "x", pause_s=0)
    await it.next()
    while len(it.told) < 2:
        await it.next()
    assert it.told == [("one", "abc"), ("two", "x")] and it.checked == ["abc", "x"]


async def test_diagnostics_of_an_outdated_text_are_dropped_and_outdated_texts_are_not_checked() -> None:
    it = Told()
    it.checks.ask("one", "one.yaml", "slow", pause_s=0)
    await asyncio.to_thread(it.begun.wait, 60)
    it.checks.ask("one", "one.yaml", "skipped", pause_s=0)
    await until_it_waits()
    it.checks.ask("one", "one.yaml", "last", pause_s=0)
    it.may_end.set()
    await it.next()
    assert it.told == [("one", "last")] and it.checked == ["slow", "last"]


async def test_a_closed_document_gets_no_diagnostics() -> None:
    it = Told()
    it.checks.ask("one", "one.yaml", "a", pause_s=0)
    it.checks.forget("one")
    it.checks.ask("two", "two.yaml", "b", pause_s=0)
    await it.next()
    assert it.told == [("two", "b")]


async def test_a_fault_of_a_check_is_reported_and_the_next_check_runs() -> None:
    it = Told()
    it.checks.ask("one", "one.yaml", "broken", pause_s=0)
    await it.next()
    assert it.faults == ["too deep"]
    it.checks.ask("one", "one.yaml", "good", pause_s=0)
    await it.next()
    assert it.told == [("one", "good")]


def paths(files: WorkspaceFiles, folder: Path) -> list[str]:
    return [one.path for one in files.documents([folder])]


def test_playbooks_are_found_by_their_path_and_again_when_they_change(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    file = tmp_path / "deep" / "er" / "a.yml"
    file.write_text(HEAD + "metadata: { name: a, path: /team/é/a }\n")
    (tmp_path / "b.yaml").write_text("services: {}\n")
    (tmp_path / "c.txt").write_text(HEAD + "metadata: { path: no }\n")
    for hidden in (".git", "node_modules"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "d.yaml").write_text(HEAD + "metadata: { path: hidden }\n")
    files = WorkspaceFiles()
    [found] = files.documents([tmp_path])
    assert (found.file, found.kind, found.path, found.line) == (file, "Playbook", "team/é/a", 2)
    assert file.read_text().splitlines()[2][found.start : found.end] == "/team/é/a"
    file.write_text(HEAD + "metadata: { name: a, path: other/longer }\n")
    assert paths(files, tmp_path) == ["other/longer"]
    file.unlink()
    assert paths(files, tmp_path) == []


def test_a_search_looks_at_no_more_files_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"{number}.yaml").write_text(HEAD + f"metadata: {{ path: p{number} }}\n")
    (tmp_path / "0.yaml").chmod(0)
    monkeypatch.setattr(documents, "MAX_FILES", 3)
    assert set(paths(WorkspaceFiles(), tmp_path)) <= {"p0", "p1", "p2"}
    monkeypatch.setattr(documents, "MAX_PLAYBOOK_BYTES", 10)
    assert paths(WorkspaceFiles(), tmp_path) == []
