"""``noetl-stream execution rerun|retry|delete``: what is done with executions that have ended."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_document
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.bulk import Verb, do
from noetl_stream.cli.execution.follow import Following, end_as, following_options, stay
from noetl_stream.cli.execution.interventions import explained
from noetl_stream.cli.execution.selection import Selection, check_id, selection_options
from noetl_stream.cli.execution.workload import workload_of
from noetl_stream.errors import UsageError
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.executions import ExecutionDocument, RerunOptions

Command = TypeVar("Command", bound=Callable[..., Any])


class Deleted(Document, frozen=True):
    """What ``delete`` answers with."""

    execution_id: str
    deleted: bool = True


def _changes(command: Command) -> Command:
    """What a rerun changes, and why: given as one ``changes``: :class:`RerunOptions` without a step."""

    @functools.wraps(command)
    def bundled(
        *words: Any,
        ctx_sets: tuple[str, ...],
        sets: tuple[str, ...],
        args_file: Path | None,
        reason: str,
        correlation_id: str,
        **given: Any,
    ) -> Any:
        ctx = workload_of(None, ctx_sets, (), set_option="--ctx")
        args = workload_of(args_file, sets, (), "--args") if args_file is not None or sets else None
        changes = RerunOptions(ctx=ctx, args=args, reason=reason, correlation_id=correlation_id)
        return command(*words, changes=changes, **given)

    decorated: Any = explained(bundled)
    for option in (
        click.option("--args", "args_file", type=click.Path(path_type=Path), help="YAML or JSON mapping of args."),
        click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="An argument of the step."),
        click.option("--ctx", "ctx_sets", multiple=True, metavar="KEY=VALUE", help="Set a key of ctx first."),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@click.command()
@click.argument("execution_id", metavar="ID")
@click.argument("step")
@click.option(
    "--step-run", "step_run_id", default=None, help="Which run of the step, if it had several. [default: last]"
)
@_changes
@following_options
@form_option("text")
@target_options
def rerun(
    execution_id: str,
    step: str,
    step_run_id: str | None,
    changes: RerunOptions,
    following: Following,
    output: str,
    target: Target,
) -> None:
    """Run an ended execution again from STEP on: a new execution, which reuses what was done before it.

    Given arguments take the place of those that the step had.
    """
    check_id(execution_id)
    wanted = changes._replace(step=step, step_run_id=step_run_id)
    _run_again(execution_id, wanted, following, output, target)


@click.command()
@selection_options()
@_changes
@following_options
@form_option("text")
@target_options
def retry(
    selection: Selection,
    changes: RerunOptions,
    following: Following,
    output: str,
    target: Target,
) -> None:
    """Run failed executions again, each from the step that failed: new executions, which reuse what was done before it.

    --wait and --watch are for a single one.
    """
    if following.wait or following.watch:
        if selection.only is None or selection.dry_run:
            raise UsageError("--wait and --watch are for a single execution", hint="name one ID")
        check_id(selection.only)
        return _run_again(selection.only, changes, following, output, target)

    async def act(session: Session, execution_id: str) -> ExecutionDocument:
        return await session.operations.executions.rerun(execution_id, changes, session.by)

    return do(Verb("retry", ("failed",), act, _told), selection, target, output)


@click.command()
@selection_options()
@form_option("text")
@target_options
def delete(selection: Selection, output: str, target: Target) -> None:
    """Forget ended executions: their journals, and what they alone keep in the object store."""

    async def act(session: Session, execution_id: str) -> Deleted:
        await session.operations.executions.delete(execution_id, session.by)
        return Deleted(execution_id)

    def told(answer: Deleted) -> str:
        return f"{answer.execution_id}: deleted"

    do(Verb("delete", ENDED, act, told, by_end=True), selection, target, output)


COMMANDS = (rerun, retry, delete)


def _run_again(execution_id: str, wanted: RerunOptions, following: Following, output: str, target: Target) -> None:
    async def begin(session: Session) -> tuple[ExecutionDocument, ExecutionDocument | None]:
        begun = await session.operations.executions.rerun(execution_id, wanted, session.by)
        if not (following.wait or following.watch):
            return begun, None
        return begun, await stay(session, begun.execution_id, following, output)

    begun, ended = with_session(target, begin, publishes=True)
    if following.wait or following.watch:
        end_as(ended, begun.execution_id, following, output)
    print_document(begun, output, "execution_id", lambda found: click.echo(_told(found)))


def _told(begun: ExecutionDocument) -> str:
    return f"{begun.rerun_of}: runs again as {begun.execution_id}"
