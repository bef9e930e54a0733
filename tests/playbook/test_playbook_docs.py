"""Every YAML block of the reference is what the checker accepts. Its word after ``yaml`` says which part it is."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest
from playbook_building import workflow
from playbook_kinds import KINDS

from noetl_stream.playbook.compile import check
from noetl_stream.playbook.task import LATER_KINDS

PAGE = Path(__file__).parents[2] / "docs" / "playbook.md"
BLOCKS = re.findall(r"^```yaml (\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
TARGETS = "".join(f"- step: {name}\n  tool: {{ kind: noop }}\n" for name in ("store", "cleanup"))


def whole(part: str, block: str) -> str:
    """The playbook in which a block stands."""
    match part:
        case "playbook":
            return block
        case "steps":
            return workflow(block)
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


@pytest.mark.parametrize(("part", "block"), BLOCKS, ids=[part for part, _ in BLOCKS])
def test_a_block_of_the_reference_is_accepted_without_a_word(part: str, block: str) -> None:
    assert [item.render() for item in check(whole(part, block), KINDS, file=part).diagnostics] == []


def test_the_reference_shows_every_part_of_a_playbook() -> None:
    assert [part for part, _ in BLOCKS] == ["playbook", "steps", "rules", "loop", "admit", "next"]
    assert PAGE.read_text(encoding="utf-8").count("```yaml") == len(BLOCKS)


REFUSED = [
    "step: start, spec: { join: all }, tool: { kind: noop }",
    "step: start, tool: { kind: noop }, "
    "spec: { policy: { admit: { rules: [ { else: { then: { allow: true } } } ], wait: { timeout_s: 1 } } } }",
    "step: start, spec: { policy: { lifecycle: { timeout_s: 1 } } }, tool: { kind: noop }",
    "step: start, loop: { in: [1], iterator: a, loop: { in: [1], iterator: b } }, tool: { kind: noop }",
    "step: start, spec: { follow_redirects: true }, tool: { kind: noop }",
    *(f"step: start, tool: {{ kind: {kind} }}" for kind in sorted(LATER_KINDS)),
]


@pytest.mark.parametrize("step", REFUSED)
def test_what_the_page_says_is_not_supported_yet_is_refused_so(step: str) -> None:
    assert {item.code for item in check(workflow(f"- {{ {step} }}"), KINDS).diagnostics} == {"not_supported_yet"}
