"""The plugin of pytest, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from playbook_test_stage import FETCH, written

PLUGIN = "noetl_stream.playbook_tests.pytest_plugin"
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
        f"    assert ours == {{'noetl_stream', 'noetl_stream.playbook_tests', '{PLUGIN}'}}\n"
        "    assert not {'asyncpg', 'pydantic', 'duckdb', 'msgspec', 'jinja2'} & sys.modules.keys()\n"
    )
    ended = pytest_in(tmp_path)
    assert ended.returncode == 0, ended.stdout
