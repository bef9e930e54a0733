"""Which executions a verb is for: ids, those on standard input, or all that a filter finds."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import click

from noetl_stream.cli.base.durations import seconds
from noetl_stream.cli.base.paging import collect
from noetl_stream.cli.base.session import Session
from noetl_stream.errors import UsageError
from noetl_stream.model.envelope import iso
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.status import STATUSES
from noetl_stream.ports.operations.executions import ExecutionFilter, ListedExecutionDocument

Command = TypeVar("Command", bound=Callable[..., Any])


class Filter(NamedTuple):
    """What the options of a filter say; none of them: no filter."""

    status: tuple[str, ...]
    path: str | None
    labels: tuple[str, ...]
    error: str | None
    older_than_s: float | None

    def chosen(self, statuses: tuple[str, ...] = ()) -> ExecutionFilter:
        """As the store is asked.

        Args:
            statuses: Where the filter names none.
        """
        labels = labels_of(self.labels)
        return ExecutionFilter(
            self.status or statuses, self.path, labels, started_before_ms=self.before_ms, error=self.error
        )

    @property
    def before_ms(self) -> int | None:
        """The moment that ``--older-than`` means, ms since the epoch."""
        return None if self.older_than_s is None else int((time.time() - self.older_than_s) * 1000)


class Selection(NamedTuple):
    """Ids, or a filter; ``dry_run``: only show them; ``yes``: do not ask."""

    ids: tuple[str, ...]
    filter: Filter | None
    dry_run: bool
    yes: bool

    @property
    def only(self) -> str | None:
        """The one id that is named, if nothing else is."""
        return self.ids[0] if len(self.ids) == 1 and self.ids != ("-",) else None

    def read_ids(self) -> list[str]:
        """The ids that are named, each once; ``-`` stands for those on standard input, one a line.

        Raises:
            UsageError: one is not a valid id.
        """
        found = [one for word in self.ids for one in (_lines() if word == "-" else [word])]
        for execution_id in found:
            check_id(execution_id)
        return list(dict.fromkeys(found))


def filter_options(command: Command) -> Command:
    """``--status``, ``--path``, ``--label``, ``--error``, ``--older-than``, given to the command as one ``filter``."""

    @functools.wraps(command)
    def bundled(*words: Any, **given: Any) -> Any:
        taken = Filter(*(given.pop(name) for name in Filter._fields))
        return command(*words, filter=taken if any(one not in (None, ()) for one in taken) else None, **given)

    for option in (
        click.option(
            "--older-than",
            "older_than_s",
            callback=seconds,
            metavar="TIME",
            help="Started, or for `delete` ended, before: 30d.",
        ),
        click.option("--error", metavar="WORDS", help="Whose error has these words."),
        click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="With this label; repeatable."),
        click.option("--path", help="Of the playbook with this path, or of those below it."),
        click.option(
            "--status", multiple=True, type=click.Choice(STATUSES), help="With this status, or one of several."
        ),
    ):
        bundled = option(bundled)
    return bundled  # type: ignore[return-value]


def selection_options(*, word: str = "ID") -> Callable[[Command], Command]:
    """``ID...`` or a filter, ``--dry-run`` and ``--yes``, given to the command as one ``selection``.

    Args:
        word: The argument that is said to be missing when nothing is selected.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def bundled(
            *words: Any, ids: tuple[str, ...], filter: Filter | None, dry_run: bool, yes: bool, **given: Any
        ) -> Any:
            if not ids and filter is None:
                raise click.MissingParameter(param_hint=f"'{word}'", param_type="argument")
            if ids and filter is not None:
                raise UsageError("ids and a filter are two ways to say which", hint="give one of them")
            return command(*words, selection=Selection(ids, filter, dry_run, yes), **given)

        decorated: Any = filter_options(bundled)
        for option in (
            click.option("--yes", is_flag=True, help="Do not ask whether to touch what the filter finds."),
            click.option("--dry-run", is_flag=True, help="Only show what would be touched."),
            click.argument("ids", nargs=-1, metavar="ID..."),
        ):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


async def found_by(
    session: Session, chosen: ExecutionFilter, ended_before_ms: int | None = None
) -> list[ListedExecutionDocument]:
    """All executions of a list, newest first; with a moment only those that had ended by then."""
    found = await collect(lambda size, cursor: session.operations.executions.page(chosen, size, cursor))
    if ended_before_ms is None:
        return found
    moment = iso(ended_before_ms)
    return [one for one in found if one.finished is not None and one.finished < moment]


def labels_of(pairs: Iterable[str]) -> Mapping[str, str]:
    """
    Raises:
        UsageError: one is no ``KEY=VALUE``.
    """
    found = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--label {text!r}: write KEY=VALUE")
        found[key] = value
    return found


def check_id(execution_id: str) -> None:
    """Raises UsageError for what cannot be the id of an execution."""
    if not is_valid_id(execution_id):
        raise UsageError(f"{execution_id!r} is no execution id", hint="`noetl-stream execution list` shows them")


def _lines() -> list[str]:
    return [line.strip() for line in sys.stdin if line.strip()]
