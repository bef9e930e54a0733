"""``noetl-stream trigger``: what starts executions on events."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl_stream.cli.base.options import form_option, limit_option, reason_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_members, print_source
from noetl_stream.cli.base.session import Session, collect, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.playbook.playbook_source import read_playbook, registrable
from noetl_stream.errors import UsageError

if TYPE_CHECKING:  # the list of commands starts faster
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument
    from noetl_stream.ports.operations.triggers import (
        EventStatus,
        TriggerEventDocument,
        Triggers,
        TriggerStateDocument,
    )


class TestedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger makes of an event: whether it would start ``playbook``, else ``reason`` why not."""

    __test__ = False  # not a test case, whatever pytest makes of its name

    starts: bool
    playbook: str | None = None
    workload: dict[str, Any] | None = None
    key: str | None = None
    reason: str | None = None


@click.group()
def trigger() -> None:
    """Start executions on events.

    A trigger is a document of `kind: Trigger`. `playbook check` checks it, `test` shows what it makes of an event, and
    `create` registers it.
    """


@trigger.command()
@click.argument("file", type=click.Path(path_type=Path))
@form_option("text")
@target_options
def create(file: Path, output: str, target: Target) -> None:
    """Register the trigger in FILE, which starts executions from now on.

    It acts with your rights. Registering it again changes what it does; what it remembers stays. As for playbooks, a
    registered metadata.version never changes.
    """
    source, path = read_playbook(file), _document(file).path

    async def register(session: Session) -> TriggerStateDocument:
        await session.operations.playbooks.register(source, str(file), session.by)
        return await session.operations.triggers.get(path)

    print_document(with_session(target, register, publishes=True), output, "path", print_members)


@trigger.command("list")
@click.option("--prefix", default="", metavar="PREFIX", help="Match paths that begin with this.")
@limit_option("triggers")
@form_option()
@target_options
def list_triggers(prefix: str, limit: int | None, output: str, target: Target) -> None:
    """List triggers by path."""

    async def read(session: Session) -> list[TriggerStateDocument]:
        triggers = session.operations.triggers
        return await collect(lambda size, cursor: triggers.page(prefix, size, cursor), limit)

    columns = columns_of("path", "source", "playbook", "events", faults=_faults, pending=_pending, paused=_held_up)
    print_documents(with_session(target, read), output, columns, "path")


@trigger.command()
@click.argument("path")
@form_option("text")
@target_options
def get(path: str, output: str, target: Target) -> None:
    """Show the trigger at PATH as it is now."""
    _show_one(target, lambda triggers, by: triggers.get(path), output)


@trigger.command()
@click.argument("path")
@reason_option
@form_option("text")
@target_options
def pause(path: str, reason: str, output: str, target: Target) -> None:
    """Ignore events for the trigger at PATH until it is resumed.

    They are recorded, and can be sent again. Messages of a stream on NATS are left there, and read then.
    """
    _show_one(target, lambda triggers, by: triggers.pause(path, by, reason), output)


@trigger.command()
@click.argument("path")
@reason_option
@form_option("text")
@target_options
def resume(path: str, reason: str, output: str, target: Target) -> None:
    """Start executions on events for the trigger at PATH again."""
    _show_one(target, lambda triggers, by: triggers.resume(path, by, reason), output)


@trigger.command()
@click.argument("path")
@click.option("--status", type=click.Choice(["started", "repeated", "ignored"]), help="Match what became of them.")
@limit_option("events", 50)
@form_option()
@target_options
def history(path: str, status: EventStatus | None, limit: int | None, output: str, target: Target) -> None:
    """List events for the trigger at PATH and what became of them, newest first.

    Each started an execution, was ignored for a reason, or had the key of one that started before.
    """

    async def read(session: Session) -> list[TriggerEventDocument]:
        triggers = session.operations.triggers
        return await collect(lambda size, cursor: triggers.history(path, size, cursor, status), limit)

    columns = columns_of("number", "at", "status", "fault", execution="execution_id", reason="reason")
    print_documents(with_session(target, read), output, columns, "number")


@trigger.command()
@click.argument("path")
@click.argument("number", type=click.IntRange(1))
@form_option("text")
@target_options
def event(path: str, number: int, output: str, target: Target) -> None:
    """Show event NUMBER for the trigger at PATH, in full."""
    found = with_session(target, lambda session: session.operations.triggers.event(path, number))
    print_document(found, output, "number", print_members)


