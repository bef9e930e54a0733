"""What ``run`` does once its file, if it is one, is good: a stack, a server, the execution, its news."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.process import principal
from noetl_stream.cli.base.session import ensure_server
from noetl_stream.cli.execution.progress import progress_for
from noetl_stream.cli.playbook.source import Runnable, not_there, runnable_playbook
from noetl_stream.client.executions.run import WaitTimeout, run_to_end
from noetl_stream.client.executions.submit import Refused, Submission
from noetl_stream.concurrency import first_done
from noetl_stream.errors import NotFound
from noetl_stream.hosting import StackAccess, connected_to, on_termination, open_stack, prepare_embedded
from noetl_stream.ports.catalog_address import Address, find_entry
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.processes import Background
from noetl_stream.settings.environment import Settings
from noetl_stream.wiring import Connected, make_client

CANCEL_AGAIN_S = 1.0


async def run_playbook(
    settings: Settings, found: Runnable | Address, workload: dict[str, Any], *, timeout_s: float | None, output: str
) -> ExecutionDocument | ExitCode:
    """The described execution, or the exit code with which the waiting ended; what to do next is said on stderr.

    Raises:
        UsageError: nothing is registered at the address; the hint says what is.
    """
    with open_stack(settings) as stack:
        await prepare_embedded(stack)
        async with connected_to(stack, "noetl-run") as connected:
            await connected.store.verify()
            await connected.log.verify()
            if isinstance(found, Address):
                found = await _registered(connected, found)
            return await _run(settings, stack, connected, found, workload=workload, timeout_s=timeout_s, output=output)


async def _registered(connected: Connected, address: Address) -> Runnable:
    """The playbook at an address that is no file.

    Raises:
        UsageError: nothing is there; the hint says what is.
    """
    try:
        entry = await find_entry(connected.store.catalog, address)
    except NotFound as error:
        raise not_there(str(address), error) from None
    row = await connected.store.playbook(entry.digest)
    assert row is not None  # the entry's foreign key
    return runnable_playbook(f"{entry.path}@{entry.known_as}", row.source)


async def _run(
    settings: Settings,
    stack: StackAccess,
    connected: Connected,
    playbook: Runnable,
    workload: dict[str, Any],
    timeout_s: float | None,
    output: str,
) -> ExecutionDocument | ExitCode:
    client = make_client(connected)
    submission = Submission.new(playbook.source, playbook.plan.path, workload, connected.clock, principal=principal())
    progress = progress_for(output)
    accepted = asyncio.Event()
    background = Background(settings, stack)
    work = asyncio.create_task(
        run_to_end(
            client,
            connected.store,
            submission,
            timeout_s=timeout_s,
            on_news=progress.news,
            on_accepted=accepted.set,
            ensure_server=lambda: ensure_server(connected, client, background),
        )
    )
    interrupted = asyncio.Event()
    on_termination(interrupted.set)
    code, said = ExitCode.FAILED, ""
    try:
        return await _until(interrupted, work)
    except WaitTimeout:
        code, said = ExitCode.TIMEOUT, f"not ended after {timeout_s:g} s"
    except asyncio.CancelledError:
        code, said = ExitCode.INTERRUPTED, "interrupted"
    except Refused as refused:
        click.echo(f"refused: {refused.message}", err=True)
        return ExitCode.INVALID
    finally:
        progress.close()
    click.echo(f"{said}: {_aftermath(submission, stack, accepted=accepted.is_set())}", err=True)
    return code


async def _until(interrupted: asyncio.Event, work: asyncio.Task[ExecutionDocument]) -> ExecutionDocument:
    """Waits for ``work``, and cancels it when the person interrupts: again, if a library has swallowed the first."""
    await first_done([work], interrupted.wait())
    while not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=CANCEL_AGAIN_S)
    return await work


def _aftermath(submission: Submission, stack: StackAccess, *, accepted: bool) -> str:
    if not accepted:
        return f"the request for {submission.execution_id} had not been answered; it may still be taken up"
    home = f" --home {stack.embedded.address.home}" if stack.embedded is not None else ""
    return (
        f"execution {submission.execution_id} goes on\n"
        f"  watch it: noetl-stream execution get {submission.execution_id}{home}"
    )
