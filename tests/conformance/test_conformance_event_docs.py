"""The page of events has every event there is, as the language, the formal specification and the model name it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

from conformance_rows import ROOT, Row, read_rows

from noetl_stream.model.envelope import CONSUMING, envelope
from noetl_stream.model.events import AnyFact

PAGE = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
FACTS: dict[str, Any] = {str(fact.__struct_config__.tag): fact for fact in get_args(AnyFact)}
SAID = b'{"outcome": {"status": "ok"}, "status": "completed", "ok": true, "event": "shipped"}'
"""Fields by which the status of some events is told."""


class Line(NamedTuple):
    """One event of the page."""

    name: str
    formal: str
    by: frozenset[str]
    entity: str
    when: str


def lines(section: str) -> list[Line]:
    """The table that stands in a part of the page; the second one has no formal names."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in section.splitlines() if row[:3] == "| `"]
    whole = [row if len(row) == 5 else [row[0], "", *row[1:]] for row in rows]
    return [Line(name.strip("`"), formal, frozenset(by.split(", ")), *rest) for name, formal, by, *rest in whole]


EVENTS = PAGE.partition("## Events of the language")[2]
OF_THE_LANGUAGE, BEYOND = (lines(part) for part in EVENTS.split("## Beyond the language"))
EVERY = OF_THE_LANGUAGE + BEYOND


def quoted(rows: Iterable[Row], pattern: str) -> set[tuple[str, str]]:
    """What the sentences of these rows hold in backticks, with the first group of ``pattern``."""
    found = [(re.match(pattern, row.sentence), row.sentence) for row in rows]
    return {
        (name, start[1]) for start, text in found if start for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", text)
    }


def test_the_page_has_every_event_and_each_once() -> None:
    assert sorted(line.name for line in EVERY) == sorted(FACTS)
    assert all(line.when for line in EVERY)


def test_the_events_of_the_language_and_their_senders_are_those_of_its_table() -> None:
    rows = [row for row in read_rows("language") if row.section in ("7", "13") and row.state == "holds"]
    senders = quoted(rows, r"By the (client|server|worker): ")
    assert {line.name for line in OF_THE_LANGUAGE} == {name for name, _ in senders}
    page = {line.name: line.by for line in EVERY}
    assert [(name, by) for name, by in senders if by not in page[name]] == []


def test_events_have_the_same_source_in_the_model_and_on_the_page() -> None:
    module = {name: fact.__module__.rpartition(".")[2].removesuffix("_events") for name, fact in FACTS.items()}
    module["loop.paged"] = "server"  # it stands with the other facts about loops
    module |= {"execution.reused": "server", "execution.rerun_refused": "server"}  # with what they are made of
    module["step.emitted"] = "server"  # it stands with the moments at which it happens
    assert [line.name for line in EVERY if module[line.name] not in line.by] == []


def test_the_entity_on_the_page_is_that_of_the_envelope() -> None:
    def entity(name: str) -> str:
        return envelope(
            execution_id="one",
            position=1,
            name=name,
            source="server",
            at_ms=0,
            step_run_id=None,
            report_id=None,
            data=SAID,
        ).entity

    assert {line.name: line.entity for line in EVERY} == {name: entity(name) for name in FACTS}
    assert {line.entity for line in EVERY} == {"playbook", "workflow", "token", "step", "task", "loop", "next", "ctx"}


def test_every_kind_with_a_token_produces_it_consumes_it_or_lets_it_wait() -> None:
    """The envelope says of each token which events produce and consume it: a kind of its own must be among them."""
    with_token = {name for name, fact in FACTS.items() if {"token", "token_id"} & {*fact.__struct_fields__}}
    assert with_token == {"token.enqueued", "execution.reused", "token.held", "token.joined", *CONSUMING}


def test_every_formal_name_stands_beside_the_dotted_one_that_the_table_decides() -> None:
    rows = [row for row in read_rows("formal") if row.section == "10.2"]
    names = {row.id: re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", row.quote) for row in rows}
    page = {line.formal: line.name for line in EVERY if line.formal}
    assert set(page) == {name for found in names.values() for name in found}
    for row in rows:
        dotted = re.findall(r"`([a-z_.]+)`", f"{row.decided} {row.note}")
        if len(names[row.id]) == len(dotted):
            assert [page[name] for name in names[row.id]] == dotted
