"""``noetl-stream doctor``: what is wrong with a running system."""

from __future__ import annotations

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_documents, say
from noetl_stream.cli.base.process import run_async, settings_for
from noetl_stream.cli.base.session import with_session
from noetl_stream.cli.base.target import Target, gateway_of, target_options
from noetl_stream.ports.operations.cluster import CheckDocument


@click.command()
@form_option("text")
@target_options
@click.pass_context
def doctor(ctx: click.Context, output: str, target: Target) -> None:
    """Look for what is wrong with a running system, and say what mends it.

    Each check is ok, a warning, wrong, or skipped, which says why nobody could look. Exits with 1 if something is
    wrong. Changes nothing.
    """
    checks = _examine(target)
    if output == "text":
        for check in checks:
            say(f"{check.verdict:8} {check.check:13} {check.says}")
            if check.mend:
                say(f"{'':22} → {check.mend}")
    else:
        print_documents(checks, output, {}, "check")
    if any(check.verdict == "wrong" for check in checks):
        ctx.exit(ExitCode.FAILED)


def _examine(target: Target) -> list[CheckDocument]:
    settings = settings_for(target.home)
    if gateway_of(target, settings) is not None:
        return with_session(target, lambda session: session.operations.diagnosis.examine())
    from noetl_stream.hosting.maintenance import diagnose
    from noetl_stream.wiring.stack import open_stack, prepare_once

    with open_stack(settings) as stack:
        embedded = stack.embedded is not None

        async def work() -> list[CheckDocument]:
            await prepare_once(stack)
            return await diagnose(stack.endpoint, on_demand=embedded)

        return run_async(work())
