"""``noetl-stream execution rerun|retry|delete``: what can be done with ended executions."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from noetl_stream.cli.base.options import bundled, form_option
from noetl_stream.cli.base.output import print_document, say
from noetl_stream.cli.base.session import Session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.bulk import Verb, do
from noetl_stream.cli.execution.follow import Following, following_options
from noetl_stream.cli.execution.interventions import explained
from noetl_stream.cli.execution.selection import Selection, check_id, selection_options
from noetl_stream.cli.execution.start import begin_and_follow
from noetl_stream.cli.execution.workload import workload_of
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.executions import ExecutionDocument, RerunOptions
from noetl_stream.ports.operations.selections import APPLIES_TO, BulkItemDocument, BulkOrder


class Deleted(Document, frozen=True):
    """The answer of ``delete``."""

    execution_id: str
    deleted: bool = True


class Retried(Document, frozen=True):
    """The answer of ``retry`` for one of several executions: which new one it has made."""

    execution_id: str
    rerun_of: str


def _changes(
    ctx_sets: tuple[str, ...], sets: tuple[str, ...], args_file: Path | None, reason: str, correlation_id: str
) -> RerunOptions:
    """What a rerun changes, and why; without a step."""
    ctx = workload_of(None, ctx_sets, (), set_option="--ctx")
    args = workload_of(args_file, sets, (), "--args") if args_file is not None or sets else None
    return RerunOptions(ctx=ctx, args=args, reason=reason, correlation_id=correlation_id)


change_options = bundled(
    "changes",
    _changes,
    [
        click.option("--ctx", "ctx_sets", multiple=True, metavar="KEY=VALUE", help="Set a key of ctx first."),
        click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set an argument of the step."),
        click.option("--args", "args_file", type=click.Path(path_type=Path), help="YAML or JSON mapping of arguments."),
        explained,
    ],
)


@click.command()
@click.argument("execution_id", metavar="ID")
@click.argument("step")
@click.option("--step-run", "step_run_id", default=None, help="Run of the step to start from. [default: the last]")
@change_options
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
    """Run an ended execution again from STEP on.

    Creates a new execution that reuses the results of the steps before STEP. Given arguments replace those that the
    step had.
    """
    check_id(execution_id)
    _run_again(execution_id, replace(changes, step=step, step_run_id=step_run_id), following, output, target)


@click.command()
@selection_options()
@change_options
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
    """Run failed executions again, each from the step that failed.

    Creates new executions that reuse the results of the steps before it. --wait and --watch need a single ID.
    """
    if following.wait or following.watch:
        if selection.only is None or selection.dry_run:
            raise UsageError("--wait and --watch need a single ID")
        check_id(selection.only)
        return _run_again(selection.only, changes, following, output, target)

    async def act(session: Session, execution_id: str) -> ExecutionDocument:
        return await session.operations.executions.rerun(execution_id, changes, session.by)

    def retried(item: BulkItemDocument) -> Retried:
        return Retried(item.made or "", item.execution_id)

    bulk = (BulkOrder("retry", options=changes), retried)
    return do(Verb("retry", APPLIES_TO["retry"], act, _described, bulk=bulk), selection, target, output)


@click.command()
@selection_options()
@form_option("text")
@target_options
def delete(selection: Selection, output: str, target: Target) -> None:
    """Delete ended executions.

    This deletes their journals and the objects that only they use.
    """

    async def act(session: Session, execution_id: str) -> Deleted:
        await session.operations.executions.delete(execution_id, session.by)
        return Deleted(execution_id)

    def described(answer: Deleted) -> str:
        return f"{answer.execution_id}: deleted"

    bulk = (BulkOrder("delete"), lambda item: Deleted(item.execution_id))
    do(Verb("delete", APPLIES_TO["delete"], act, described, by_end=True, bulk=bulk), selection, target, output)


def _run_again(execution_id: str, wanted: RerunOptions, following: Following, output: str, target: Target) -> None:
    async def begin(session: Session) -> ExecutionDocument:
        return await session.operations.executions.rerun(execution_id, wanted, session.by)

    begun = begin_and_follow(begin, following, output, target)
    print_document(begun, output, "execution_id", lambda found: say(_described(found)))


def _described(begun: ExecutionDocument | Retried) -> str:
    return f"{begun.rerun_of}: rerun as {begun.execution_id}"
