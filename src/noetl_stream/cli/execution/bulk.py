"""One verb for many executions: some at a time, each with a result of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.output import DOCUMENTS, print_document, print_documents
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target
from noetl_stream.cli.execution.selection import Selection, found_by
from noetl_stream.cli.execution.tables import print_executions
from noetl_stream.errors import (
    NoetlError,
    NotFound,
    NotReady,
    TooBusy,
    Unauthenticated,
    Unreachable,
    UsageError,
)
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.executions import ExecutionDocument

AT_ONCE: Final = 16

Act = Callable[[Session, str], Awaitable[Any]]


class NotDone(Document, frozen=True):
    """Why a verb could not be done to one of several executions."""

    execution_id: str
    error: str
    hint: str | None


class Verb(NamedTuple):
    """Attributes:
    name: As in "cancel 3 executions?".
    statuses: Which of those a filter finds it is for, where the filter does not say.
    act: Does it to one.
    told: What people are told of an answer.
    name_of: What ``-o name`` shows of an answer.
    by_end: Whether ``--older-than`` counts from an execution's end, not from its start.
    """

    name: str
    statuses: tuple[str, ...]
    act: Act
    told: Callable[[Any], str]
    name_of: str = "execution_id"
    by_end: bool = False


def do(verb: Verb, selection: Selection, target: Target, output: str) -> None:
    """Does it to all that are selected; ends the command with 1 unless all went well.

    Raises:
        UsageError: it would have to be confirmed, and there is no terminal.
        NoetlError: the only one that is selected could not be done, or none could.
    """
    ids = _selected(verb, selection, target, output)
    if not ids:
        return
    if selection.only is not None:
        answer = with_session(target, lambda session: _single(verb, session, ids[0]), publishes=True)
        print_document(answer, output, verb.name_of, lambda found: click.echo(verb.told(found)))
        return
    results = with_session(target, lambda session: act_on_all(verb, session, ids, output), publishes=True)
    if output in ("json", "yaml"):
        print_documents(results, output, {}, verb.name_of)
    failed = sum(isinstance(result, NotDone) for result in results)
    if failed:
        click.echo(f"{len(results) - failed} done, {failed} not", err=True)
        raise click.exceptions.Exit(ExitCode.FAILED)


def _selected(verb: Verb, selection: Selection, target: Target, output: str) -> list[str]:
    """The ids; none if there is nothing to do, which is said."""
    if selection.filter is None:
        ids = selection.read_ids()
        if selection.dry_run:
            print_executions(with_session(target, lambda session: _looked_at(session, ids)), output)
            return []
        return ids
    chosen = selection.filter.chosen(verb.statuses)
    ended_before_ms = selection.filter.before_ms if verb.by_end else None
    found = with_session(target, lambda session: found_by(session, chosen, ended_before_ms))
    if selection.dry_run:
        print_executions(found, output)
        return []
    if found and not selection.yes:
        confirm(verb.name, len(found))
    if not found:
        click.echo("nothing is selected", err=True)
    return [one.execution_id for one in found]


def confirm(verb: str, count: int) -> None:
    """Asks whether to do it to so many.

    Raises:
        UsageError: there is no terminal to ask at.
        NoetlError: the answer is no.
    """
    counted = "1 execution" if count == 1 else f"{count} executions"
    if not sys.stdin.isatty():
        raise UsageError(f"this would {verb} {counted}", hint="--dry-run shows them; --yes does it")
    if not click.confirm(f"{verb} {counted}?", err=True):
        raise NoetlError("nothing is done")


async def _looked_at(session: Session, ids: Iterable[str]) -> list[ExecutionDocument]:
    return [await session.operations.executions.get(execution_id) for execution_id in ids]


async def _single(verb: Verb, session: Session, execution_id: str) -> Any:
    try:
        return await verb.act(session, execution_id)
    except NotFound:
        raise
    except UsageError as error:  # the options were well; the execution cannot take it
        raise NoetlError(error.message, hint=error.hint) from None


async def act_on_all(verb: Verb, session: Session, ids: list[str], output: str) -> list[Any]:
    """The answers, by id as given; what cannot be is among them as :class:`NotDone`."""
    results: dict[str, Any] = {}

    async def one(execution_id: str) -> None:
        try:
            results[execution_id] = await _patiently(verb, session, execution_id)
        except (Unreachable, NotReady, Unauthenticated):
            raise  # the others would be told the same
        except NoetlError as error:
            results[execution_id] = NotDone(execution_id, error.message, error.hint)
        _tell(verb, results[execution_id], output)

    await each(ids, one)
    return [results[execution_id] for execution_id in ids]


async def _patiently(verb: Verb, session: Session, execution_id: str) -> Any:
    while True:
        try:
            return await verb.act(session, execution_id)
        except TooBusy as busy:
            await asyncio.sleep(busy.retry_after_s)


def _tell(verb: Verb, result: Any, output: str) -> None:
    if isinstance(result, NotDone) and output not in DOCUMENTS:
        hint = f" ({result.hint})" if result.hint else ""
        click.echo(f"{result.execution_id}: {result.error}{hint}", err=True)
    elif output not in ("json", "yaml"):
        print_document(result, output, verb.name_of, lambda found: click.echo(verb.told(found)))


async def each(ids: Iterable[str], work: Callable[[str], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """``work`` for each, so many at once; the first error that it raises ends all."""
    waiting = iter(ids)

    async def hand() -> None:
        for one in waiting:
            await work(one)

    hands = [asyncio.create_task(hand()) for _ in range(at_once)]
    try:
        await asyncio.gather(*hands)
    finally:
        for task in hands:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*hands, return_exceptions=True)
