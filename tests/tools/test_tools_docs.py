"""``docs/reference/tools.md`` describes every kind as the code implements it."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import AliasChoices, BaseModel
from ruamel.yaml import YAML

import noetl_stream
from noetl_stream.model.outcome import ERROR_KINDS
from noetl_stream.settings.children import ChildSettings
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_stream.worker.worker_limits import MAX_OUTPUT_CHARACTERS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "tools.md").read_text()
KINDS = kinds_of(load_tools())
OURS = ["noop", "python", "http", "postgres", "duckdb", "shell", "nats", "secrets"]
OF_THE_LANGUAGE = {"timeout", "policy"}


def section(kind: str) -> str:
    return PAGE.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]


def names(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        found |= {str(choice) for choice in alias.choices} if isinstance(alias, AliasChoices) else {name}
    return found


def fragments() -> list[dict[str, Any]]:
    blocks = re.findall(r"```yaml tasks\n(.*?)```", PAGE, re.DOTALL)
    return [task for block in blocks for task in YAML(typ="safe", pure=True).load(block)]


@pytest.mark.parametrize("kind", OURS)
def test_every_input_and_knob_is_described(kind: str) -> None:
    tables = "".join(re.findall(r"^\| (?:input|knob) \|.*?(?:\n\n|\Z)", section(kind), re.MULTILINE | re.DOTALL))
    described = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", tables, re.MULTILINE))))
    assert described == names(KINDS[kind].inputs) | names(KINDS[kind].knobs)


@pytest.mark.parametrize("kind", OURS)
def test_every_default_of_a_knob_is_the_real_one(kind: str) -> None:
    for name, field in KINDS[kind].knobs.model_fields.items():
        shown = str(field.default).lower() if isinstance(field.default, bool) else str(field.default or "not set")
        assert f"| `{name}` | {shown} |" in section(kind)


def test_every_sample_names_inputs_and_knobs_that_exist() -> None:
    assert {task["kind"] for task in fragments()} == set(OURS)
    for task in fragments():
        spec = KINDS[task["kind"]]
        assert set(task) - {"name", "kind", "spec"} <= names(spec.inputs)
        assert set(task.get("spec", {})) - OF_THE_LANGUAGE <= names(spec.knobs)


def test_the_page_says_how_much_output_is_kept() -> None:
    assert f"first {MAX_OUTPUT_CHARACTERS:,} characters" in " ".join(section("python").split())


def test_the_error_kinds_are_those_of_the_model() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (.*?) \|$", section("Error kinds"), re.MULTILINE)
    assert dict(listed) == ERROR_KINDS
    assert len(listed) == len(ERROR_KINDS)


def test_every_error_kind_that_the_sources_write_has_its_meaning() -> None:
    written: set[str] = set()
    for file in Path(noetl_stream.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ToolFailure.of", "ErrorInfo", "JobFailed"):
                written |= kinds_in(node, file)
    assert len(written) > 20 and written - ERROR_KINDS.keys() == set()
    assert "not_undone" in written, "kinds that are constants count, too"


def kinds_in(call: ast.Call, file: Path) -> set[str]:
    """The error kind that a call of the sources is given, if it stands there or is a constant of its module."""
    match call.args:
        case [ast.Constant(str(kind)), *_]:
            return {kind}
        case [ast.Name(name), *_] if name.isupper():
            words = file.relative_to(Path(noetl_stream.__file__).parents[1]).with_suffix("").parts
            return {getattr(import_module(".".join(words)), name)}
    return set()


async def test_the_samples_of_the_page_about_tool_kinds_work(make_call: Any) -> None:
    page = (DOCS / "how-to" / "write-a-tool-kind.md").read_text()
    lamp, set_lamp, wrap = [sample(source) for source in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)]
    tool = lamp["LampTool"]()
    assert (await tool.run(make_call({"room": "hall"}))).result == {"room": "hall", "watts": 40}
    with pytest.raises(ToolFailure, match="no lamp in the attic"):
        await tool.run(make_call({"room": "attic"}))
    assert set_lamp["LampTool"].configured(ToolSettings(own={"lamp": {"max_watts": 60}})).max_watts == 60
    wrapping = wrap["WrapTool"](ChildSettings())
    try:
        assert (await wrapping.run(make_call({"text": "a bird in the hand is one"}))).result[0] == "a bird in the hand"
    finally:
        await wrapping.close()


def sample(source: str) -> dict[str, Any]:
    """The names that a piece of Python binds."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names
