"""``noetl-stream trigger``: triggers, which start executions on events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option, reason_option
from noetl_stream.cli.base.output import columns_of, print_document, print_members
from noetl_stream.cli.base.session import shows
from noetl_stream.cli.playbook.playbook_source import read_playbook
from noetl_stream.cli.starters import Starter, add_commands, read_starter
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.starters import EVENT_STATUSES, TriggerStateDocument

if TYPE_CHECKING:  # the list of commands starts faster
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument


class TestedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a trigger about an event: whether it would start ``playbook``, else the ``reason``, and whether
    that is a fault of the trigger.
    """

    __test__ = False  # not a test case, despite its name

    starts: bool
    playbook: str | None = None
    workload: dict[str, Any] | None = None
    key: str | None = None
    reason: str | None = None
    fault: bool | None = None


@click.group()
def trigger() -> None:
    """Start executions on events.

    A trigger is a document of `kind: Trigger`. `playbook check` checks it, `test` shows what it makes of an event, and
    `create` registers it.
    """


@trigger.command()
@click.argument("path")
@click.argument("number", type=click.IntRange(1))
@shows("triggers.event", "number")
def event() -> None:
    """Show event NUMBER for the trigger at PATH, in full."""


@trigger.command()
@click.argument("path")
@click.argument("number", type=click.IntRange(1))
@reason_option
@shows("triggers.resend", "number", publishes=True)
def resend() -> None:
    """Send event NUMBER to the trigger at PATH again, as a new one.

    What the trigger makes of it now counts: change or resume the trigger before.
    """


@trigger.command("test")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--event", "event", required=True, type=click.Path(path_type=Path), help="File with the event, as YAML or JSON."
)
@form_option("text")
@click.pass_context
def tested(ctx: click.Context, file: Path, event: Path, output: str) -> None:
    """Show what the trigger in FILE makes of an event.

    Needs no servers, starts nothing, and checks no signature. The event of a webhook has `headers`, `query`, and `body`
    or `json`; that of a stream on NATS has `subject`, `headers`, and `body` or `json`; that of an execution has
    `execution_id`, `path`, `status`, `labels`, `error`.

    \b
    Exit code: 0 it is shown, also if nothing would start    1 the trigger cannot do with it what it says
               2 the trigger or the event is invalid
    """
    document = _document(str(file), read_playbook(file))
    found = _tested(document, _event_in(event))
    print_document(found, output, lambda one: "starts" if one.starts else "ignored", print_members)
    if found.fault:
        ctx.exit(ExitCode.FAILED)


def _event_in(file: Path) -> Any:
    from noetl_stream.playbook.diagnostics import Problems
    from noetl_stream.playbook.yaml.source import read_source

    problems = Problems(str(file))
    source = read_source(read_playbook(file), problems)
    if source is None:
        raise UsageError(problems.sorted()[0].render())
    return source.root.plain()


def _tested(document: TriggerDocument, given: Any) -> TestedEvent:
    from noetl_stream.playbook.trigger.matching import Fault, Ignored, Rules, concerns, match, read_event
    from noetl_stream.trigger.stream_messages import subject_matches

    terms = document.terms
    event = read_event(terms.source, given, terms.nats.format if terms.nats is not None else "json")
    wanted = terms.execution
    if wanted is not None and (event["error"] is None) != (event["status"] == "completed"):
        has = "no error" if event["status"] == "completed" else "an error"
        hint = "write error: { kind: …, message: … }"
        raise UsageError(f"an end with status `{event['status']}` has {has}", hint=hint)
    if terms.event is not None and not concerns(terms.event, event["path"], event["labels"], event["name"]):
        return TestedEvent(starts=False, reason="its name, path or labels do not match `on.event`")
    if wanted is not None and not concerns(wanted, event["path"], event["labels"], event["status"]):
        return TestedEvent(starts=False, reason="its path, labels or status do not match `on.execution`")
    if terms.nats is not None and not subject_matches(terms.nats.subject, event["subject"]):
        return TestedEvent(starts=False, reason="the subject is another than that of `on.nats`")
    found = match(Rules.from_terms(terms), event)
    if isinstance(found, Ignored):
        return TestedEvent(starts=False, reason=found.reason, fault=isinstance(found, Fault) or None)
    named = terms.playbook if terms.version is None else f"{terms.playbook}@{terms.version}"
    return TestedEvent(starts=True, playbook=named, workload=found.workload, key=found.key or None)


def _held_up(one: TriggerStateDocument) -> str | None:
    """The reason why it starts nothing now."""
    return one.paused or (one.stream.trouble if one.stream is not None else None)


def _document(name: str, source: bytes) -> TriggerDocument:
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument

    return read_starter(name, source, TriggerDocument, "trigger")


def _schema() -> dict[str, Any]:
    from noetl_stream.playbook.trigger.trigger_document import trigger_schema

    return trigger_schema()


_HELPS: Final = {
    "create": """Register the triggers in FILES, which start executions from now on.

    They act with your rights. Registering one again changes what it does; what it remembers stays. As for playbooks, a
    registered metadata.version never changes.
    """,
    "list": "List triggers by path.",
    "get": "Show the trigger at PATH as it is now.",
    "pause": """Ignore events for the trigger at PATH until it is resumed.

    They are recorded, and can be sent again. Messages of a stream on NATS are left there, and read then.
    """,
    "resume": "Start executions on events for the trigger at PATH again.",
    "delete": """Forget the trigger at PATH, with its events and all versions of its document.

    What it has started goes on.
    """,
    "history": """List events for the trigger at PATH and what became of them, newest first.

    Each started an execution, was ignored for a reason, or had the key of one that started before.
    """,
}

add_commands(
    trigger,
    Starter(
        noun="trigger",
        of=lambda session: session.operations.triggers,
        document=_document,
        helps=_HELPS,
        columns=columns_of(
            *("path", "source", "playbook", "events"),
            faults=lambda one: one.faults and one.faults.count,
            pending=lambda one: one.stream and one.stream.pending,
            paused=_held_up,
        ),
        resumed=lambda one: f"resumed {one.path}",
        entries="events",
        statuses=EVENT_STATUSES,
        entry_columns=columns_of("number", "at", "status", "fault", execution="execution_id", reason="reason"),
        entry_name="number",
        schema=_schema,
    ),
)
