"""``noetl-stream execution``: the group, and its verbs that read."""

from __future__ import annotations

from typing import Final

import click

from noetl_stream.cli.base.lazy import LazyGroup
from noetl_stream.cli.base.options import form_option, limit_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_result, say
from noetl_stream.cli.base.session import PAGE, Session, collect, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.selection import Filter, filter_options
from noetl_stream.cli.execution.tables import print_execution, print_executions, print_why
from noetl_stream.client.paging import cursor_of
from noetl_stream.model.envelope import EventDocument
from noetl_stream.ports.operations.executions import (
    CtxChangeDocument,
    CtxDocument,
    IterationDocument,
    ResultDocument,
    StepRunDocument,
)

MODULES: Final = {
    "start": "execution.start",
    "logs": "execution.logs",
    **dict.fromkeys(("wait", "watch"), "execution.follow"),
    **dict.fromkeys(("patch", "signal", "token", "cancel", "pause", "resume"), "execution.interventions"),
    **dict.fromkeys(("rerun", "retry", "delete"), "execution.rerun"),
}
"""Of the verbs that do more than read."""

execution_id = click.argument("execution_id", metavar="ID")


@click.group(cls=LazyGroup, modules=MODULES)
def execution() -> None:
    """Start, inspect and control executions.

    cancel, pause, resume, retry, delete, signal and patch accept several IDs, `-` for IDs on stdin, or a filter:

    \b
      noetl-stream execution cancel --path team/report --older-than 2d --dry-run
    """


@execution.command("list")
@filter_options
@limit_option("executions", 20, 1000)
@click.option("--before", default=None, metavar="ID", help="Show the page after this execution.")
@form_option()
@target_options
def list_executions(filter: Filter | None, limit: int, before: str | None, output: str, target: Target) -> None:
    """List executions, newest first."""
    chosen = (filter or Filter((), None, (), None, None)).chosen()
    cursor = None if before is None else cursor_of(before)
    page = with_session(target, lambda session: session.operations.executions.page(chosen, limit, cursor))
    print_executions(page.items, output)
    if page.next is not None:
        say(f"next page: --before {page.items[-1].execution_id}", err=True)


@execution.command()
@execution_id
@form_option()
@target_options
def get(execution_id: str, output: str, target: Target) -> None:
    """Show an execution: status, steps, waits, ctx, result."""
    found = with_session(target, lambda session: session.operations.executions.get(execution_id))
    print_document(found, output, "execution_id", print_execution)


@execution.command()
@execution_id
@form_option("text")
@target_options
def result(execution_id: str, output: str, target: Target) -> None:
    """Show the whole result, or the error, of an ended execution."""
    found = with_session(target, lambda session: session.operations.executions.result(execution_id))

    def show(found: ResultDocument) -> None:
        print_result(found.result)
        if found.error is not None:
            say(f"{found.status}: {found.error.kind}: {found.error.message}", err=True)

    print_document(found, output, "execution_id", show)


@execution.command()
@execution_id
@form_option()
@target_options
def steps(execution_id: str, output: str, target: Target) -> None:
    """List the step runs of an execution, oldest first."""
    found = with_session(target, lambda session: session.operations.executions.steps(execution_id))
    keys = ("step", "step_run_id", "status", "started", "attempts", "retries", "worker")
    print_documents(found, output, columns_of(*keys, seconds="duration_s", error=_error), "step_run_id")


@execution.command()
@execution_id
@click.argument("step_run_id", metavar="STEP_RUN")
@limit_option("iterations")
@form_option()
@target_options
def iterations(execution_id: str, step_run_id: str, limit: int | None, output: str, target: Target) -> None:
    """List the iterations of a loop. `execution steps` shows the ids of step runs."""

    async def read(session: Session) -> list[IterationDocument]:
        one_page = session.operations.executions.iterations
        return await collect(lambda size, cursor: one_page(execution_id, step_run_id, size, cursor), limit)

    columns = {"iteration": _place, **columns_of("status", "attempts", "worker", error=_error)}
    print_documents(with_session(target, read), output, columns, _place)


@execution.command()
@execution_id
@click.option("--after", type=click.IntRange(0), default=0, help="Show only events after this position.")
@limit_option("events")
@form_option()
@target_options
def events(execution_id: str, after: int, limit: int | None, output: str, target: Target) -> None:
    """List the events of an execution, oldest first."""

    async def read(session: Session) -> list[EventDocument]:
        found: list[EventDocument] = []
        while limit is None or len(found) < limit:
            size = min(PAGE, limit - len(found)) if limit is not None else PAGE
            last = found[-1].position if found else after
            page = await session.operations.executions.events(execution_id, last, size)
            found += page
            if len(page) < size:
                break
        return found

    columns = columns_of("position", "ts", "source", "name", "status", "entity_id")
    print_documents(with_session(target, read), output, columns, "event_id")


@execution.command()
@execution_id
@form_option()
@target_options
def ctx(execution_id: str, output: str, target: Target) -> None:
    """Show ctx and the history of its changes."""
    found = with_session(target, lambda session: session.operations.executions.ctx(execution_id))

    def show(found: CtxDocument) -> None:
        print_result(found.ctx)
        columns = columns_of("position", "at", keys=_keys, by=_by, reason="reason")
        print_documents(found.history, "table", columns, "position")

    print_document(found, output, lambda _: execution_id, show)


@execution.command()
@execution_id
@form_option("text")
@target_options
def why(execution_id: str, output: str, target: Target) -> None:
    """Explain why an execution waits, or how it ended."""
    found = with_session(target, lambda session: session.operations.executions.why(execution_id))
    print_document(found, output, "execution_id", print_why)


def _error(found: StepRunDocument | IterationDocument) -> str | None:
    error = found.error
    return None if error is None else f"{error.kind}: {error.message}"


def _place(found: IterationDocument) -> str:
    return ".".join(map(str, found.path))


def _keys(change: CtxChangeDocument) -> str:
    return ", ".join(change.keys)


def _by(change: CtxChangeDocument) -> str:
    return change.principal or ".".join(filter(None, (change.step, change.task)))
