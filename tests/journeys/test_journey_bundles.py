"""Functions of a project's packages, deployed to workers that never saw them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli_program import PATIENCE_S, only_json, start
from homes import SHARED_FILES
from warm_program import noetl
from wheels import wheel, wheel_of_installed

pytestmark = pytest.mark.xdist_group("stack")

PROJECT = 'name = "team/etl"\npackages = ["src"]\n'
MODULE = "from etl.factors import FACTOR\n\n\ndef multiplied(n: int) -> int:\n    return n * FACTOR\n"
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: multiply, path: team/etl/multiply }
workload: { n: 21 }
workflow:
  - step: start
    tool: { kind: python, function: "etl:multiplied", args: { n: "{{ workload.n }}" } }
"""


FILES = {"noetl-stream.toml": PROJECT, "playbooks/multiply.yaml": PLAYBOOK, "src/etl/__init__.py": MODULE}


def project(folder: Path) -> Path:
    """A project in this folder, which lacks the module ``etl.factors``."""
    for name, text in FILES.items():
        folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(name).write_text(text)
    return folder


def test_a_file_runs_with_the_packages_of_its_project_as_they_are(shared_home: Path, tmp_path: Path) -> None:
    file, results = project(tmp_path) / "playbooks" / "multiply.yaml", []
    for factor, command in ((5, ("run",)), (7, ("execution", "start", "--wait"))):
        tmp_path.joinpath("src", "etl", "factors.py").write_text(f"FACTOR = {factor}\n")
        ended = noetl(*command, file, "-o", "json", NOETL_HOME=str(shared_home))
        assert ended.returncode == 0, (ended.stdout, ended.stderr)
        results.append(only_json(ended))
    assert [one["result"] for one in results] == [105, 147], "nothing was deployed"
    ended = noetl("execution", "rerun", results[0]["execution_id"], "start", "--wait", NOETL_HOME=str(shared_home))
    assert ended.returncode == 0 and "105" in ended.stdout, "a rerun has the code of its original"


def test_output_of_a_function_is_shown_while_it_runs_and_edited_code_runs_next(
    shared_home: Path, tmp_path: Path
) -> None:
    folder = project(tmp_path)
    module = folder / "src" / "etl" / "factors.py"
    module.write_text(
        "import time\n"
        "from noetl_stream_client import Context\n"
        "FACTOR = 0\n"
        "def wait(n: int, context: Context) -> None:\n"
        "    print('waits', n)\n"
        "    while not context.is_cancelled:\n"
        "        time.sleep(0.05)\n"
    )
    file = folder / "playbooks" / "multiply.yaml"
    file.write_text(PLAYBOOK.replace("etl:multiplied", "etl.factors:wait"))
    with start("run", file, "--label", "test=printed", "--timeout", PATIENCE_S, NOETL_HOME=str(shared_home)) as running:
        assert running.stderr is not None
        while "| waits 21" not in (line := running.stderr.readline()):
            assert line, "it has ended"
        noetl("execution", "cancel", "--label", "test=printed", "--yes", NOETL_HOME=str(shared_home))
        shown = running.communicate(timeout=PATIENCE_S)[1]
    assert "waits" not in shown, "what was shown is not shown again"
    module.write_text("FACTOR = 0\ndef wait(n: int) -> str:\n    print('second edition')\n    return 'edited'\n")
    ended = noetl("run", file, NOETL_HOME=str(shared_home))
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, '"edited"')
    assert ended.stderr.splitlines()[:2] == ["start.start_task | second edition", "start: done"]
    quiet = noetl("run", file, "-o", "json", NOETL_HOME=str(shared_home))
    assert only_json(quiet)["result"] == "edited" and "edition" not in quiet.stderr


def test_a_worker_that_never_saw_the_packages_runs_their_functions_and_executions_keep_them(
    shared_home: Path, tmp_path: Path
) -> None:
    def asked(*command: str | Path) -> Any:
        ended = noetl(*command, "-o", "json", NOETL_HOME=str(shared_home))
        assert ended.returncode == 0, (ended.stdout, ended.stderr)
        return only_json(ended)

    folder = project(tmp_path / "project")
    factors, results, changes = folder / "src" / "etl" / "factors.py", [], []
    for factor in (2, 3):
        factors.write_text(f"FACTOR = {factor}\n")
        deployed = asked("deploy", folder)
        changes.append([(one["change"], one["kind"]) for one in deployed])
        results.append(asked("execution", "start", "team/etl/multiply", "--wait"))
    again = asked("execution", "rerun", results[0]["execution_id"], "start", "--wait")
    assert [one["result"] for one in (*results, again)] == [42, 63, 42], "a rerun has the packages of its original"
    assert changes == [[(change, "Bundle"), (change, "Playbook")] for change in ("added", "changed")]
    assert deployed[0]["note"].endswith("bytes: ~etl/factors.py")
    pulled = asked("pull", folder)
    assert [one["change"] for one in pulled] == ["unchanged"] * 3, "files have no line about their packages"
    copy = tmp_path / "copy"
    asked("pull", copy, "--path", "team/etl")
    assert {name: copy.joinpath(name).read_text() for name in FILES} == FILES
    assert asked("deploy", copy, "--dry-run")[0]["change"] == "unchanged", "it is the same project"


REQUIRING = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: packed, path: team/etl/packed }
workload: { n: 21 }
workflow:
  - step: start
    tool:
      kind: python
      function: "etl:versions"
      args: { n: "{{ workload.n }}" }
      spec: { python: { requires: ["packaging<1"] } }
"""
VERSIONS = """\
import packaging


def versions(n: int) -> list[object]:
    return [packaging.__version__, 2 * n]
"""


def test_a_function_runs_with_another_version_of_a_package_than_its_worker_has(
    shared_home: Path, tmp_path: Path
) -> None:
    wheel(SHARED_FILES, "packaging", "0.1", {"packaging.py": "__version__ = '0.1'\n"})
    wheel_of_installed(SHARED_FILES, "msgspec")
    settings = {"NOETL_HOME": str(shared_home), "NOETL_PYTHON_INDEX": str(SHARED_FILES)}
    folder = tmp_path / "project"
    files = {
        "noetl-stream.toml": PROJECT,
        "playbooks/packed.yaml": REQUIRING,
        "src/etl/__init__.py": VERSIONS,
    }
    for name, text in files.items():
        folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(name).write_text(text)

    def asked(*command: str | Path) -> Any:
        ended = noetl(*command, "-o", "json", **settings)
        assert ended.returncode == 0, (ended.stdout, ended.stderr)
        return only_json(ended)

    first = asked("run", folder / "playbooks/packed.yaml")
    asked("deploy", folder)
    assert [one["result"] for one in (first, asked("execution", "start", "team/etl/packed", "--wait"))] == [
        ["0.1", 42]
    ] * 2
    assert len([*folder.glob("locks/*.txt")]) == 1, "the lock is kept with the project"
    logged = noetl("execution", "logs", first["execution_id"], **settings)
    assert "Installed 2 packages" in logged.stdout, (logged.stdout, logged.stderr)
