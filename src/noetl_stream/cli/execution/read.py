"""``noetl-stream execution list|get|result|steps|iterations|events|ctx|why``: what can be read of executions."""

from __future__ import annotations

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_result
from noetl_stream.cli.base.paging import PAGE, collect
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.selection import Filter, filter_options
from noetl_stream.cli.execution.tables import print_execution, print_executions
from noetl_stream.cli.execution.why import print_why
from noetl_stream.client.cursors import cursor_of
from noetl_stream.model.envelope import EventDocument
from noetl_stream.ports.operations.executions import (
    CtxChangeDocument,
    CtxDocument,
    IterationDocument,
    ResultDocument,
    StepRunDocument,
)

execution_id = click.argument("execution_id", metavar="ID")


@click.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first.")
@click.option("--before", default=None, metavar="ID", help="Go on after this execution of the last page.")
@form_option()
@target_options
def list_executions(filter: Filter | None, limit: int, before: str | None, output: str, target: Target) -> None:
    """List executions, newest first."""
    chosen = (filter or Filter((), None, (), None, None)).chosen()
    cursor = None if before is None else cursor_of(before)
    page = with_session(target, lambda session: session.operations.executions.page(chosen, limit, cursor))
    print_executions(page.items, output)
    if page.next is not None:
        click.echo(f"there are more: --before {page.items[-1].execution_id}", err=True)


@click.command()
@execution_id
@form_option()
@target_options
def get(execution_id: str, output: str, target: Target) -> None:
    """Show one execution: status, steps, what it waits for, ctx, result or error."""
    found = with_session(target, lambda session: session.operations.executions.get(execution_id))
    print_document(found, output, "execution_id", print_execution)


@click.command()
@execution_id
@form_option("text")
@target_options
def result(execution_id: str, output: str, target: Target) -> None:
    """Show the result of an ended execution, whole, or its error."""
    found = with_session(target, lambda session: session.operations.executions.result(execution_id))

    def show(found: ResultDocument) -> None:
        print_result(found.result)
        if found.error is not None:
            click.echo(f"{found.status}: {found.error.kind}: {found.error.message}", err=True)

    print_document(found, output, "execution_id", show)


@click.command()
@execution_id
@form_option()
@target_options
def steps(execution_id: str, output: str, target: Target) -> None:
    """Show every step run, in the order they began."""
    found = with_session(target, lambda session: session.operations.executions.steps(execution_id))
    keys = ("step", "step_run_id", "status", "started", "attempts", "retries", "worker")
    print_documents(found, output, columns_of(*keys, seconds="duration_s", error=_error), "step_run_id")


@click.command()
@execution_id
@click.argument("step_run_id", metavar="STEP_RUN")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most so many. [default: all]")
@form_option()
@target_options
def iterations(execution_id: str, step_run_id: str, limit: int | None, output: str, target: Target) -> None:
    """Show the iterations of a loop step's run, as `execution steps` names it."""

    async def read(session: Session) -> list[IterationDocument]:
        one_page = session.operations.executions.iterations
        return await collect(lambda size, cursor: one_page(execution_id, step_run_id, size, cursor), limit)

    columns = {"iteration": _place, **columns_of("status", "attempts", "worker", error=_error)}
    print_documents(with_session(target, read), output, columns, _place)


@click.command()
@execution_id
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this position.")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most so many. [default: all]")
@form_option()
@target_options
def events(execution_id: str, after: int, limit: int | None, output: str, target: Target) -> None:
    """Show the journal of one execution, by position."""

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


@click.command()
@execution_id
@form_option()
@target_options
def ctx(execution_id: str, output: str, target: Target) -> None:
    """Show ctx, and who changed which of its keys, when and why."""
    found = with_session(target, lambda session: session.operations.executions.ctx(execution_id))

    def show(found: CtxDocument) -> None:
        print_result(found.ctx)
        columns = columns_of("position", "at", keys=_keys, by=_by, reason="reason")
        print_documents(found.history, "table", columns, "position")

    print_document(found, output, lambda _: execution_id, show)


@click.command()
@execution_id
@form_option("text")
@target_options
def why(execution_id: str, output: str, target: Target) -> None:
    """Say why an execution is where it is, since when, and what would move it."""
    found = with_session(target, lambda session: session.operations.executions.why(execution_id))
    print_document(found, output, "execution_id", print_why)


COMMANDS = (list_executions, get, result, steps, iterations, events, ctx, why)


def _error(found: StepRunDocument | IterationDocument) -> str | None:
    error = found.error
    return None if error is None else f"{error.kind}: {error.message}"


def _place(found: IterationDocument) -> str:
    return ".".join(map(str, found.path))


def _keys(change: CtxChangeDocument) -> str:
    return ", ".join(change.keys)


def _by(change: CtxChangeDocument) -> str:
    return change.principal or ".".join(filter(None, (change.step, change.task)))
