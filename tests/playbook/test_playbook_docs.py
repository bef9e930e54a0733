"""Every YAML block of the reference is what the checker accepts. Its word after ``yaml`` says which part it is."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest
from playbook_building import workflow
from playbook_kinds import KINDS

from noetl_stream.model.limits import NAMES
from noetl_stream.playbook import diagnostics
from noetl_stream.playbook.check import graph, templates
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.model import loop
from noetl_stream.playbook.yaml import source
from noetl_stream.tools.registry import kinds_of, load_tools

PAGE = Path(__file__).parents[2] / "docs" / "playbook.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml (\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
TARGETS = "".join(f"- step: {name}\n  tool: {{ kind: noop }}\n" for name in ("store", "cleanup"))
INSTALLED = {**KINDS, **kinds_of(load_tools())}


def whole(part: str, block: str) -> str:
    """The playbook in which a block stands."""
    match part:
        case "playbook":
            return block
        case "steps":
            return workflow(block)
        case "step":
            return workflow(f"- step: start\n  tool: {{ kind: http, url: a }}\n{indent(block, '  ')}")
        case "keychain":
            return workflow("- step: start\n  tool: { kind: noop }", root=block)
        case "rules":
            spec = f"      policy:\n        rules:\n{indent(block, ' ' * 10)}"
            return workflow(f"- step: start\n  tool:\n    name: fetch\n    kind: http\n    url: a\n    spec:\n{spec}")
        case "loop":
            return workflow(f"- step: start\n  tool: {{ kind: noop }}\n  loop:\n{indent(block, ' ' * 4)}")
        case "admit":
            admit = f"  spec:\n    policy:\n      admit:\n{indent(block, ' ' * 8)}"
            return workflow(f"- step: start\n  tool: {{ kind: noop }}\n{admit}")
        case "next":
            step = "- step: start\n  loop: { in: [1], iterator: item }\n  tool: { kind: noop }\n"
            return workflow(f"{step}  next:\n{indent(block, ' ' * 4)}{TARGETS}")
        case _:
            raise AssertionError(f"the page has a block of an unknown part: {part}")


@pytest.mark.parametrize(("part", "block"), BLOCKS, ids=[f"{part}{n}" for n, (part, _) in enumerate(BLOCKS)])
def test_a_block_of_the_reference_is_accepted_without_a_word(part: str, block: str) -> None:
    keychain = next(text for name, text in BLOCKS if name == "keychain")
    text = whole(part, block)
    if "auth: warehouse" in text:
        text = text.replace("workflow:", f"{keychain}workflow:")
    assert [item.render() for item in check(text, INSTALLED, file=part).diagnostics] == []


def test_the_reference_shows_every_part_of_a_playbook() -> None:
    shown = {part for part, _ in BLOCKS}
    assert shown == {"playbook", "steps", "step", "rules", "loop", "admit", "next", "keychain"}
    assert TEXT.count("```yaml") == len(BLOCKS)


def test_the_limits_on_the_page_are_those_of_the_checker() -> None:
    limits = {
        "max_playbook_bytes": (source.MAX_PLAYBOOK_BYTES, "512 KiB"),
        "max_yaml_depth": (source.MAX_YAML_DEPTH, "64"),
        "max_yaml_nodes": (source.MAX_YAML_NODES, "20,000"),
        "max_yaml_aliases": (source.MAX_YAML_ALIASES, "500"),
        "max_code_chars": (templates.MAX_CODE_CHARS, "65,536"),
        "max_loop_levels": (loop.MAX_LOOP_LEVELS, "8"),
        "max_joins": (graph.MAX_JOINS, "100"),
    }
    for name, (value, shown) in limits.items():
        assert re.search(rf"{re.escape(shown)}\D*`{name}`", TEXT), name
        assert value == 512 * 1024 if shown == "512 KiB" else value == int(shown.replace(",", "")), name
    assert f"the first {diagnostics.MAX_DIAGNOSTICS} are listed" in TEXT
    named = set(re.findall(r"limits\.(\w+)", TEXT)) - {"md"}
    assert named <= set(NAMES)


RESERVED = re.search(r"^Reserved, (.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "word", ["before", "after", "finally", "tracing", "quotas", "compensation", "placement", "profile"]
)
def test_the_words_that_the_page_calls_reserved_are_so_at_every_policy(word: str) -> None:
    assert RESERVED is not None and f"`{word}`" in RESERVED[1]
    for spec in (f"{{ policy: {{ {word}: x }} }}", "{}"):
        root = "" if spec != "{}" else f"executor: {{ spec: {{ policy: {{ {word}: x }} }} }}\n"
        text = workflow(f"- step: start\n  spec: {spec}\n  tool: {{ kind: noop }}", root)
        assert [item.code for item in check(text, KINDS).diagnostics] == ["reserved"]


OLDER = [
    ("when: true", "admit"),
    ("case: []", "policy"),
    ("vars: {}", "set_vars"),
    ("next: start", "arcs"),
    ("sink: {}", "task that writes"),
    ("tool: { fetch: { kind: noop } }", "name: fetch"),
]


@pytest.mark.parametrize(("written", "hint"), OLDER)
def test_the_older_forms_on_the_page_are_refused_with_the_newer_one(written: str, hint: str) -> None:
    tool = "" if written.startswith("tool") else "\n  tool: { kind: noop }"
    [problem] = check(workflow(f"- step: start{tool}\n  {written}"), KINDS).diagnostics
    assert problem.severity == "error" and problem.hint is not None and hint in problem.hint
