"""What the documents say is true: every command runs, every playbook in them checks, every link leads somewhere."""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.tools.registry import kinds_of, load_tools

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *(ROOT / "plugins").glob("*/README.md")]
TOP = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CODE_OF_CONDUCT", "SECURITY")]
DOCUMENTS = sorted([*TOP, *PAGES])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks(path: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(path.read_text()) if kind == language]


def commands(path: Path) -> list[list[str]]:
    lines = [line for text in blocks(path, "sh") for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def whole_playbooks() -> list[tuple[str, str]]:
    found = [(path.name, path.read_text()) for path in sorted((ROOT / "playbooks").glob("*.yaml"))]
    for path in DOCUMENTS:
        found += [(path.name, text) for text in blocks(path, "yaml") if text.startswith("apiVersion")]
    return [(name, text) for name, text in found if "kind: PlaybookTest" not in text]  # test_playbook_tests_docs.py


def test_every_link_leads_to_a_file() -> None:
    missing = [
        f"{path.name}: {target}"
        for path in DOCUMENTS
        for target in LINK.findall(path.read_text())
        if not (path.parent / target).exists()
    ]
    assert not missing, "\n".join(missing)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Where links into a page may lead: its headings, as code hosts name them, and what has an id."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return frozenset(named | set(re.findall(r'id="([^"]+)"', text)))


def test_every_link_into_a_page_leads_to_a_heading() -> None:
    missing = [
        f"{path.name}: {target}#{anchor}"
        for path in DOCUMENTS
        for target, anchor in re.findall(r"\]\(([^)#:\s]*\.md|)#([^)\s]+)\)", path.read_text())
        if anchor not in anchors(path.parent / target if target else path)
    ]
    assert not missing, "\n".join(missing)


def test_every_whole_playbook_checks() -> None:
    kinds = kinds_of(load_tools())
    found = [d.render() for name, text in whole_playbooks() for d in check_document(text, kinds, file=name).diagnostics]
    assert not found, "\n".join(found)


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [
        f"{path.name}: {words[1]}"
        for path in DOCUMENTS
        for words in commands(path)
        if words[0] == "make" and words[1] not in targets
    ]
    assert not missing, "\n".join(missing)


MODULE = re.compile(r"`(?:src/)?(?:noetl_stream/)?((?:\w+/)+\w+\.(?:py|sql))`")


def test_every_module_that_a_page_names_exists() -> None:
    missing = [
        f"{path.name}: {name}"
        for path in DOCUMENTS
        for name in MODULE.findall(path.read_text())
        if not ((ROOT / name).exists() or (ROOT / "src/noetl_stream" / name).exists())
    ]
    assert not missing, "\n".join(missing)


def test_the_design_lists_the_packages_as_their_arrows_point() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["noetl_stream"])
    _, _, table = (
        (ROOT / "docs" / "explanation" / "design.md").read_text().partition("| package | is |\n| --- | --- |\n")
    )
    rows = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()]
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == [set(re.findall(r"\w+", layer)) for layer in layers]