@trigger.command()
@click.argument("path")
@click.argument("number", type=click.IntRange(1))
@reason_option
@form_option("text")
@target_options
def resend(path: str, number: int, reason: str, output: str, target: Target) -> None:
    """Send event NUMBER to the trigger at PATH again, as a new one.

    What the trigger makes of it now counts: change or resume the trigger before.
    """

    async def act(session: Session) -> TriggerEventDocument:
        return await session.operations.triggers.resend(path, number, session.by, reason)

    print_document(with_session(target, act, publishes=True), output, "number", print_members)


@trigger.command()
@click.argument("path")
@reason_option
@target_options
def delete(path: str, reason: str, target: Target) -> None:
    """Forget the trigger at PATH, with its events and all versions of its document.

    What it has started goes on.
    """

    async def act(session: Session) -> None:
        await session.operations.triggers.delete(path, session.by, reason)

    with_session(target, act, publishes=True)


@trigger.command("test")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--event", "event", required=True, type=click.Path(path_type=Path), help="File with the event, as YAML or JSON."
)
@form_option("text")
def tested(file: Path, event: Path, output: str) -> None:
    """Show what the trigger in FILE makes of an event.

    Needs no servers, starts nothing, and checks no signature. The event of a webhook has `headers`, `query`, and `body`
    or `json`; that of a stream on NATS has `subject`, `headers`, and `body` or `json`; that of an execution has
    `execution_id`, `path`, `status`, `labels`, `error`.

    \b
    Exit code: 0 it is shown, also if nothing would start    2 the trigger or the event is invalid
    """
    document = _document(file)
    print_document(_tested(document, _event_in(event)), output, _outcome, print_members)


@trigger.command()
def schema() -> None:
    """Print the JSON Schema of triggers.

    Editors with the YAML language server use it if a trigger begins with

    \b
      # yaml-language-server: $schema=trigger.schema.json
    """
    from noetl_stream.playbook.trigger.trigger_schema import trigger_schema

    print_source(json.dumps(trigger_schema(), ensure_ascii=False, indent=2) + "\n")


def _show_one(target: Target, act: Callable[[Triggers, str], Awaitable[TriggerStateDocument]], output: str) -> None:
    found = with_session(target, lambda session: act(session.operations.triggers, session.by), publishes=True)
    print_document(found, output, "path", print_members)


def _document(file: Path) -> TriggerDocument:
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument

    document = registrable(str(file), read_playbook(file))
    if not isinstance(document, TriggerDocument):
        raise UsageError(f"{file}: not a trigger", hint="a trigger has `kind: Trigger`")
    return document


def _event_in(file: Path) -> Any:
    from noetl_stream.playbook.diagnostics import Problems
    from noetl_stream.playbook.yaml.source import read_source

    problems = Problems(str(file))
    source = read_source(read_playbook(file), problems)
    if source is None:
        raise UsageError(problems.sorted()[0].render())
    return source.root.plain()


def _tested(document: TriggerDocument, given: Any) -> TestedEvent:
    from noetl_stream.playbook.trigger.matching import Ignored, Rules, concerns, match, read_event
    from noetl_stream.trigger.stream_messages import subject_matches

    terms = document.terms
    event = read_event(terms.source, given, terms.nats.format if terms.nats is not None else "json")
    wanted = terms.execution
    if wanted is not None and not concerns(wanted, event["path"], event["labels"], event["status"]):
        return TestedEvent(starts=False, reason="path, labels or status are others than those of `on.execution`")
    if terms.nats is not None and not subject_matches(terms.nats.subject, event["subject"]):
        return TestedEvent(starts=False, reason="the subject is another than that of `on.nats`")
    found = match(Rules.of(terms), event)
    if isinstance(found, Ignored):
        return TestedEvent(starts=False, reason=found.reason)
    named = terms.playbook if terms.version is None else f"{terms.playbook}@{terms.version}"
    return TestedEvent(starts=True, playbook=named, workload=found.workload, key=found.key or None)


def _faults(one: TriggerStateDocument) -> int | None:
    return one.faults.count if one.faults is not None else None


def _pending(one: TriggerStateDocument) -> int | None:
    return one.stream.pending if one.stream is not None else None


def _held_up(one: TriggerStateDocument) -> str | None:
    """Why it starts nothing now."""
    return one.paused or (one.stream.trouble if one.stream is not None else None)


def _outcome(found: TestedEvent) -> str:
    return "starts" if found.starts else "ignored"
