"""``noetl-stream execution patch|signal|token|cancel|pause|resume|retry-now``: requests to executions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from noetl_stream.cli.base.options import explained, form_option
from noetl_stream.cli.base.process import new_id
from noetl_stream.cli.base.session import Session, target_options
from noetl_stream.cli.execution.bulk import Bulk, BulkAction, Selection, do, selection_options
from noetl_stream.cli.execution.workload import json_or_text, workload_of
from noetl_stream.errors import UsageError
from noetl_stream.model import events
from noetl_stream.model.status import LIVE, ExecutionStatus
from noetl_stream.ports.operations.executions import AcceptedDocument, RerunOptions
from noetl_stream.ports.operations.selections import APPLIES_TO, BulkItemDocument, BulkOrder, BulkVerb

Command = TypeVar("Command", bound=Callable[..., Any])


def _request_options(word: str = "ID") -> Callable[[Command], Command]:
    """The options that all requests share."""

    def decorate(command: Command) -> Command:
        for options in (target_options, form_option("text"), explained, selection_options(word=word)):
            command = options(command)
        return command

    return decorate


@click.command()
@_request_options()
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key; parsed as JSON if possible.")
@click.option("--set-string", "strings", multiple=True, metavar="KEY=VALUE", help="Set a key to text.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="YAML or JSON mapping of keys to set.")
@click.option("--merge", is_flag=True, help="Merge deeply (RFC 7396); null deletes a key.")
@click.option(
    "--if-version", type=int, default=None, help="Only if this is the version of ctx that `execution get` shows."
)
def patch(
    sets: tuple[str, ...],
    strings: tuple[str, ...],
    file: Path | None,
    merge: bool,
    if_version: int | None,
    **shared: Any,
) -> None:
    """Change ctx. Held tokens are admitted if it satisfies their guards."""
    inner = next((text for text in (*sets, *strings) if "." in text.partition("=")[0]), None)
    if inner is not None and not merge:
        key = inner.partition(".")[0]
        raise UsageError(f"{inner!r} would replace all of {key!r}", hint="use --merge to change only what is inside it")
    keys = workload_of(file, sets, strings, "--file")
    if not keys:
        raise UsageError("nothing to patch", hint="give --set KEY=VALUE or --file FILE")
    _ask("patch", LIVE, events.CtxPatched, shared, patch=keys, merge=merge, expected_version=if_version)


@click.command()
@_request_options("NAME")
@click.argument("name")
@click.option("--payload", default="null", metavar="JSON", help="Result of the wait; text if it is not JSON.")
def signal(name: str, payload: str, **shared: Any) -> None:
    """Send the signal NAME. It completes the oldest `kind: wait` for it, or is kept for the next one."""
    if not name:
        raise UsageError("the name of a signal must not be empty", hint="use the `signal` of its `kind: wait`")
    _ask(f"send {name} to", LIVE, events.SignalReceived, shared, signal=name, payload=json_or_text(payload))


@click.command()
@_request_options("STEP")
@click.argument("step")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set an argument; parsed as JSON if possible.")
@click.option("--set-string", "strings", multiple=True, metavar="KEY=VALUE", help="Set an argument to text.")
def token(step: str, sets: tuple[str, ...], strings: tuple[str, ...], **shared: Any) -> None:
    """Inject a token into STEP, as if an arc had fired."""
    _ask(
        f"inject a token into {step} of",
        LIVE,
        events.TokenInjected,
        shared,
        step=step,
        args=workload_of(None, sets, strings),
    )


@click.command()
@_request_options()
@click.option("--now", is_flag=True, help="Undo nothing, or nothing more, and run no `finally`. Needs --reason.")
def cancel(now: bool, **shared: Any) -> None:
    """Cancel executions. Running tasks are stopped, and what steps have done is undone by their compensations."""
    if now:
        _ask("cancel", LIVE, events.CancelRequested, shared, now=True)
    else:
        _ask_each("cancel", events.CancelRequested, shared)


@click.command()
@_request_options()
def pause(**shared: Any) -> None:
    """Pause executions.

    Running commands finish, and no new ones start. Paused time does not count towards timeouts.
    """
    _ask_each("pause", events.PauseRequested, shared)


@click.command()
@_request_options()
def resume(**shared: Any) -> None:
    """Resume paused and quarantined executions."""
    _ask_each("resume", events.ResumeRequested, shared)


@click.command("retry-now")
@_request_options()
def retry_now(**shared: Any) -> None:
    """Begin the next attempts of tasks that wait for them.

    That is for long delays between attempts. Those that a worker waits for itself, up to `limits.inline_delay_s`, go on
    by themselves.
    """
    _ask("retry now the tasks of", LIVE, events.RetryNowRequested, shared)


def _ask_each(name: BulkVerb, kind: type[events.InterventionFact], shared: dict[str, Any]) -> None:
    """Makes a verb that takes several executions in one call."""
    options = RerunOptions(reason=shared["reason"], correlation_id=shared["correlation_id"])
    _ask(name, APPLIES_TO[name], kind, shared, bulk=(BulkOrder(name, options=options), _accepted))


def _ask(
    name: str,
    statuses: Sequence[ExecutionStatus],
    kind: type[events.InterventionFact],
    shared: dict[str, Any],
    *,
    bulk: Bulk | None = None,
    **fields: Any,
) -> None:
    selection: Selection = shared["selection"]

    async def act(session: Session, execution_id: str) -> AcceptedDocument:
        fact = kind(new_id(), session.by, shared["reason"], shared["correlation_id"], **fields)
        return await session.operations.executions.ask(execution_id, fact)

    verb = BulkAction(name, statuses, act, _described, bulk=bulk)
    do(verb, selection, shared["target"], shared["output"])


def _accepted(item: BulkItemDocument) -> AcceptedDocument:
    return AcceptedDocument(item.execution_id, item.position, item.outcome == "already")


def _described(answer: AcceptedDocument) -> str:
    done = "already done" if answer.already else f"done, at position {answer.position}"
    return f"{answer.execution_id}: {done}"
