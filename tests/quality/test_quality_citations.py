"""Every citation leads to a heading: ``LANGUAGE §n``, ``PROTOCOL §n *Rule*``, ``ADR n``, ``v10 §n.m``, and the like.

A § belongs to the source named last before it in the same paragraph; a page of the law, or the quotes of a source, cite
themselves without a name. A citation that this file cannot attribute is a failure, too: so no citation goes unchecked
because of how it is written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from ruamel.yaml import YAML

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
CONFORMANCE: Final = "reference/conformance"
QUOTES: Final = ROOT / "tests" / "conformance" / "sentences"

PAGES: Final[Mapping[str, str]] = {
    "LANGUAGE": "reference/language.md",
    "PROTOCOL": "explanation/protocol.md",
    "DESIGN": "explanation/design.md",
    "HOT_PATH": "explanation/performance.md",
    "v10": f"{CONFORMANCE}/v10.md",
    "formal": f"{CONFORMANCE}/formal.md",
    "formal specification": f"{CONFORMANCE}/formal.md",
    "runtime-state": f"{CONFORMANCE}/runtime-state.md",
    "legacy-dsl-v2-eval": f"{CONFORMANCE}/legacy-dsl-v2-eval.md",
    "legacy-architecture-case": f"{CONFORMANCE}/legacy-architecture-case.md",
    "legacy architecture": f"{CONFORMANCE}/legacy-architecture-case.md",
}
"""Where the sections of each source stand, below ``docs``; those of the conformance table come with the site."""

OURS: Final = frozenset({"LANGUAGE", "PROTOCOL", "DESIGN", "HOT_PATH"})
"""Sources whose rules are headings of their own; a name after a § of the others is a quotation."""

FEWEST: Final = {"LANGUAGE": 200, "PROTOCOL": 100, "DESIGN": 20, "HOT_PATH": 5, "v10": 12, "ADR": 5}
"""So many citations of each source stand in the files, at least: fewer found means that they are not seen."""

READ: Final = frozenset({".py", ".sql", ".yaml", ".yml", ".conf", ".md"})

SECTION: Final = r"§(\d+(?:\.\d+)*)"
SOURCE: Final = re.compile(
    r"(?<![\w-])(LANGUAGE|PROTOCOL|DESIGN|HOT_PATH|v10|formal(?:\s+specification)?|runtime-state|legacy[-\w]*"
    r"(?:\s+architecture)?)(?:\.txt|\.md)?,?\s+(?=§\d)"
)
FOREIGN: Final = re.compile(r"(?:RFC\s+\d+|HTML\s+Living\s+Standard),?\s+\Z")
PLACE: Final = re.compile(rf"{SECTION}(?:\s*(-|–|to)\s*{SECTION})?")
NAME: Final = re.compile(
    r"(?P<gap>,?\s+(?:and\s+)?)(?P<mark>\*{1,2}|`{1,2})(?P<name>[^*`\s][^*`]{0,58}?)(?P=mark)(?![*`\w])"
)
QUOTED: Final = re.compile(r"(?P<gap>,?\s+)(?P<mark>\")(?P<name>[^\"\s][^\"]{0,58}?)\"")
DECISION: Final = re.compile(r"\bADRs?\s+(\d+)\b")
LEADER: Final = re.compile(r"^[ \t]*(?:#:?|--|>)(?= |$)", re.MULTILINE)
PARAGRAPH: Final = re.compile(r"\n[ \t]*\n|\"\"\"|^- id:", re.MULTILINE)
HEADING: Final = re.compile(r"^(#{2,4})\s+(.+?)\s*#*$", re.MULTILINE)
NUMBERED: Final = re.compile(r"§?(\d+(?:\.\d+)*)\.?(?:\s|$)")


class Citation(NamedTuple):
    """``section`` as written; ``name`` is a rule of that section, or ''."""

    file: str
    line: int
    source: str
    section: str
    name: str = ""

    def __str__(self) -> str:
        name = f" *{self.name}*" if self.name else ""
        return f"{self.file}:{self.line}: {self.source} {'' if self.source == 'ADR' else '§'}{self.section}{name}"


def plain(text: str) -> str:
    """A name as it is compared: without marks, white space as one space, in lower case."""
    return re.sub(r"\s+", " ", re.sub(r"[`*]", "", text)).strip().casefold()


def citations_in(text: str, file: str, home: str = "") -> list[Citation]:
    """What ``text`` cites.

    Args:
        home: The source that a § means where none is named before it.
    """
    text = LEADER.sub(lambda found: " " * len(found.group()), text)
    found = [Citation(file, line_of(text, each), "ADR", each[1]) for each in DECISION.finditer(text)]
    for place in PLACE.finditer(text):
        source = source_of(place, text, home)
        if source is None:
            continue
        line = line_of(text, place)
        found += (Citation(file, line, source, section) for section in sections_of(place))
        if source in OURS:
            section = place[3] or place[1]
            found += (Citation(file, line, source, section, name) for name in names_after(text, place, file))
    return found


def line_of(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def source_of(place: re.Match[str], text: str, home: str) -> str | None:
    """Whose section it is: the source named last in the paragraph, else ``home``; ``None`` for what is not ours."""
    before = text[: place.start()]
    paragraph = before[max((each.end() for each in PARAGRAPH.finditer(before)), default=0) :]
    if FOREIGN.search(paragraph):
        return None
    named = SOURCE.findall(paragraph + place[0])
    return re.sub(r"\s+", " ", named[-1]) if named else home


def sections_of(place: re.Match[str]) -> list[str]:
    """The sections that ``§4``, ``§5.3``, or a range of whole ones means."""
    first, last = place[1], place[3]
    if last is None:
        return [first]
    if "." in first or "." in last:
        return [first, last]
    return [str(number) for number in range(int(first), int(last) + 1)]


def names_after(text: str, place: re.Match[str], file: str) -> Iterator[str]:
    """The rules named after a section: ``*Claim*``, ``**Claim**``, several; one in backticks; in SQL ``"Claim"``."""
    pattern = QUOTED if file.endswith(".sql") else NAME
    at = place.end()
    while named := pattern.match(text, at):
        if named["mark"].startswith("`") and "," in named["gap"]:
            return  # after a comma, code is what the sentence speaks of
        yield named["name"]
        at = named.end()


def numbered(title: str) -> str | None:
    """``5.4`` of ``§5.4 Task policy``, ``6`` of ``6. Loop``; ``None`` of a heading without a number."""
    found = NUMBERED.match(title)
    return found[1] if found else None


@cache
def headings(page: str) -> Mapping[str, frozenset[str]]:
    if page.startswith(CONFORMANCE):
        sources = YAML(typ="safe").load((QUOTES / "sources.yaml").read_text(encoding="utf-8"))["sources"]
        (sections,) = (source["sections"] for source in sources if source["name"] == Path(page).stem)
        return dict.fromkeys(sections, frozenset())
    return headings_of((DOCS / page).read_text(encoding="utf-8"))


def headings_of(text: str) -> Mapping[str, frozenset[str]]:
    """The names below each numbered heading."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found: dict[str, set[str]] = {}
    section = ""
    for _, title in HEADING.findall(text):
        if (number := numbered(plain(title))) is not None:
            section = number
            found.setdefault(section, set())
        elif section:
            found[section].add(plain(title))
    return {number: frozenset(names) for number, names in found.items()}


