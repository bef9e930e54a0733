"""The plugin of pytest, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from playbook_test_stage import FETCH, written

from wheels import wheel, wheel_of_installed

PLUGIN = "noetl_stream.cli.playbook.pytest_plugin"
OURS = {"noetl_stream", "noetl_stream.cli", "noetl_stream.cli.playbook", "noetl_stream.playbook_tests", PLUGIN}
GOOD = "given: { stubs: { fetch: { result: { data: 1 } } } }, then: { result: { got: 1 } }"


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Without the other plugins of this environment, which take seconds."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", PLUGIN, *words]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def test_pytest_finds_the_plugin_by_itself() -> None:
    assert {point.value for point in entry_points(group="pytest11")} >= {PLUGIN}


def test_each_test_of_a_document_is_an_item(tmp_path: Path) -> None:
    written(tmp_path, FETCH, f"- {{ name: one, {GOOD} }}\n- {{ name: two words, then: {{ status: failed }} }}")
    ended = pytest_in(tmp_path, "-v")
    assert "p.test.yaml::one PASSED" in ended.stdout
    assert "p.test.yaml::two words FAILED" in ended.stdout
    said = ended.stdout.replace(f"{tmp_path}/", "")
    assert "p.test.yaml:5:5: p.yaml:8: task `get` of step `fetch` (kind http): no stub" in said
    assert "Traceback" not in ended.stdout
    assert ended.returncode == 1
    assert "1 passed" in pytest_in(tmp_path, "-k", "one").stdout


def test_functions_of_packages_are_found_at_the_path_of_pytest(tmp_path: Path) -> None:
    step = '- { step: start, tool: { kind: python, function: "prices:total", args: { prices: [3, 4] } } }'
    test = "- { name: sum, given: { real: [python] }, then: { result: 7 } }"
    written(tmp_path, f"workflow:\n  {step}\n", test)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "prices.py").write_text("def total(prices: list[int]) -> int:\n    return sum(prices)\n")
    assert "1 passed" in pytest_in(tmp_path, "-o", "pythonpath=src").stdout


def test_a_test_in_a_project_has_its_packages_and_the_environments_of_its_tasks(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path_factory.mktemp("index")
    index.chmod(0o755)
    wheel(index, "tiny", "1.0", {"tiny.py": "VERSION = '1.0'\n"})
    wheel_of_installed(index, "msgspec")
    monkeypatch.setenv("NOETL_PYTHON_INDEX", str(index))
    monkeypatch.setenv("NOETL_HOME", str(tmp_path / "home"))
    spec = "executor: { spec: { python: { requires: [tiny] } } }"
    steps = [f'- {{ step: {name}, tool: {{ kind: python, function: "prices:{name}" }} }}' for name in ("start", "end")]
    steps[0] = steps[0].replace("} }", "}, next: { arcs: [ { step: end } ] } }")
    test = """
        - name: required
          given: { real: [python], stubs: { end: { result: 2 } } }
          then: { result: 2, path: [start, end], calls: { start: 1 } }
        - name: missing
          given: { real: [python], stubs: { start: { result: 1 } } }
          then: { status: failed, error: { kind: exception } }
    """
    written(tmp_path, "\n".join([spec, "workflow:", *(f"  {step}" for step in steps)]), test)
    (tmp_path / "noetl-stream.toml").write_text('name = "tests/project"\npackages = ["src"]\n')
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "prices.py").write_text(
        "def start():\n    import tiny\n    return tiny.VERSION\n\n\ndef end():\n    import polars\n"
    )
    assert "2 passed" in pytest_in(tmp_path).stdout
    (locked,) = (tmp_path / "locks").iterdir()
    assert "tiny==1.0" in locked.read_text()
    (tmp_path / "noetl-stream.toml").write_text("name = 1\n")
    assert "noetl-stream.toml:1:1: `name` is not a text" in pytest_in(tmp_path).stdout


def test_a_package_that_no_index_has_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_PYTHON_INDEX", str(tmp_path))
    test = "- { name: one, given: { real: [python] }, then: { result: 1 } }"
    step = "- { step: start, tool: { kind: python, code: return 1, spec: { python: { requires: [absent] } } } }"
    written(tmp_path, f"workflow:\n  {step}\n", test)
    ended = pytest_in(tmp_path)
    assert "p.yaml:5: absent: cannot be locked" in ended.stdout and "Traceback" not in ended.stdout


def test_a_document_with_errors_is_an_error_of_collection(tmp_path: Path) -> None:
    written(tmp_path, FETCH, "- { name: one, thn: {} }")
    ended = pytest_in(tmp_path)
    assert "p.test.yaml:4:18: error[unknown_key]: unknown key `thn` in a test" in ended.stdout
    assert "did you mean `then`?" in ended.stdout
    assert ended.returncode == 2


def test_without_such_documents_nothing_of_the_engine_is_imported(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\n"
        "def test_it():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'noetl_stream'}\n"
        f"    assert ours == {OURS}\n"
        "    assert not {'asyncpg', 'pydantic', 'duckdb', 'msgspec', 'jinja2'} & sys.modules.keys()\n"
    )
    ended = pytest_in(tmp_path)
    assert ended.returncode == 0, ended.stdout
