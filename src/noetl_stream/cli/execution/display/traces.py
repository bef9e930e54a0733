"""The span of a command that starts executions: it begins their trace, or continues that of the caller."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from noetl_stream.cli.base.output import say
from noetl_stream.cli.base.process import settings_for
from noetl_stream.errors import UsageError
from noetl_stream.model.traces import read_traceparent
from noetl_stream.settings.monitoring import TraceSettings
from noetl_stream.settings.sources.process_environment import callers_traceparent

if TYPE_CHECKING:
    from noetl_stream.ports.traces import Tracing

Command = TypeVar("Command", bound=Callable[..., Any])


def _checked_traceparent(_ctx: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    """The option, else the variable, ignored if invalid: nobody set it for this command."""
    if given is None:
        return callers_traceparent()
    if read_traceparent(given) is None:
        hint = "it looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        raise UsageError(f"--traceparent {given!r} is not a W3C traceparent", hint=hint)
    return given


def traceparent_option(command: Command) -> Command:
    """Adds ``--traceparent``, and records the command as a span around its executions."""

    @wraps(command)
    def within_span(*args: Any, traceparent: str, **given: Any) -> Any:
        name = click.get_current_context().command_path
        with traced(name, traceparent, settings_for(given["home"]).traces) as passed:
            return command(*args, traceparent=passed, **given)

    option = click.option(
        "--traceparent",
        metavar="TEXT",
        callback=_checked_traceparent,
        help="Join this trace (W3C). Default: the TRACEPARENT of the environment.",
    )
    return option(cast(Command, within_span))


@contextmanager
def traced(command: str, given: str, settings: TraceSettings | None) -> Iterator[str]:
    """Records the block as the span of a command, if spans are exported.

    Args:
        command: The words of the command.
        given: The ``traceparent`` of the caller; empty for none.
        settings: The destination of spans; ``None`` for none.

    Yields:
        The ``traceparent`` for the executions of the command.
    """
    if settings is None:
        yield given
        return
    from noetl_stream.adapters.trace_exporter import open_tracing  # commands start faster without it

    tracing = open_tracing(settings, "cli", f"cli-{os.getpid()}")
    if tracing is None:
        yield given
        return
    from noetl_stream.ports.traces import Span, span_within

    own, began_ms = span_within(tracing, given, os.urandom), time.time() * 1000
    about, error = {"process.exit.code": 0}, ""
    try:
        yield own.traceparent
    except click.exceptions.Exit as end:
        about, error = {"process.exit.code": end.exit_code}, "exit_status" if end.exit_code else ""
        raise
    except BaseException as failed:
        about, error = {}, type(failed).__name__
        raise
    finally:
        if own.is_sampled:
            ended_ms, trace = time.time() * 1000, own.trace
            ids = (trace.trace_id, own.span_id, trace.caller)
            tracing.record(Span(*ids, command, began_ms, ended_ms, about, error, kind="client"))
        _close(tracing)


def _close(tracing: Tracing) -> None:
    """Exports the span, within a few seconds, and reports a failure."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would write a line for each try
    asyncio.run(tracing.close())
    if any(reading.values.get(("refused",)) for reading in tracing.readings()):
        say("the span of this command was not exported: the collector does not take it", err=True)
