"""``noetl-stream run`` and ``noetl-stream execution start``."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.activity import activity
from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import bundled, explained, form_option, output_option
from noetl_stream.cli.base.output import print_document, print_json, say
from noetl_stream.cli.base.process import new_id, settings_for
from noetl_stream.cli.base.session import Session, Target, gateway_of, target_options, with_session
from noetl_stream.cli.execution import follow
from noetl_stream.cli.execution import workload as workloads
from noetl_stream.cli.execution.display.progress import ProgressView
from noetl_stream.cli.execution.display.tables import print_begun, print_ended, warnings_at_start
from noetl_stream.cli.execution.display.traces import traceparent_option
from noetl_stream.cli.playbook.checked import TextCheck, check_text
from noetl_stream.cli.playbook.playbook_source import file_or_address, not_there, print_diagnostics, read_text
from noetl_stream.durations import duration_text
from noetl_stream.errors import NoetlError, NotFound, PlaybookRefused, UsageError
from noetl_stream.local.background import Background
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.executions import ExecutionDocument, RequestIds, Start
from noetl_stream.ports.operations.verbs import plain

if TYPE_CHECKING:  # most playbooks call no function
    from noetl_stream.cli.execution.debugging import DebuggerTerminal
    from noetl_stream.cli.project.packages import Bundle
    from noetl_stream.settings.sources.environment import Settings

KEYS: Final = (
    *("execution_id", "path", "status", "result", "ctx", "duration_s"),
    *("steps", "discarded", "warnings", "error"),
)
STEP_KEYS: Final = ("step", "runs", "status", "duration_s")
"""The fields that ``run -o json`` shows; ``execution get`` shows more."""

_CALL: Final = re.compile(r"\bkind\b\W+playbook\b")
"""Text that occurs in each playbook that calls another one."""

_PACKED: Final = re.compile(r"\bfunction\b|\brequires\b|\bpython\s*:|# /// script")
"""Text that occurs in each playbook with packages, of a project or of an environment."""

LOOKUP_S: Final = 0.5
"""The time for which an interrupted run looks for the execution that it may have started."""


marks_options = bundled(
    "marks",
    lambda labels, key, unique: {"labels": workloads.labels_of(labels), "key": key, "unique": unique},
    [
        click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Add this label; repeatable."),
        click.option("--key", default="", metavar="TEXT", help="Its business key, such as order=A-1005."),
        click.option(
            "--unique",
            is_flag=True,
            help="Answer with the execution of this playbook that has the key, if there is one.",
        ),
    ],
)
"""The fields of :class:`Start` by which executions can be found."""


@click.command()
@click.argument("playbook", metavar="FILE|PATH[@VERSION]")
@workloads.workload_options
@marks_options
@workloads.priority_option("that of the playbook, else 5")
@traceparent_option
@follow.timeout_option
@follow.verbose_option
@click.option("--pdb", "debugs", is_flag=True, help="Stop in pdb, on this terminal, where Python code raises.")
@output_option("text", "json")
@target_options
@click.pass_context
def run(
    ctx: click.Context,
    playbook: str,
    workload: dict[str, Any],
    marks: dict[str, Any],
    priority: int | None,
    traceparent: str,
    timeout_s: float | None,
    verbose: bool,
    debugs: bool,
    output: str,
    target: Target,
) -> None:
    """Run a playbook and wait for its end.

    The playbook is a FILE, or one in the catalog: PATH is its latest version. An existing file takes precedence. The
    execution keeps the text that it started with, whatever is registered later.

    KEY can contain dots: a.b=1 sets b inside a. Later options override earlier ones, and --set overrides --workload.

    If no server is running, one is started in the background, together with a worker. They stop when no longer needed.
    With --url, the servers and workers of the gateway are used.

    Progress goes to stderr: a picture on a terminal, elsewhere a summary, with --verbose a line for each change. If a
    FILE calls functions, what `python` tasks print is shown as they print it.

    Ctrl-C and --timeout stop the waiting only; the execution continues. With --pdb, one worker runs `python` tasks one
    by one and without timeouts; where one raises, pdb shows its frames, and the attempt fails once you quit.

    \b
    Exit code:
        0  completed
        1  failed or cancelled
        2  invalid playbook or usage
        3  NATS, Postgres or gateway unreachable
      124  timeout
      130  interrupted
    """
    from noetl_stream.cli.main import main  # it imports this module

    settings, check = settings_for(target.home), None
    terminal = _debugger(target, settings) if debugs else None
    background, view = Background(settings, main), follow.progress_for(output, verbose=verbose, shared=debugs)
    is_local = gateway_of(target, settings) is None
    if is_local:
        ctx.call_on_close(background.close)
        background.prepare()
    if terminal is not None:
        terminal.attach(background, settings)
    given, bundle = wanted_of(playbook)
    wanted = replace(given, workload=workload, priority=priority, traceparent=traceparent, **marks)
    if is_local and wanted.playbook is not None:
        check = _checked(playbook, wanted.playbook, settings, bundle)  # before anything is changed for it
    if background.is_stack_down:
        view.doing(f"starting NATS and Postgres in {settings.home}")

    async def work(session: Session) -> ExecutionDocument | ExitCode:
        if terminal is not None:
            terminal.start()
        await _store(session, bundle)
        return await run_in(session, wanted, playbook, view, timeout_s=timeout_s)

    checked = () if check is None else (check.playbook,)
    ended = with_session(target, work, publishes=True, background=background, checked=checked)
    if check is not None:
        check.remember()
    if isinstance(ended, ExitCode):
        ctx.exit(ended)
    _print_run(ended, output, view, background, (playbook, wanted.playbook))
    ctx.exit(follow.exit_code_of(ended))


def _debugger(target: Target, settings: Settings) -> DebuggerTerminal:
    from noetl_stream.cli.execution.debugging import DebuggerTerminal  # most runs have none

    return DebuggerTerminal.of(target, settings)


def _print_where(ended: ExecutionDocument, file: str, source: str | None) -> None:
    """Prints the line of the file where a run failed, and the command that explains it."""
    task = ended.error.task if ended.error is not None else None
    step = ended.failed_step
    if source is not None and step is not None and (line := _line_of(source, step, task)) is not None:
        say(f"at {file}:{line}: step {step}" + (f", task {task}" if task else ""), err=True)
    say(f"why: noetl-stream execution why {ended.execution_id}", err=True)


def _line_of(source: str, step: str, task: str | None) -> int | None:
    """The line of a task in a playbook, or of its step if that has only one."""
    from noetl_stream.playbook.diagnostics import Problems
    from noetl_stream.playbook.vocabulary.names import ROWS
    from noetl_stream.playbook.yaml.nodes import Sequence, child
    from noetl_stream.playbook.yaml.source import read_source

    read = read_source(source, Problems(""))
    workflow = child(read.root, "workflow") if read is not None else None
    for item in workflow.items if isinstance(workflow, Sequence) else ():
        named = child(item, "step")
        if named is not None and named.plain() == step:
            tool, rows = child(item, "tool"), child(child(item, "loop"), "rows")
            own = child(rows, "name")
            if rows is not None and task == (ROWS if own is None else own.plain()):
                return rows.mark.line
            names = [child(one, "name") for one in tool.items] if isinstance(tool, Sequence) else []
            at = next((name for name in names if name is not None and name.plain() == task), tool or named)
            return at.mark.line
    return None


def _print_run(
    ended: ExecutionDocument, output: str, view: ProgressView, background: Background, source: tuple[str, str | None]
) -> None:
    if output != "json":
        print_ended(ended, has_said_error=view.has_said(ended.error), warned=view.warned)
        if background.log is not None:
            say(f"log of the servers: {background.log}", err=True)
        if ended.status == "failed":
            _print_where(ended, *source)
        return
    shown = plain(ended)
    steps = [{key: step[key] for key in STEP_KEYS} for step in shown["steps"] or ()]
    print_json({key: steps if key == "steps" else shown[key] for key in KEYS})


@click.command()
@click.argument("playbook", metavar="FILE|PATH[@VERSION]", required=False)
@click.option("--digest", default=None, help="Start the playbook with this digest.")
@workloads.workload_options
@click.option("--ctx", "ctx_sets", multiple=True, metavar="KEY=VALUE", help="Set a key of ctx before the first step.")
@marks_options
@workloads.priority_option("that of the playbook, else 5")
@explained
@traceparent_option
@workloads.batch_options
@follow.following_options
@form_option("text")
@target_options
@click.pass_context
def start(
    context: click.Context,
    playbook: str | None,
    digest: str | None,
    workload: dict[str, Any],
    ctx_sets: tuple[str, ...],
    marks: dict[str, Any],
    priority: int | None,
    reason: str,
    correlation_id: str,
    traceparent: str,
    batch: workloads.Batch | None,
    following: follow.Following,
    output: str,
    target: Target,
) -> None:
    """Start an execution and print its id.

    The playbook is a FILE, or one in the catalog: PATH is its latest version. The command returns as soon as the
    execution has started. KEY can contain dots: a.b=1 sets b inside a.

    With --each it starts one for each row, waits for all, and prints their results as JSONL in the order of the rows.

    \b
    Exit code with --wait, --watch or --each: 0 completed    1 failed or cancelled    124 timeout
    """
    given, bundle = wanted_of(playbook, digest)
    wanted = replace(
        given,
        workload=workload,
        ctx=workloads.workload_of(None, ctx_sets, (), set_option="--ctx"),
        priority=priority,
        reason=reason,
        correlation_id=correlation_id,
        traceparent=traceparent,
        **marks,
    )
    if batch is not None:
        if following.wait or following.watch or output != "text":
            raise UsageError("--each waits for all, and prints JSONL", hint="leave out --wait, --watch and -o")
        ended = with_session(target, lambda session: _all_of(session, wanted, playbook, batch, bundle), publishes=True)
        context.exit(ended)

    async def begin(session: Session) -> ExecutionDocument:
        await _store(session, bundle)
        return await started(session, wanted, playbook or "")

    begun = begin_and_follow(begin, following, output, target)
    print_document(begun, output, "execution_id", lambda found: say(found.execution_id))


def _checked(name: str, source: str, settings: Settings, bundle: Bundle | None) -> TextCheck:
    if bundle is None:
        return check_text(name, source, settings)
    from noetl_stream.cli.project.project_file import package_folders
    from noetl_stream.tools.python.signatures import modules_in

    with modules_in(package_folders(Path(name))):
        return check_text(name, source, settings)


async def _store(session: Session, bundle: Bundle | None) -> None:
    if bundle is not None:
        from noetl_stream.cli.project.packages import store_bundle

        await store_bundle(session, bundle)


async def _all_of(
    session: Session, wanted: Start, playbook: str | None, batch: workloads.Batch, bundle: Bundle | None
) -> ExitCode:
    from noetl_stream.cli.execution.batch import run_batch  # a run of one starts without it

    await _store(session, bundle)
    await _warn_of_calls(session, wanted, playbook or "")
    with starting(wanted, playbook or ""):
        return await run_batch(session, wanted, batch)


def begin_and_follow(
    begin: Callable[[Session], Awaitable[ExecutionDocument]], following: follow.Following, output: str, target: Target
) -> ExecutionDocument:
    """Calls ``begin``, and follows the execution with ``--wait`` or ``--watch``, which ends the command."""
    follows = following.wait or following.watch

    async def work(session: Session) -> tuple[ExecutionDocument, ExecutionDocument | None]:
        begun = await begin(session)
        return begun, await follow.stay(session, begun.execution_id, following, output) if follows else None

    begun, ended = with_session(target, work, publishes=True)
    if follows:
        follow.end_as(ended, begun.execution_id, following, output)
    return begun


def wanted_of(playbook: str | None, digest: str | None = None) -> tuple[Start, Bundle | None]:
    """The playbook that FILE, PATH[@VERSION] or a digest refers to, with the packages of FILE's project, if it calls
    them.

    Raises:
        UsageError: neither or both are given, the file cannot be read, or its project is invalid.
    """
    if (playbook is None) == (digest is None):
        raise UsageError("nothing to start", hint="give one of FILE, PATH[@VERSION] and --digest DIGEST")
    if playbook is None:
        return Start(digest=digest), None
    given = file_or_address(playbook)
    if not isinstance(given, Path):
        return Start(given.path, given.version), None
    source, bundle = read_text(given).source, None
    if _PACKED.search(source):
        from noetl_stream.cli.project.packages import packed

        source, bundle = packed(given, source)
    return Start(playbook=source), bundle


async def started(session: Session, wanted: Start, name: str, ids: RequestIds | None = None) -> ExecutionDocument:
    """Starts an execution, and prints its warnings to stderr."""
    await _warn_of_calls(session, wanted, name)
    with starting(wanted, name):
        begun = await session.operations.executions.start(wanted, session.by, ids)
    print_begun(begun)
    return begun


async def _warn_of_calls(session: Session, wanted: Start, name: str) -> None:
    """Warns of playbooks that a file calls by constant paths and the catalog does not have."""
    if wanted.playbook is None or _CALL.search(wanted.playbook) is None:
        return
    with contextlib.suppress(NoetlError):  # a start that fails for the same reason reports it
        checked = await session.operations.playbooks.check(wanted.playbook.encode(), name)
        print_diagnostics([one for one in checked.diagnostics if one.code == "unregistered_playbook"], name)


@contextlib.contextmanager
def starting(wanted: Start, name: str) -> Iterator[None]:
    """A playbook with errors ends the command with :attr:`ExitCode.INVALID`.

    Args:
        name: Of the playbook, in its diagnostics.
    """
    try:
        yield
    except PlaybookRefused as refused:
        print_diagnostics(msgspec.convert(refused.diagnostics, list[Diagnostic]), name)
        raise click.exceptions.Exit(ExitCode.INVALID) from None
    except NotFound as error:
        raise not_there(name, error) if wanted.path is not None else error from None


async def run_in(
    session: Session, wanted: Start, name: str, view: ProgressView, *, timeout_s: float | None
) -> ExecutionDocument | ExitCode:
    """The ended execution, or the exit code of a timeout or an interruption; stderr then shows how to find it.

    Args:
        name: Of the playbook, for people.
        view: Shows its progress.
    """
    ids, execution_id = RequestIds(new_id(), new_id()), None
    try:
        async with asyncio.timeout(timeout_s):
            activity.show(f"waiting for a server to accept {name}")
            begun = await started(session, wanted, name, ids)
            execution_id, view.warned = begun.execution_id, warnings_at_start(begun)
            ended = await follow.followed(session, execution_id, view, partial(_writers, wanted.playbook))
            return await _with_steps(session, ended)
    except TimeoutError:
        code, why = ExitCode.TIMEOUT, f"timeout after {duration_text(timeout_s)}"
    except asyncio.CancelledError:
        code, why = ExitCode.INTERRUPTED, "interrupted"
    say(f"{why}: {_aftermath(session, execution_id or await _answered(session, ids), ids)}", err=True)
    return code


def _writers(source: str | None) -> Collection[tuple[str, str]]:
    """The tasks of a playbook with packages whose output is shown as it arrives: those of `python`."""
    if source is None or _PACKED.search(source) is None:
        return ()
    from noetl_stream.cli.project.packages import python_tasks

    return python_tasks(source)


async def _with_steps(session: Session, ended: ExecutionDocument) -> ExecutionDocument:
    """``ended`` with the summary of its steps, which older gateways omit for a long journal."""
    if ended.steps is not None:
        return ended
    from noetl_stream.operations.executions.reading.step_runs import summaries

    return replace(ended, steps=summaries(await session.operations.executions.steps(ended.execution_id)))


async def _answered(session: Session, ids: RequestIds) -> str | None:
    """The id of the execution if its request was answered after all."""
    if session.keeps_ids:
        with contextlib.suppress(NoetlError, TimeoutError):
            async with asyncio.timeout(LOOKUP_S):
                await session.operations.executions.events(ids.execution_id, 0, 1)
                return ids.execution_id
    return None


def _aftermath(session: Session, execution_id: str | None, ids: RequestIds) -> str:
    if execution_id is None:
        named = f" for {ids.execution_id}" if session.keeps_ids else ""
        return f"the request{named} was not answered yet, and may still be accepted"
    return f"execution {execution_id} continues\n  show it: noetl-stream execution get {execution_id}{session.place}"
