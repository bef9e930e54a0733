"""``noetl-stream execution rerun|retry|delete``: verbs for ended executions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
from msgspec.structs import replace

from noetl_stream.cli.base.options import bundled, explained, form_option
from noetl_stream.cli.base.output import print_document, say
from noetl_stream.cli.base.session import Session, Target, target_options
from noetl_stream.cli.execution.bulk import BulkAction, Selection, check_id, do, selection_options
from noetl_stream.cli.execution.follow import Following, following_options
from noetl_stream.cli.execution.start import begin_and_follow
from noetl_stream.cli.execution.workload import priority_option, workload_of
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.executions import ExecutionDocument, RerunOptions
from noetl_stream.ports.operations.selections import APPLIES_TO, BulkItemDocument, BulkOrder, BulkVerb
from noetl_stream.ports.operations.verbs import Document


class Deleted(Document, frozen=True):
    """The answer of ``delete``."""

    execution_id: str
    deleted: bool = True


class Retried(Document, frozen=True):
    """The answer of ``retry`` and ``rerun`` for one of several executions: the new one."""

    execution_id: str
    rerun_of: str


def _changes(
    ctx_sets: tuple[str, ...],
    sets: tuple[str, ...],
    args_file: Path | None,
    priority: int | None,
    reason: str,
    correlation_id: str,
) -> RerunOptions:
    """The changes of a rerun, and the reason; without a step."""
    ctx = workload_of(None, ctx_sets, (), set_option="--ctx")
    args = workload_of(args_file, sets, (), "--args") if args_file is not None or sets else None
    return RerunOptions(ctx=ctx, args=args, priority=priority, reason=reason, correlation_id=correlation_id)


change_options = bundled(
    "changes",
    _changes,
    [
        click.option("--ctx", "ctx_sets", multiple=True, metavar="KEY=VALUE", help="Set a key of ctx first."),
        click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set an argument of the step."),
        click.option("--args", "args_file", type=click.Path(path_type=Path), help="YAML or JSON mapping of arguments."),
        priority_option("that of the original"),
        explained,
    ],
)


@click.command()
@selection_options()
@click.option("--from", "step", default=None, metavar="STEP", help="Step to start from, or a second argument after ID.")
@click.option("--step-run", "step_run_id", default=None, help="Run of the step to start from. [default: the last]")
@change_options
@following_options
@form_option("text")
@target_options
def rerun(
    selection: Selection,
    step: str | None,
    step_run_id: str | None,
    changes: RerunOptions,
    following: Following,
    output: str,
    target: Target,
) -> None:
    """Run ended executions again from a step on.

    \b
      noetl-stream execution rerun ID STEP
      noetl-stream execution rerun --status failed --path team/report --from STEP --dry-run

    Creates new executions that reuse the results of the steps before STEP. Given arguments replace those that the step
    had. --step-run, --wait and --watch need a single ID.
    """
    if step is None:
        if len(selection.ids) != 2:
            raise UsageError("no step to start from", hint="name it with --from STEP")
        selection, step = replace(selection, ids=selection.ids[:1]), selection.ids[1]
    wanted = replace(changes, step=step, step_run_id=step_run_id)
    if step_run_id is not None:
        _require_single(selection, "--step-run needs")
    _again("rerun", selection, wanted, following, output, target)


@click.command()
@selection_options()
@change_options
@following_options
@form_option("text")
@target_options
def retry(selection: Selection, changes: RerunOptions, following: Following, output: str, target: Target) -> None:
    """Run failed executions again, each from the step that failed.

    Creates new executions that reuse the results of the steps before it. --wait and --watch need a single ID.
    """
    _again("retry", selection, changes, following, output, target)


@click.command()
@selection_options()
@explained
@following_options
@form_option("text")
@target_options
def compensate(
    selection: Selection, reason: str, correlation_id: str, following: Following, output: str, target: Target
) -> None:
    """Undo what is left to undo of executions that failed or were cancelled.

    Creates a new execution for each, at most one, which runs the compensations of its steps, the last that ended first.
    --wait and --watch need a single ID.
    """
    wanted = RerunOptions(undoes=True, reason=reason, correlation_id=correlation_id)
    _again("compensate", selection, wanted, following, output, target)


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
    do(BulkAction("delete", APPLIES_TO["delete"], act, described, by_end=True, bulk=bulk), selection, target, output)


def _again(
    name: BulkVerb | Literal["compensate"],
    selection: Selection,
    wanted: RerunOptions,
    following: Following,
    output: str,
    target: Target,
) -> None:
    async def act(session: Session, execution_id: str) -> ExecutionDocument:
        return await session.operations.executions.rerun(execution_id, wanted, session.by)

    described = _undone if name == "compensate" else _described
    if following.wait or following.watch:
        only = _require_single(selection, "--wait and --watch need")
        begun = begin_and_follow(lambda session: act(session, only), following, output, target)
        print_document(begun, output, "execution_id", lambda found: say(described(found)))
        return

    def made(item: BulkItemDocument) -> Retried:
        return Retried(item.made or "", item.execution_id)

    if name == "compensate":
        do(BulkAction(name, ("failed", "cancelled"), act, _undone), selection, target, output)
        return
    bulk = (BulkOrder(name, options=wanted), made)
    do(BulkAction(name, APPLIES_TO[name], act, _described, bulk=bulk), selection, target, output)


def _require_single(selection: Selection, needing: str) -> str:
    """Returns the id of the only execution."""
    if selection.only is None or selection.dry_run:
        raise UsageError(f"{needing} a single ID")
    check_id(selection.only)
    return selection.only


def _undone(begun: ExecutionDocument) -> str:
    return f"{begun.rerun_of}: undone by {begun.execution_id}"


def _described(begun: ExecutionDocument | Retried) -> str:
    return f"{begun.rerun_of}: rerun as {begun.execution_id}"
