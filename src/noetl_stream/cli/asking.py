"""``noetl-stream execution patch|signal|cancel|pause|resume|token``: what can be asked of an execution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from noetl_stream.cli.options import home_option, output_option
from noetl_stream.cli.output import print_json
from noetl_stream.cli.process import principal, run_async, settings_for
from noetl_stream.cli.workload import json_or_text, workload_of
from noetl_stream.errors import UsageError
from noetl_stream.model.events import (
    AskedFact,
    CancelRequested,
    CtxPatched,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.model.ids import is_valid_id

Command = TypeVar("Command", bound=Callable[..., Any])


def _asking(command: Command) -> Command:
    """The options that all of these share."""
    for option in (
        home_option,
        output_option("text", "json"),
        click.option("--correlation-id", default="", help="An id of yours, kept with the event."),
        click.option("--reason", default="", help="Why; kept with the event."),
        click.argument("execution_id", metavar="ID"),
    ):
        command = option(command)
    return command


@click.command()
@_asking
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key; JSON if it is JSON.")
@click.option("--set-string", "strings", multiple=True, metavar="KEY=VALUE", help="Set a key, always text.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="YAML or JSON mapping of keys.")
@click.option("--merge", is_flag=True, help="Merge deeply (RFC 7396): null deletes a key.")
@click.option("--if-version", type=int, default=None, help="Only at this version of ctx, as `execution get` shows it.")
def patch(
    sets: tuple[str, ...],
    strings: tuple[str, ...],
    file: Path | None,
    merge: bool,
    if_version: int | None,
    **asked: Any,
) -> None:
    """Change ctx from outside. Held tokens are tried again with it."""
    inner = next((text for text in (*sets, *strings) if "." in text.partition("=")[0]), None)
    if inner is not None and not merge:
        key = inner.partition(".")[0]
        raise UsageError(f"{inner!r} would replace all of {key!r}", hint="--merge changes only what is named inside it")
    keys = workload_of(file, sets, strings, "--file")
    if not keys:
        raise UsageError("nothing to patch", hint="give --set KEY=VALUE or --file FILE")
    _ask(CtxPatched, asked, patch=keys, merge=merge, expected_version=if_version)


@click.command()
@_asking
@click.argument("name")
@click.option("--payload", default="null", metavar="JSON", help="What the wait gives as its result; text if not JSON.")
def signal(name: str, payload: str, **asked: Any) -> None:
    """Send the signal NAME. The oldest `kind: wait` for it goes on; without one it is kept for the next."""
    if not name:
        raise UsageError("a signal needs a name", hint="the one its `kind: wait` gives as `signal`")
    _ask(SignalReceived, asked, signal=name, payload=json_or_text(payload))


@click.command()
@_asking
@click.argument("step")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="An argument; JSON if it is JSON.")
@click.option("--set-string", "strings", multiple=True, metavar="KEY=VALUE", help="An argument, always text.")
def token(step: str, sets: tuple[str, ...], strings: tuple[str, ...], **asked: Any) -> None:
    """Put a token into STEP, as if an arc had fired."""
    _ask(TokenInjected, asked, step=step, args=workload_of(None, sets, strings))


@click.command()
@_asking
def cancel(**asked: Any) -> None:
    """End an execution: what runs is stopped, then it is `cancelled`."""
    _ask(CancelRequested, asked)


@click.command()
@_asking
def pause(**asked: Any) -> None:
    """Let running commands finish and start nothing new. Time paused does not count towards timeouts."""
    _ask(PauseRequested, asked)


@click.command()
@_asking
def resume(**asked: Any) -> None:
    """Go on after a pause."""
    _ask(ResumeRequested, asked)


COMMANDS = (patch, signal, token, cancel, pause, resume)


def _ask(kind: type[AskedFact], asked: dict[str, Any], **fields: Any) -> None:
    execution_id: str = asked["execution_id"]
    if not is_valid_id(execution_id):
        raise UsageError(f"{execution_id!r} is no execution id", hint="`noetl-stream execution list` shows them")
    from noetl_stream.cli.asking_work import ask

    def fact(request_id: str) -> AskedFact:
        return kind(request_id, principal(), asked["reason"], asked["correlation_id"], **fields)

    answer = run_async(ask(settings_for(asked["home"]), execution_id, fact))
    if asked["output"] == "json":
        print_json(answer)
    else:
        done = "was so already" if answer.get("already") else f"done, at position {answer['position']}"
        click.echo(f"{execution_id}: {done}")
