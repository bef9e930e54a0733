from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.tools import registry
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import Knobs
from noetl_stream.tools.pipeline import NoopInputs, NoopTool
from noetl_stream.tools.registry import installed_tools, kinds_of, load_tools
from noetl_testkit.waiting import TIMEOUT_S

OURS = {"noop", "python", "http", "postgres", "duckdb", "shell", "nats"}


class LampTool:
    spec = KindSpec(kind="lamp", inputs=NoopInputs, knobs=Knobs)

    async def run(self, call: ToolCall) -> ToolResult:
        return ToolResult("on")

    async def close(self) -> None:
        pass


class NotATool:
    pass


class BlockingTool:
    spec = KindSpec(kind="blocking", inputs=NoopInputs, knobs=Knobs)

    def run(self, call: ToolCall) -> ToolResult:
        return ToolResult(None)

    async def close(self) -> None:
        pass


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry.GROUP)


def test_our_kinds_are_installed_by_entry_point() -> None:
    tools = load_tools()
    assert set(tools) >= OURS
    assert tools["noop"] is NoopTool


def test_the_checker_gets_every_kind_s_specification() -> None:
    kinds = kinds_of(load_tools())
    assert {kind: spec.kind for kind, spec in kinds.items()} == {kind: kind for kind in kinds}
    assert kinds["python"].verbatim == {"code", "function"}
    assert kinds["python"].reads_scope
    assert [kinds[kind].helper for kind in ("http", "postgres", "python", "noop")] == ["http", "pg", "py", None]


def test_a_plugin_adds_a_kind() -> None:
    installed = installed_tools(
        [point("lamp", f"{__name__}:LampTool"), point("noop", "noetl_stream.tools.pipeline:NoopTool")]
    )
    assert set(installed.tools) == {"lamp", "noop"}
    assert installed.problems == []


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("lamp", "no_such_module_here:Lamp", "importing no_such_module_here:Lamp raised ModuleNotFoundError"),
        ("lamp", f"{__name__}:NoSuchName", "AttributeError"),
        ("lamp", f"{__name__}:NotATool", "must be a class with the attribute `spec`"),
        ("light", f"{__name__}:LampTool", "has kind 'lamp', but its entry point is named 'light'"),
        ("blocking", f"{__name__}:BlockingTool", "has no `async def run`"),
    ],
)
def test_a_broken_plugin_is_named_and_leaves_the_others_alone(name: str, value: str, reason: str) -> None:
    installed = installed_tools([point(name, value), point("noop", "noetl_stream.tools.pipeline:NoopTool")])
    assert set(installed.tools) == {"noop"}
    [problem] = installed.problems
    assert reason in problem
    assert f"entry point {name} = {value}" in problem
    assert "\n" not in problem


def test_a_plugin_that_fails_to_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loud_plugin.py").write_text("raise RuntimeError('first line\\nsecond line')\n")
    monkeypatch.syspath_prepend(tmp_path)
    [problem] = installed_tools([point("loud", "loud_plugin:Loud")]).problems
    assert "loud_plugin:Loud raised RuntimeError: first line" in problem
    assert "second line" not in problem


def test_a_plugin_cannot_take_the_name_of_one_of_ours() -> None:
    ours = next(iter(registry.entry_points(group=registry.GROUP, name="noop")))
    other = point("noop", f"{__name__}:LampTool")
    installed = installed_tools([other, ours])
    assert installed.tools["noop"] is NoopTool
    assert "already provided by noetl-stream" in installed.problems[0]


def test_a_broken_plugin_is_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "shed-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: shed\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{registry.GROUP}]\nrake = shed_rake:Rake\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "rake" not in load_tools()
    assert "tool kind 'rake' of shed (entry point rake = shed_rake:Rake) cannot be used" in caplog.text


def test_checking_needs_none_of_the_heavy_libraries() -> None:
    program = (
        "import sys; from noetl_stream.tools.registry import kinds_of, load_tools; kinds_of(load_tools());"
        "costly = ('aiohttp', 'asyncpg', 'duckdb', 'jsonschema_rs', 'numpy', 'qiskit');"
        "print([name for name in costly if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    assert done.stdout.strip() == "[]"
