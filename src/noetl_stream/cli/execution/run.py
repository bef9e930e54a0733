"""What ``run`` does once its file, if it is one, is good: starts an execution, follows it, and says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import click
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.process import new_id
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target
from noetl_stream.cli.execution.begin import started
from noetl_stream.cli.execution.follow import ShownProgress, followed
from noetl_stream.cli.execution.progress import progress_for
from noetl_stream.errors import NoetlError
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.operations.executions import ExecutionDocument, RequestIds, Start

LOOK_S: Final = 0.5
"""How long it is looked for what may have begun, when the person stops waiting."""


def run_to_end(
    target: Target, wanted: Start, name: str, plans: Sequence[Plan], *, timeout_s: float | None, output: str
) -> ExecutionDocument | ExitCode:
    """The ended execution, or the exit code with which the waiting ended; how to find it then is said on stderr.

    Args:
        name: What people call the playbook.
        plans: Those that were made here already.
    """

    async def work(session: Session) -> ExecutionDocument | ExitCode:
        return await run_in(session, wanted, name, timeout_s=timeout_s, output=output)

    return with_session(target, work, publishes=True, plans=plans)


async def run_in(
    session: Session, wanted: Start, name: str, *, timeout_s: float | None, output: str
) -> ExecutionDocument | ExitCode:
    """:func:`run_to_end` with what it works with at hand; cancelled, it gives the exit code that says so."""
    ids, execution_id = RequestIds(new_id(), new_id()), None
    try:
        async with asyncio.timeout(timeout_s):
            execution_id = (await started(session, wanted, name, ids)).execution_id
            ended = await followed(session, execution_id, ShownProgress(progress_for(output)))
            return await _with_steps(session, ended)
    except TimeoutError:
        code, said = ExitCode.TIMEOUT, f"not ended after {timeout_s:g} s"
    except asyncio.CancelledError:
        code, said = ExitCode.INTERRUPTED, "interrupted"
    click.echo(f"{said}: {_aftermath(session, execution_id or await _answered(session, ids), ids)}", err=True)
    return code


async def _with_steps(session: Session, ended: ExecutionDocument) -> ExecutionDocument:
    """``ended`` with the summary of its steps, which one with a long journal comes without."""
    if ended.steps is not None:
        return ended
    from noetl_stream.client.executions.step_runs import summaries

    return replace(ended, steps=summaries(await session.operations.executions.steps(ended.execution_id)))


async def _answered(session: Session, ids: RequestIds) -> str | None:
    """The id of the execution if its request was answered after all."""
    if session.keeps_ids:
        with contextlib.suppress(NoetlError, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                return (await session.operations.executions.get(ids.execution_id)).execution_id
    return None


def _aftermath(session: Session, execution_id: str | None, ids: RequestIds) -> str:
    if execution_id is None:
        named = f" for {ids.execution_id}" if session.keeps_ids else ""
        return f"the request{named} had not been answered; it may still be taken up"
    return f"execution {execution_id} goes on\n  watch it: noetl-stream execution get {execution_id}{session.place}"
