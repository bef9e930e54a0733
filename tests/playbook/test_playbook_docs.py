"""Every YAML block of the documents is what the checker accepts, and the page about playbooks tells the truth."""

from __future__ import annotations

import re

import pytest
from playbook_building import workflow
from playbook_kinds import KINDS
from playbook_parts import DOCS, Part, parts, whole

from noetl_stream.model.limits import NAMES
from noetl_stream.playbook import diagnostics
from noetl_stream.playbook.check import step_graph as graph
from noetl_stream.playbook.check import templates
from noetl_stream.playbook.compile.compiler import check, check_document
from noetl_stream.playbook.model import loop
from noetl_stream.playbook.yaml import source
from noetl_stream.tools.registry import kinds_of, load_tools

PAGE = DOCS / "reference" / "playbook.md"
TEXT = PAGE.read_text(encoding="utf-8")
TESTED_ELSEWHERE = {"tasks", "values", "findings"}
"""Blocks of the pages about tools and templates, which are not parts of playbooks, and about findings."""

BLOCKS = [part for page in sorted(DOCS.rglob("*.md")) for part in parts(page) if part.name not in TESTED_ELSEWHERE]
INSTALLED = {**KINDS, **kinds_of(load_tools())}


@pytest.mark.parametrize("block", BLOCKS, ids=[f"{part.page}-{part.name}{n}" for n, part in enumerate(BLOCKS)])
def test_a_block_of_the_documents_is_accepted_without_a_word(block: Part) -> None:
    text = whole(block.name, block.text)
    if "auth: warehouse" in text:
        keychain = next(part.text for part in parts(PAGE) if part.name == "keychain")
        text = text.replace("workflow:", f"{keychain}workflow:")
    assert [item.render() for item in check_document(text, INSTALLED, file=block.page, proves=True).diagnostics] == []


def test_the_reference_shows_every_part_of_a_playbook() -> None:
    shown = {part.name for part in parts(PAGE)}
    assert shown == {"playbook", "steps", "step", "rules", "loop", "admit", "next", "keychain"}
    assert TEXT.count("```yaml") == len(parts(PAGE))


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


@pytest.mark.parametrize("word", ["before", "after", "placement", "profile"])
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
    ("tool: { fetch: { kind: noop } }", "tool: [ { fetch:"),
]


@pytest.mark.parametrize(("written", "hint"), OLDER)
def test_the_older_forms_on_the_page_are_refused_with_the_newer_one(written: str, hint: str) -> None:
    tool = "" if written.startswith("tool") else "\n  tool: { kind: noop }"
    [problem] = check(workflow(f"- step: start{tool}\n  {written}"), KINDS).diagnostics
    assert problem.severity == "error" and problem.hint is not None and hint in problem.hint
