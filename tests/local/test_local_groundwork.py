"""The folder of a new home's Postgres is made while ``run`` checks its playbook, and undone if that is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from cli_program import PATIENCE_S
from noetl_stream.local import EmbeddedStack
from noetl_stream.local.background import Groundwork
from noetl_stream.local.home import prepare_home
from noetl_stream.settings.sources.environment import DEFAULT_POOL

ServersUnder = Callable[[Path], list[int]]


def begun(home: Path) -> Groundwork:
    found = Groundwork.begin(home, DEFAULT_POOL)
    assert found is not None
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s


def makers_of(home: Path) -> list[int]:
    found = psutil.process_iter(["cmdline"])
    return [each.pid for each in found if any(str(home) in word for word in each.info["cmdline"] or ())]


def test_a_stack_starts_on_the_folder_that_was_made(fresh_home: Path, servers_under: ServersUnder) -> None:
    begun(fresh_home).keep()
    made = (fresh_home / "postgres" / "data" / "PG_VERSION").stat()
    assert servers_under(fresh_home) == []
    with EmbeddedStack.join(fresh_home) as stack:
        assert sorted(servers_under(fresh_home)) == sorted(stack.pids().values())
    assert (fresh_home / "postgres" / "data" / "PG_VERSION").stat().st_mtime_ns == made.st_mtime_ns


def test_nothing_is_left_of_one_that_is_undone(fresh_home: Path) -> None:
    groundwork = begun(fresh_home)
    until(lambda: any((fresh_home / "postgres" / name / "base").exists() for name in ("data.new", "data")))
    groundwork.undo()
    assert not fresh_home.exists()
    assert makers_of(fresh_home) == []


def test_one_that_was_killed_is_made_by_who_joins(fresh_home: Path, servers_under: ServersUnder) -> None:
    others = psutil.Process().children()
    groundwork = begun(fresh_home)
    [maker] = [child for child in psutil.Process().children() if child not in others]
    maker.kill()
    groundwork.keep()
    with EmbeddedStack.join(fresh_home) as stack:
        assert sorted(servers_under(fresh_home)) == sorted(stack.pids().values())


def test_a_waiter_for_a_home_that_is_undone_creates_it_again(fresh_home: Path, servers_under: ServersUnder) -> None:
    groundwork = begun(fresh_home)
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(EmbeddedStack.join, fresh_home)
        until(lambda: [one.path for one in psutil.Process().open_files()].count(str(fresh_home / "start.lock")) == 2)
        groundwork.undo()
        with joining.result() as stack:
            assert sorted(servers_under(fresh_home)) == sorted(stack.pids().values())


def test_one_that_fails_leaves_the_error_to_who_joins(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("noetl_stream.local.postgres_server.DataFolder.create", fails)
        begun(fresh_home).keep()
    with EmbeddedStack.join(fresh_home) as stack:
        assert set(stack.pids()) == {"nats", "postgres"}


def test_a_home_that_is_there_is_left_alone(fresh_home: Path) -> None:
    prepare_home(fresh_home)
    assert Groundwork.begin(fresh_home, DEFAULT_POOL) is None
    assert not (fresh_home / "start.lock").exists()
