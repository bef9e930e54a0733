"""One shared stack, for tests that only need a running one."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from cli_program import NOETL, environment, noetl
from effort import EFFORT, times
from homes import folder_for_home, shared_files
from noetl_stream.local.processes import choose_port

# A failing assert of a helper shows what it compared, as one of a test does.
pytest.register_assert_rewrite(
    *(
        file.stem
        for file in Path(__file__).parent.glob("*/*.py")
        if file.stem != "conftest" and file.stem[:5] != "test_"
    )
)

# Ten thousand collected tests are objects that each collection of garbage would look at.
gc.set_threshold(100_000, 20, 20)

settings.register_profile("effort", max_examples=times(30), deadline=None)
settings.load_profile("effort")

for ignored in (signal.SIGINT, signal.SIGHUP):
    # A shell's background job ignores Ctrl-C, one of nohup a closed terminal, and so would the programs of our tests.
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FIRST = (
    *("stack", "journeys", "own_stacks"),
    *("test_quality_checks", "test_simulation", "test_page_looks", "test_page_list", "test_quality_instructions"),
    *("test_postgres_store", "test_archive", "test_template_attacks", "test_page_build", "test_simulated_schedules"),
)
"""The slowest groups, in the order in which they start, so that all workers end at about the same time."""

LONGEST_ID = 100
"""Characters of a parameter in the name of a test. Each worker sends all names, and a name with every report."""


def pytest_configure(config: pytest.Config) -> None:
    """Each worker begins to collect at another folder: what one has compiled, the others read."""
    paths = (ROOT / "tests").iterdir()
    parts = sorted(str(path) for path in paths if path.match("test_*.py") or any(path.rglob("test_*.py")))
    sys.path += parts  # helpers are imported from folders that may come later
    worker = getattr(config, "workerinput", None)
    if worker and config.args == config.getini("testpaths"):
        first = len(parts) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = [*parts[first:], *parts[:first]]


def pytest_make_parametrize_id(val: object) -> str | None:
    """A large text is told by its beginning and its length."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_ID:
        beginning = val[:LONGEST_ID] if isinstance(val, str) else val[:LONGEST_ID].decode("ascii", "backslashreplace")
        return f"{beginning}... of {len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker runs a whole group at a time. The group of a test without a mark is its file. Only what the gate runs is
    bounded in time.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if EFFORT > 1 or item.get_closest_marker("verify") or item.get_closest_marker("containers"):
            item.add_marker(pytest.mark.timeout(0))
    items.sort(key=lambda item: (_start_order(item), item.nodeid.partition("::")[0]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The jitter of retries is the same in each run of a test."""
    random.seed(item.name)


def pytest_collection_finish() -> None:
    gc.freeze()


def _start_order(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    (group,) = mark.args
    return LONGEST_FIRST.index(group) if group in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session")
def keychain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the keychain of the shared stack may name files."""
    return tmp_path_factory.mktemp("keychain")


@pytest.fixture(scope="session")
def shared_gateway_port() -> int:
    """The port of the gateway of the shared stack."""
    return choose_port()


@pytest.fixture(scope="session")
def shared_home(
    worker_id: str, tmp_path_factory: pytest.TempPathFactory, keychain_folder: Path, shared_gateway_port: int
) -> Iterator[Path]:
    """The home of a whole stack that is kept up, for tests that do it no harm.

    Mark them ``xdist_group("stack")``, so that there is only one.
    """
    if worker_id != "master":
        of_this_run = tmp_path_factory.getbasetemp().parent
        (of_this_run / "stack-started").touch(exist_ok=False)  # fails if another worker has started one
    with folder_for_home("shared") as home, shared_files() as files:
        with (home / "dev.log").open("w") as log:
            process = subprocess.Popen(
                [*NOETL, "dev", "--home", str(home), "--gateway-port", str(shared_gateway_port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(
                    NOETL_KEYCHAIN_FOLDERS=str(keychain_folder),
                    NOETL_CHILD_PATHS=f"{files}:{ROOT / 'docs' / 'adr'}",
                    NOETL_TRIGGER_STREAMS="VISITS",
                    NOETL_PYTHON_INDEX=str(files),
                    NOETL_PYTHON_INTERPRETERS=sys.executable,
                ),
            )
        try:
            assert process.stdout is not None
            first_line = process.stdout.readline()
            assert "is running" in first_line, (home / "dev.log").read_text()
            yield home
        finally:
            process.terminate()
            process.communicate(timeout=60)


@pytest.fixture(scope="session")
def used_home() -> Iterator[Path]:
    """A home whose servers were started once and stopped, to be copied (:func:`homes.copy_home`)."""
    with folder_for_home("used") as folder:
        home = folder / "home"
        made = noetl("execution", "list", "--home", home)
        assert made.returncode == 0, made.stderr
        yield home
