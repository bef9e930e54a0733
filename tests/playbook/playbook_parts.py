"""The YAML blocks of the documents, and the playbooks and triggers they are parts of."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from playbook_building import workflow

DOCS = Path(__file__).parents[2] / "docs"
TARGETS = "".join(f"- step: {name}\n  tool: {{ kind: noop }}\n" for name in ("store", "cleanup"))
TRIGGER = "apiVersion: noetl.io/v2\nkind: Trigger\nmetadata: { name: shown, path: shop/shown }\nspec:\n"


class Part(NamedTuple):
    """A block of a page: the word after ``yaml`` says which part of a playbook it is."""

    page: str
    name: str
    text: str


def parts(page: Path) -> list[Part]:
    """The blocks of a page that are parts of playbooks."""
    blocks = re.findall(r"^```yaml (\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [Part(str(page.relative_to(DOCS)), name, text) for name, text in blocks]


def whole(name: str, block: str) -> str:
    """The document in which a block stands."""
    match name:
        case "playbook":
            return block
        case "steps":
            return workflow(block)
        case "step":
            return workflow(f"- step: start\n  tool: {{ kind: http, url: https://a/ }}\n{indent(block, '  ')}")
        case "keychain" | "root":
            return workflow("- step: start\n  tool: { kind: noop }", root=block)
        case "rules":
            spec = f"      policy:\n        rules:\n{indent(block, ' ' * 10)}"
            return workflow(
                f"- step: start\n  tool:\n    name: fetch\n    kind: http\n    url: https://a/\n    spec:\n{spec}"
            )
        case "loop":
            return workflow(f"- step: start\n  tool: {{ kind: noop }}\n  loop:\n{indent(block, ' ' * 4)}")
        case "admit":
            admit = f"  spec:\n    policy:\n      admit:\n{indent(block, ' ' * 8)}"
            return workflow(f"- step: start\n  tool: {{ kind: noop }}\n{admit}")
        case "next":
            step = "- step: start\n  loop: { in: [1], iterator: item }\n  tool: { kind: noop }\n"
            return workflow(f"{step}  next:\n{indent(block, ' ' * 4)}{TARGETS}")
        case "trigger":
            return TRIGGER + indent(block, "  ")
        case "on":
            return f"{TRIGGER}  playbook: shop/build\n  on:\n{indent(block, '    ')}"
        case _:
            raise AssertionError(f"a page has a block of an unknown part: {name}")
