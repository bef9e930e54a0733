"""What commands import before they do their work: that is nearly all that a short one takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_program import HEAD, environment, only_json
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

LIBRARIES = {
    *("aiohttp", "cryptography", "duckdb", "jinja2", "jsonschema_rs", "nacl", "nats", "nkeys", "psutil"),
    *("pydantic", "rich", "ruamel", "importlib.metadata", "importlib.resources"),
    *("dataclasses", "encodings.idna", "shutil", "tempfile"),
}
PARTS = {
    *(
        "engine",
        "gateway",
        "server",
        "tools",
        "worker",
        "adapters.nats",
        "hosting.role_processes",
        "wiring.role_assembly",
    ),
    *("adapters.postgres.upkeep", "adapters.postgres.retention", "operations.views.index"),
    *("playbook.compile", "playbook.model", "playbook.plan", "playbook.yaml", "template.compile"),
}
COSTLY = LIBRARIES | {f"noetl_stream.{part}" for part in PARTS}

CALL = """
import contextlib, io, json, sys
from noetl_stream.cli.main import noetl_stream
loaded = {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        noetl_stream.main(words, standalone_mode=False)
    loaded[" ".join(words)] = sorted(sys.modules)
print(json.dumps(loaded))
"""
"""Calls commands one after the other, each with its own arguments; prints what is imported after each."""


ONE_TOOL = (
    HEAD
    + """\
metadata: {name: one_tool, path: tests/one_tool}
workflow:
  - {step: only, tool: TOOL}
"""
)

PATIENT = "from noetl_stream.cli.execution import follow; follow.SILENCE_S = 600.0"
"""Lets a command that follows an execution ask only late why it waits: a slow machine is no part of what it imports."""


def costly_modules_of(*commands: list[str], before: str = "") -> dict[str, set[str]]:
    """What the commands have imported that they should not, by command."""
    called = subprocess.run(
        [sys.executable, "-c", before + CALL, json.dumps(commands)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert called.returncode == 0, called.stderr
    loaded: dict[str, list[str]] = json.loads(called.stdout)
    return {command: {*modules} & COSTLY for command, modules in loaded.items()}


@pytest.fixture
def ended(shared_home: Path, one_step: Path) -> Any:
    return only_json(noetl("run", one_step, "--home", shared_home, "-o", "json"))


def test_commands_that_read_import_nothing_that_they_do_not_use(shared_home: Path, ended: Any) -> None:
    execution_id = ended["execution_id"]
    reads = [
        ["execution", "list", "--path", "tests/one"],  # of others something may have to be decrypted
        *(["execution", verb, execution_id] for verb in ("get", "result", "steps", "events")),
        ["playbook", "list"],
        ["credential", "list"],
        ["token", "list"],
        ["audit", "list"],
        ["dead-letter", "list"],
    ]
    found = costly_modules_of(*([*words, "--home", str(shared_home)] for words in reads))
    assert {command: costly for command, costly in found.items() if costly} == {}


def test_why_an_execution_has_completed_is_explained_without_templates(shared_home: Path, ended: Any) -> None:
    words = ["execution", "why", ended["execution_id"], "--home", str(shared_home)]
    [costly] = costly_modules_of(words).values()
    assert costly == {"noetl_stream.engine"}, "which folds the journal"


@pytest.mark.parametrize(
    "tool",
    ["{ kind: noop }", "{ kind: wait, for_s: 1 }"],
    ids=["it ends at once", "it has not ended when it is accepted"],
)
def test_a_run_of_a_file_that_was_checked_before_compiles_nothing(
    shared_home: Path, playbook: Callable[[str], Path], tool: str
) -> None:
    words = ["run", playbook(ONE_TOOL.replace("TOOL", tool)), "--home", shared_home, "-o", "json"]
    only_json(noetl(*words))
    [costly] = costly_modules_of([str(one) for one in words], before=PATIENT).values()
    assert not {one for one in costly if "playbook" in one or "engine" in one} | costly & {"pydantic", "jinja2"}


@pytest.mark.parametrize("loads", ["load('worker')", "import noetl_stream.hosting.background; load('worker')"])
def test_a_worker_imports_no_postgres_nor_what_it_may_be_forked_from(loads: str) -> None:
    """They need NATS alone."""
    shown = f"import sys; from noetl_stream.hosting.role_processes import load; {loads}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, env=environment(), check=True
    ).stdout.split()
    assert "noetl_stream.worker.worker" in loaded
    assert not {one for one in loaded if one.partition(".")[0] == "asyncpg" or "adapters.postgres" in one}
