"""The executions that a verb applies to: ids, ids on stdin, or those that a filter matches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click
import msgspec
from msgspec.structs import astuple

from noetl_stream.cli.base.files import stdin_text
from noetl_stream.cli.base.options import Command, bundled, moment_ms, seconds
from noetl_stream.cli.base.session import Session, collect
from noetl_stream.cli.execution.workload import labels_of
from noetl_stream.errors import UsageError
from noetl_stream.model.envelope import iso
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.status import STATUSES, ExecutionStatus
from noetl_stream.ports.operations.executions import ExecutionFilter, ListedExecutionDocument


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
        return ExecutionFilter(
            self.status or statuses,
            self.path,
            labels_of(self.labels),
            started_from_ms=self.since_ms,
            started_before_ms=min(ends, default=None),
            error=self.error,
            key=self.key,
            inputs=labels_of(self.inputs, "--input"),
            failed_step=self.failed_step,
            worker=self.worker,
            longer_than_s=self.longer_than_s,
            due=self.due,
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
