"""Verbs on many executions, each with its own result: on ids, ids on stdin, or those that a filter matches."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import click
import msgspec
from msgspec.structs import astuple, replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.files import stdin_text
from noetl_stream.cli.base.options import Command, bundled, moment_ms, seconds
from noetl_stream.cli.base.output import DOCUMENTS, print_document, print_documents, say
from noetl_stream.cli.base.session import Session, Target, collect, with_session
from noetl_stream.cli.execution.display.tables import print_executions
from noetl_stream.cli.execution.workload import labels_of
from noetl_stream.concurrency import for_each
from noetl_stream.errors import NoetlError, NotFound, NotReady, TooBusy, Unauthenticated, Unreachable, UsageError
from noetl_stream.model.envelope import iso
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.status import STATUSES, ExecutionStatus
from noetl_stream.ports.operations.executions import ExecutionFilter, ListedExecutionDocument
from noetl_stream.ports.operations.selections import MAX_SELECTED, BulkItemDocument, BulkOrder
from noetl_stream.ports.operations.verbs import Document
from noetl_stream.retries import backoff_s


class Filter(msgspec.Struct, frozen=True, gc=False):
    """The options of a filter."""

    status: tuple[ExecutionStatus, ...]
    path: str | None
    labels: tuple[str, ...]
    key: str | None
    inputs: tuple[str, ...]
    failed_step: str | None
    worker: str | None
    longer_than_s: float | None
    due: str | None
    error: str | None
    older_than_s: float | None
    since_ms: int | None
    until_ms: int | None

    def chosen(self, statuses: Sequence[ExecutionStatus] = ()) -> ExecutionFilter:
        """The filter in the form of the operations.

        Args:
            statuses: The statuses if the filter has none.
        """
        ends = [at_ms for at_ms in (self.before_ms, self.until_ms) if at_ms is not None]
        same = ("path", "error", "key", "failed_step", "worker", "longer_than_s", "due")
        return ExecutionFilter(
            self.status or statuses,
            labels=labels_of(self.labels),
            inputs=labels_of(self.inputs, "--input"),
            started_from_ms=self.since_ms,
            started_before_ms=min(ends, default=None),
            **{name: getattr(self, name) for name in same},
        )

    @property
    def before_ms(self) -> int | None:
        """The time of ``--older-than``, ms since the epoch."""
        return None if self.older_than_s is None else int((time.time() - self.older_than_s) * 1000)


class Selection(msgspec.Struct, frozen=True, gc=False):
    """Ids, or a filter. ``dry_run``: only show them. ``yes``: do not ask for confirmation."""

    ids: tuple[str, ...]
    filter: Filter | None
    dry_run: bool
    yes: bool

    @property
    def only(self) -> str | None:
        """The id, if it is the only one."""
        return self.ids[0] if len(self.ids) == 1 and self.ids != ("-",) else None

    def read_ids(self) -> list[str]:
        """The ids, each once; ``-`` stands for those on stdin, one per line.

        Raises:
            UsageError: an id is invalid.
        """
        found = [one for word in self.ids for one in (_lines() if word == "-" else [word])]
        for execution_id in found:
            check_id(execution_id)
        return list(dict.fromkeys(found))


filter_options = bundled(
    "filter",
    Filter,
    [
        click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Match this status; repeatable."),
        click.option("--path", help="Match playbooks at or below this path."),
        click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Match this label; repeatable."),
        click.option("--key", metavar="TEXT", help="Match this business key."),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="KEY=VALUE",
            help="Match this input, e.g. order.id=7; repeatable.",
        ),
        click.option("--failed-step", metavar="STEP", help="Match executions that failed in this step."),
        click.option("--worker", metavar="NAME", help="Match executions a step of which ran on this worker."),
        click.option(
            "--longer-than",
            "longer_than_s",
            callback=seconds,
            metavar="TIME",
            help="Match executions that have ended, and took at least so long, e.g. 15m.",
        ),
        click.option(
            "--due",
            metavar="DAY[..DAY]",
            help="Match executions that a schedule had due on this day, or in this range of days.",
        ),
        click.option(
            "--since",
            "since_ms",
            callback=moment_ms,
            metavar="TIME",
            help="Match executions that started from then on: 2h, or ISO 8601.",
        ),
        click.option(
            "--until", "until_ms", callback=moment_ms, metavar="TIME", help="Match executions that started before."
        ),
        click.option("--error", metavar="WORDS", help="Match errors that contain these words."),
        click.option(
            "--older-than",
            "older_than_s",
            callback=seconds,
            metavar="TIME",
            help="Match executions that started (for `delete`: ended) longer ago, e.g. 30d.",
        ),
    ],
)


def selection_options(*, word: str = "ID") -> Callable[[Command], Command]:
    """``ID...`` or a filter, ``--dry-run`` and ``--yes``, given to the command as one ``selection``.

    Args:
        word: The argument that an error names if nothing is selected.
    """

    def selected(ids: tuple[str, ...], filter: Filter, dry_run: bool, yes: bool) -> Selection:
        is_filtered = any(value not in (None, ()) for value in astuple(filter))
        if not ids and not is_filtered:
            raise click.MissingParameter(param_hint=f"'{word}'", param_type="argument")
        if ids and is_filtered:
            raise UsageError("ids and a filter cannot be combined", hint="use one of them")
        return Selection(ids, filter if is_filtered else None, dry_run, yes)

    return bundled(
        "selection",
        selected,
        [
            click.argument("ids", nargs=-1, metavar="ID..."),
            click.option("--dry-run", is_flag=True, help="Only show the matching executions."),
            click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
            filter_options,
        ],
    )


async def found_by(
    session: Session, chosen: ExecutionFilter, ended_before_ms: int | None = None
) -> list[ListedExecutionDocument]:
    """The matching executions, newest first; with ``ended_before_ms`` only those that had ended by then."""
    found = await collect(lambda size, cursor: session.operations.executions.page(chosen, size, cursor))
    if ended_before_ms is None:
        return found
    moment = iso(ended_before_ms)
    return [one for one in found if one.finished is not None and one.finished < moment]


def check_id(execution_id: str) -> None:
    """Raises UsageError for an invalid id."""
    if not is_valid_id(execution_id):
        raise UsageError(f"{execution_id!r} is not an execution id", hint="list them: `noetl-stream execution list`")


def _lines() -> list[str]:
    return [line.strip() for line in stdin_text().split("\n") if line.strip()]


AT_A_TIME: Final = 100
"""The executions of one bulk call, whose outcomes are printed together."""

Answer = TypeVar("Answer")
Act = Callable[[Session, str], Awaitable[Any]]
Bulk = tuple[BulkOrder, Callable[[BulkItemDocument], Any]]


class NotDone(Document, frozen=True):
    """The reason why a verb failed for one of several executions."""

    execution_id: str
    error: str
    hint: str | None


class BulkAction(msgspec.Struct, frozen=True, gc=False):
    """Attributes:
    name: The verb, as in "cancel 3 executions?".
    statuses: The statuses of executions to which it applies, if the filter has none.
    act: Applies it to an execution.
    described: An answer, for people.
    name_of: The field of an answer that ``-o name`` shows.
    by_end: Whether ``--older-than`` counts from the end of an execution, not from its start.
    bulk: The order for several at once, and the conversion of its outcome to an answer of ``act``; ``None`` to act on
        each by itself.
    """

    name: str
    statuses: Sequence[ExecutionStatus]
    act: Act
    described: Callable[[Any], str]
    name_of: str = "execution_id"
    by_end: bool = False
    bulk: Bulk | None = None


def do(verb: BulkAction, selection: Selection, target: Target, output: str) -> None:
    """Applies a verb to the selected executions; exits with 1 if it fails for one of several.

    Raises:
        UsageError: it needs a confirmation, and there is no terminal.
        NoetlError: it failed for the only one, or was not confirmed.
    """
    ids = _selected(verb, selection, target, output)
    if not ids:
        return
    if selection.only is not None:
        answer = with_session(target, lambda session: _single(verb, session, ids[0]), publishes=True)
        print_document(answer, output, verb.name_of, lambda found: say(verb.described(found)))
        return
    results = with_session(target, lambda session: act_on_all(verb, session, ids, output), publishes=True)
    if output in ("json", "yaml"):
        print_documents(results, output, {}, verb.name_of)
    failed = sum(isinstance(result, NotDone) for result in results)
    if failed:
        say(f"{len(results) - failed} done, {failed} failed", err=True)
        raise click.exceptions.Exit(ExitCode.FAILED)


def _selected(verb: BulkAction, selection: Selection, target: Target, output: str) -> list[str]:
    """The ids. Prints the executions of a dry run, and returns none."""
    found: Sequence[ListedExecutionDocument]
    if selection.filter is None:
        ids = selection.read_ids()
        if not selection.dry_run:
            return ids
        found = with_session(target, lambda session: _read(session, ids))
    else:
        chosen = selection.filter.chosen(verb.statuses)
        ended_before_ms = selection.filter.before_ms if verb.by_end else None
        found = with_session(target, lambda session: found_by(session, chosen, ended_before_ms))
    if selection.dry_run:
        print_executions(found, output)
        _print_skipped(verb, [one.execution_id for one in found], target)
        return []
    if found and not selection.yes:
        confirm(verb.name, len(found))
    if not found:
        say("no execution matches", err=True)
    return [one.execution_id for one in found]


def _print_skipped(verb: BulkAction, ids: list[str], target: Target) -> None:
    """Prints the executions to which the verb would not apply, with the reasons."""
    if verb.bulk is None:
        return
    tried = replace(verb.bulk[0], dry_run=True)

    async def skipped(session: Session) -> list[BulkItemDocument]:
        found = [
            await session.operations.selections.act(replace(tried, ids=ids[first : first + MAX_SELECTED]), session.by)
            for first in range(0, len(ids), MAX_SELECTED)
        ]
        return [item for one in found for item in one.items if item.outcome == "skipped"]

    for item in with_session(target, skipped):
        say(f"{item.execution_id}: would be skipped: {item.detail}", err=True)


def confirm(verb: str, count: int) -> None:
    """Asks for confirmation.

    Raises:
        UsageError: there is no terminal.
        NoetlError: the answer is no.
    """
    counted = "1 execution" if count == 1 else f"{count} executions"
    if not sys.stdin.isatty():
        raise UsageError(f"this would {verb} {counted}", hint="show them with --dry-run, or confirm with --yes")
    if not click.confirm(f"{verb} {counted}?", err=True):
        raise NoetlError("not confirmed, nothing was done")


async def _read(session: Session, ids: Iterable[str]) -> Sequence[ListedExecutionDocument]:
    return [await session.operations.executions.get(execution_id) for execution_id in ids]


async def _single(verb: BulkAction, session: Session, execution_id: str) -> Any:
    try:
        return await verb.act(session, execution_id)
    except NotFound:
        raise
    except UsageError as error:  # the options are valid; the execution rejects the request
        raise NoetlError(error.message, hint=error.hint) from None


async def act_on_all(verb: BulkAction, session: Session, ids: list[str], output: str) -> list[Any]:
    """The answers in the order of ``ids``; a :class:`NotDone` for each failure."""
    if verb.bulk is not None:
        return await _act_in_bulk(verb, verb.bulk, session, ids, output)
    results: dict[str, Any] = {}

    async def one(execution_id: str) -> None:
        try:
            results[execution_id] = await patiently(lambda: verb.act(session, execution_id))
        except (Unreachable, NotReady, Unauthenticated):
            raise  # the others would fail alike
        except NoetlError as error:
            results[execution_id] = NotDone(execution_id, error.message, error.hint)
        _print(verb, results[execution_id], output)

    await for_each(ids, one)
    return [results[execution_id] for execution_id in ids]


async def _act_in_bulk(verb: BulkAction, bulk: Bulk, session: Session, ids: list[str], output: str) -> list[Any]:
    order, answer = bulk
    results: dict[str, Any] = {}
    waiting = ids
    while waiting:
        wanted, waiting = replace(order, ids=waiting[:AT_A_TIME]), waiting[AT_A_TIME:]
        done = await patiently(partial(session.operations.selections.act, wanted, session.by))
        for item in done.items:
            if item.outcome == "left":
                waiting = [*waiting, item.execution_id]
                continue
            failed = item.outcome == "refused"
            result = NotDone(item.execution_id, item.detail or "", item.hint) if failed else answer(item)
            results[item.execution_id] = result
            _print(verb, result, output)
    return [results[execution_id] for execution_id in ids]


async def patiently(act: Callable[[], Awaitable[Answer]]) -> Answer:
    """Retries while a gateway is busy."""
    tries = 0
    while True:
        try:
            return await act()
        except TooBusy as busy:
            await asyncio.sleep(backoff_s(busy.retry_after_s, tries))
            tries += 1


def _print(verb: BulkAction, result: Any, output: str) -> None:
    if isinstance(result, NotDone) and output not in DOCUMENTS:
        hint = f" ({result.hint})" if result.hint else ""
        say(f"{result.execution_id}: {result.error}{hint}", err=True)
    elif output not in ("json", "yaml"):
        print_document(result, output, verb.name_of, lambda found: say(verb.described(found)))
