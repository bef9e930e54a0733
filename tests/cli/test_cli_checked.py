"""What ``run`` remembers of files that it has checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from cli_program import HEAD, ONE_STEP
from noetl_stream.cli.playbook import checked
from noetl_stream.cli.playbook.checked import check_text
from noetl_stream.local.home import Home
from noetl_stream.operations.executions.prepare import CheckedText
from noetl_stream.settings.sources.environment import Settings

WITH_A_WARNING = (
    HEAD
    + """\
metadata: {name: misspelt, path: tests/misspelt}
workflow:
  - step: read
    tool: {kind: postgres, query: "selekt 1", auth: local_postgres}
"""
)
Write = Callable[[str], Path]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were compiled."""
    names: list[str] = []
    judged = checked.judged

    def noted(name: str, source: bytes | str) -> object:
        names.append(name)
        return judged(name, source)

    monkeypatch.setattr(checked, "judged", noted)
    return names


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "home").mkdir()
    return Settings(home_folder=tmp_path / "home")


def check(file: Path, settings: Settings) -> CheckedText:
    found = check_text(str(file), file.read_text(), settings)
    found.remember()
    return found.playbook


class EarlierText(msgspec.Struct, array_like=True):
    """:class:`CheckedText` of release 0.3.0."""

    digest: str
    path: str
    workload: dict[str, Any]


def test_remembered_checks_have_a_form_that_earlier_releases_read(playbook: Write, settings: Settings) -> None:
    found = check(playbook(ONE_STEP), settings)
    remembered = Home(settings.home).checked.read_bytes()
    [kept] = msgspec.json.decode(remembered, type=dict[str, EarlierText]).values()
    assert kept == EarlierText(found.digest, found.path, dict(found.workload))


def test_checks_remembered_by_an_earlier_release_are_read(
    playbook: Write, settings: Settings, compiled: list[str]
) -> None:
    file = playbook(ONE_STEP)
    found, home = check(file, settings), Home(settings.home)
    [key] = json.loads(home.checked.read_text())
    home.checked.write_text(json.dumps({key: [found.digest, found.path, dict(found.workload)]}))
    assert check(file, settings) == found
    assert compiled == [str(file)]


def test_a_text_that_was_checked_is_not_compiled_again(
    playbook: Write, settings: Settings, compiled: list[str]
) -> None:
    file = playbook(ONE_STEP)
    first = check(file, settings)
    assert (first.path, first.workload) == ("tests/one", {"who": "world", "deep": {"left": 1, "right": 2}})
    assert check(file, settings) == first
    assert compiled == [str(file)]


def test_an_edited_text_is_compiled(playbook: Write, settings: Settings, compiled: list[str]) -> None:
    check(playbook(ONE_STEP), settings)
    check(playbook(ONE_STEP + "# edited\n"), settings)
    assert len(compiled) == 2


def test_a_changed_limit_and_a_newly_installed_package_let_it_be_compiled(
    playbook: Write, settings: Settings, compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = playbook(ONE_STEP)
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(packages)
    check(file, settings)
    (packages / "more").mkdir()
    check(file, settings)
    monkeypatch.setenv("NOETL_LIMIT_MAX_STEP_RUNS", "5")
    check(file, settings)
    assert len(compiled) == 3


def test_errors_are_reported_each_time(
    playbook: Write, settings: Settings, compiled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = playbook(ONE_STEP.replace("kind: python", "kind: pithon"))
    for _ in range(2):
        with pytest.raises(click.exceptions.Exit):
            check(file, settings)
        assert "pithon" in capsys.readouterr().err
    assert len(compiled) == 2


def test_warnings_are_reported_each_time(
    playbook: Write, settings: Settings, compiled: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = playbook(WITH_A_WARNING)
    for _ in range(2):
        check(file, settings)
        assert "warning" in capsys.readouterr().err
    assert len(compiled) == 2


def test_a_damaged_memory_of_checks_counts_as_none(playbook: Write, settings: Settings, compiled: list[str]) -> None:
    file = playbook(ONE_STEP)
    check(file, settings)
    for damage in ("{", "[]", '{"key": 1}'):
        (settings.home / "checked.json").write_text(damage)
        check(file, settings)
    assert len(compiled) == 4


def test_own_servers_have_no_memory(playbook: Write, compiled: list[str]) -> None:
    settings = Settings(nats_url="nats://localhost:1", postgres_dsn="postgresql://localhost/x")
    for _ in range(2):
        check(playbook(ONE_STEP), settings)
    assert len(compiled) == 2
