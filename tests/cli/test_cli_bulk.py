"""One verb for many: so many at a time, patient with a busy gateway, and ended by what concerns them all."""

from __future__ import annotations

import asyncio
import sys
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any, cast

import pytest

from noetl_stream.cli.base.session import Session
from noetl_stream.cli.execution.bulk import BulkAction, NotDone, Selection, act_on_all, confirm
from noetl_stream.concurrency import AT_ONCE, for_each
from noetl_stream.errors import Conflict, NoetlError, TooBusy, Unreachable, UsageError
from noetl_stream.operations.executions.reading.documents import execution_document
from noetl_stream.ports.operations.executions import AcceptedDocument, ExecutionDocument
from noetl_testkit.conformance.store_rows import execution_row

NO_SESSION = cast(Session, None)
IDS = [f"id-{number}" for number in range(100)]


def verb(act: Any) -> BulkAction:
    return BulkAction("touch", (), act, lambda answer: answer.execution_id)


async def test_calls_in_progress_never_exceed_the_limit() -> None:
    most, under_way = 0, 0

    async def work(one: str) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    await for_each(IDS, work)
    assert (most, under_way) == (AT_ONCE, 0)


async def test_bulk_answers_are_in_the_order_of_the_ids_with_the_refused_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy = set(IDS[:5])

    async def act(session: Session, execution_id: str) -> AcceptedDocument:
        if execution_id in busy:
            busy.discard(execution_id)
            raise TooBusy("come again", 0.0)
        if execution_id == IDS[7]:
            raise Conflict("it has ended", hint="look")
        return AcceptedDocument(execution_id)

    results = await act_on_all(verb(act), NO_SESSION, IDS, "text")
    assert [one.execution_id for one in results] == IDS
    assert [one for one in results if isinstance(one, NotDone)] == [NotDone(IDS[7], "it has ended", "look")]
    printed = capsys.readouterr()
    assert (sorted(printed.out.split()), printed.err) == (sorted(set(IDS) - {IDS[7]}), "id-7: it has ended (look)\n")


async def test_an_execution_that_was_begun_counts_as_done_though_it_has_a_field_for_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def act(session: Session, execution_id: str) -> ExecutionDocument:
        row = execution_row(execution_id, status="running")
        return execution_document(row, [], 0, steps=[], waits=[], notices=None)

    (begun,) = await act_on_all(verb(act), NO_SESSION, IDS[:1], "text")
    assert not isinstance(begun, NotDone)
    assert capsys.readouterr() == (f"{IDS[0]}\n", "")


def test_a_no_changes_nothing_and_without_a_terminal_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = StringIO("n\ny\n")
    monkeypatch.setattr(sys, "stdin", answers)
    with pytest.raises(UsageError, match="this would cancel 1 execution"):
        confirm("cancel", 1)
    monkeypatch.setattr(answers, "isatty", lambda: True)
    with pytest.raises(NoetlError, match="nothing was done"):
        confirm("cancel", 2)
    confirm("cancel", 2)


def test_ids_that_are_piped_are_read_as_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Selection(("-",), None, False, True)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(f"{IDS[0]}\r\n\n{IDS[1]}".encode()), "latin-1"))
    assert chosen.read_ids() == IDS[:2]
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"\n\xe9"), "latin-1"))
    with pytest.raises(UsageError, match="stdin:2: byte 0xe9 is not UTF-8"):
        chosen.read_ids()


async def test_an_error_that_concerns_all_ends_the_command() -> None:
    attempted = []

    async def act(session: Session, execution_id: str) -> AcceptedDocument:
        attempted.append(execution_id)
        await asyncio.sleep(0)
        raise Unreachable("it has gone")

    with pytest.raises(Unreachable):
        await act_on_all(verb(act), NO_SESSION, IDS, "json")
    assert len(attempted) <= AT_ONCE