def problem_of(citation: Citation) -> str:
    """What a citation leads to in vain; ``""`` if it is there."""
    if citation.source == "ADR":
        pattern = f"{int(citation.section):04}-*.md"
        return "" if list((DOCS / "adr").glob(pattern)) else f"no file docs/adr/{pattern}"
    page = PAGES.get(citation.source)
    if page is None:
        return f"which source? known: {', '.join(PAGES)}"
    known = headings(page)
    sections = [number for number in known if f"{number}.".startswith(f"{citation.section}.")]
    if not sections:
        return f"no heading {citation.section} in docs/{page}"
    if citation.name and not any(plain(citation.name) in known[number] for number in sections):
        return f"no heading {citation.name!r} below section {citation.section} of docs/{page}"
    return ""


def cited() -> Iterator[Citation]:
    """All citations: of the code, and of the pages of the law and the decisions."""
    laws = {PAGES[source]: source for source in OURS if source != "LANGUAGE"}
    files = [file for place in ("src", "tests", "benchmarks", "playbooks") for file in (ROOT / place).rglob("*")]
    files += [*(DOCS / page for page in laws), *(DOCS / "adr").glob("*.md")]
    homes = {DOCS / page: source for page, source in laws.items()}
    homes |= {QUOTES / f"{Path(page).stem}.yaml": source for source, page in PAGES.items()}
    for file in sorted(files):
        if file.suffix in READ and file != Path(__file__):
            home = homes.get(file, "")
            yield from citations_in(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT)), home)


