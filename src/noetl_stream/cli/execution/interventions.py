"""``noetl-stream execution patch|signal|token|cancel|pause|resume``: what can be asked of an execution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.process import new_id
from noetl_stream.cli.base.session import Session
from noetl_stream.cli.base.target import target_options
from noetl_stream.cli.execution.bulk import Verb, do
from noetl_stream.cli.execution.selection import Selection, selection_options
from noetl_stream.cli.execution.workload import json_or_text, workload_of
from noetl_stream.errors import UsageError
from noetl_stream.model.events import (
    CancelRequested,
    CtxPatched,
    InterventionFact,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.model.status import LIVE
from noetl_stream.ports.operations.executions import AcceptedDocument

Command = TypeVar("Command", bound=Callable[..., Any])


def explained(command: Command) -> Command:
    """``--reason`` and ``--correlation-id``."""
    command = click.option("--correlation-id", default="", help="An id of yours, kept with the event.")(command)
    return click.option("--reason", default="", help="Why; kept with the event.")(command)


def _asking(word: str = "ID") -> Callable[[Command], Command]:
    """The options that all of these share."""

    def decorate(command: Command) -> Command:
        for options in (target_options, form_option("text"), explained, selection_options(word=word)):
            command = options(command)
        return command

    return decorate


@click.command()
@_asking()
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
    _ask("patch", LIVE, CtxPatched, asked, patch=keys, merge=merge, expected_version=if_version)


@click.command()
@_asking("NAME")
@click.argument("name")
@click.option("--payload", default="null", metavar="JSON", help="What the wait gives as its result; text if not JSON.")
def signal(name: str, payload: str, **asked: Any) -> None:
    """Send the signal NAME. The oldest `kind: wait` for it goes on; without one it is kept for the next."""
    if not name:
        raise UsageError("a signal needs a name", hint="the one its `kind: wait` gives as `signal`")
    _ask(f"send {name} to", LIVE, SignalReceived, asked, signal=name, payload=json_or_text(payload))


@click.command()
@_asking("STEP")
@click.argument("step")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="An argument; JSON if it is JSON.")
@click.option("--set-string", "strings", multiple=True, metavar="KEY=VALUE", help="An argument, always text.")
def token(step: str, sets: tuple[str, ...], strings: tuple[str, ...], **asked: Any) -> None:
    """Put a token into STEP, as if an arc had fired."""
    _ask(f"put a token into {step} of", LIVE, TokenInjected, asked, step=step, args=workload_of(None, sets, strings))


@click.command()
@_asking()
def cancel(**asked: Any) -> None:
    """End an execution: what runs is stopped, then it is `cancelled`."""
    _ask("cancel", LIVE, CancelRequested, asked)


@click.command()
@_asking()
def pause(**asked: Any) -> None:
    """Let running commands finish and start nothing new. Time paused does not count towards timeouts."""
    _ask("pause", ("pending", "running", "waiting"), PauseRequested, asked)


@click.command()
@_asking()
def resume(**asked: Any) -> None:
    """Go on after a pause."""
    _ask("resume", ("paused",), ResumeRequested, asked)


COMMANDS = (patch, signal, token, cancel, pause, resume)


def _ask(
    name: str, statuses: tuple[str, ...], kind: type[InterventionFact], asked: dict[str, Any], **fields: Any
) -> None:
    selection: Selection = asked["selection"]

    async def act(session: Session, execution_id: str) -> AcceptedDocument:
        fact = kind(new_id(), session.by, asked["reason"], asked["correlation_id"], **fields)
        return await session.operations.executions.ask(execution_id, fact)

    do(Verb(name, statuses, act, _told), selection, asked["target"], asked["output"])


def _told(answer: AcceptedDocument) -> str:
    done = "was so already" if answer.already else f"done, at position {answer.position}"
    return f"{answer.execution_id}: {done}"