def test_every_citation_leads_to_a_heading() -> None:
    lost = [f"{citation}: {problem}" for citation in cited() if (problem := problem_of(citation))]
    assert lost == [], "\n".join([f"{len(lost)} citations lead nowhere:", *lost])


def test_the_citations_are_seen() -> None:
    found = Counter(citation.source for citation in cited())
    assert {source: count for source, count in FEWEST.items() if found[source] < count} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(LANGUAGE §4, §9)", ["LANGUAGE §4", "LANGUAGE §9"]),
        ("DESIGN §2, PROTOCOL §2", ["DESIGN §2", "PROTOCOL §2"]),
        ("formal specification §1.1, LANGUAGE §13", ["formal specification §1.1", "LANGUAGE §13"]),
        ("v10 §5.3, §6.4, §8", ["v10 §5.3", "v10 §6.4", "v10 §8"]),
        ("LANGUAGE §4-§6", ["LANGUAGE §4", "LANGUAGE §5", "LANGUAGE §6"]),
        ("LANGUAGE §1, §3 to §5; v10 §7", ["LANGUAGE §1", "LANGUAGE §3", "LANGUAGE §4", "LANGUAGE §5", "v10 §7"]),
        ("PROTOCOL §1 *Inbox*, §3 **Segments**", ["§1", "§1 *Inbox*", "§3", "§3 *Segments*"]),
        ("PROTOCOL §3 *Binding*, *Numbering*: x", ["§3", "§3 *Binding*", "§3 *Numbering*"]),
        ("LANGUAGE §6 ``set_shared``, ``ctx``", ["§6", "§6 *set_shared*"]),
        ("DESIGN §6, *Embedded default*.", ["§6", "§6 *Embedded default*"]),
        ("(PROTOCOL §1 *Request\n    # rows*)", ["§1", "§1 *Request rows*"]),
        ("as PROTOCOL\n    §3 wants it", ["PROTOCOL §3"]),
        ("LANGUAGE §2, and ``token`` of §4", ["LANGUAGE §2", "LANGUAGE §4"]),
        ("RFC 6749 §4.4; LANGUAGE §11", ["LANGUAGE §11"]),
        ("LANGUAGE §11; RFC 6749 §4.4", ["LANGUAGE §11"]),
        ("legacy architecture §5.2", ["legacy architecture §5.2"]),
        ("ADR 6, and (ADR 12)", ["ADR 6", "ADR 12"]),
        ("v10 §15 *debug map*", ["v10 §15"]),
        ("the sources reserve it (§5)", [" §5"]),
        ('"""PROTOCOL §1"""\n"""of others (§2)"""', ["PROTOCOL §1", " §2"]),
    ],
)
def test_a_citation_is_read_however_it_is_written(text: str, expected: list[str]) -> None:
    shown = [str(citation).partition(": ")[2] for citation in citations_in(text, "file.py")]
    assert len(shown) == len(expected)
    assert all(plain(one).endswith(plain(wanted)) for one, wanted in zip(shown, expected, strict=True)), shown


def test_sql_quotes_the_names_of_rules() -> None:
    found = citations_in('-- PROTOCOL §1 "Journal", "Request rows".\nselect "§" from "x"', "file.sql")
    assert [citation.name for citation in found] == ["", "Journal", "Request rows"]


def test_headings_are_found_by_number_and_name() -> None:
    page = "# T\n\n## 1. One\n\n### `set_shared`\n\n```sh\n## 9. Not one\n```\n\n## §5.4 Task policy\n\n### A *Rule*\n"
    assert headings_of(page) == {"1": {"set_shared"}, "5.4": {"a rule"}}


@pytest.mark.parametrize(
    ("citation", "problem"),
    [
        (Citation("f", 1, "PROTOCOL", "3", "Claim"), ""),
        (Citation("f", 1, "PROTOCOL", "3", "claim"), ""),
        (Citation("f", 1, "PROTOCOL", "8"), "no heading 8"),
        (Citation("f", 1, "PROTOCOL", "2", "Claim"), "no heading 'Claim' below section 2"),
        (Citation("f", 1, "ADR", "1"), ""),
        (Citation("f", 1, "ADR", "999"), "no file docs/adr/0999"),
        (Citation("f", 1, "", "5"), "which source?"),
        (Citation("f", 1, "legacy-dsl", "5"), "which source?"),
    ],
)
def test_a_citation_without_a_heading_is_reported(citation: Citation, problem: str) -> None:
    assert problem_of(citation).startswith(problem)
    assert bool(problem_of(citation)) is bool(problem)
