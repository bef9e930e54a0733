"""``noetl-stream trigger``: what starts executions on events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_document, print_members, print_source
from noetl_stream.cli.playbook.source import read_playbook, registrable
from noetl_stream.errors import UsageError

if TYPE_CHECKING:  # the list of commands starts faster
    from noetl_stream.playbook.trigger.document import TriggerDocument


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
    """Check what triggers make of events.

    A trigger is a document of `kind: Trigger`. `playbook check` checks it.
    """


@trigger.command("test")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--event", "event", required=True, type=click.Path(path_type=Path), help="File with the event, as YAML or JSON."
)
@form_option("text")
def tested(file: Path, event: Path, output: str) -> None:
    """Show what the trigger in FILE makes of an event.

    Needs no servers, starts nothing, and checks no signature. The event of a webhook has `headers`, `query`, and `body`
    or `json`; that of an execution has `execution_id`, `path`, `status`, `labels`, `error`.

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
    from noetl_stream.playbook.trigger.schema import trigger_schema

    print_source(json.dumps(trigger_schema(), ensure_ascii=False, indent=2) + "\n")


def _document(file: Path) -> TriggerDocument:
    from noetl_stream.playbook.trigger.document import TriggerDocument

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

    event = read_event(document.source, given)
    wanted = document.execution
    if wanted is not None and not concerns(wanted, event["path"], event["labels"], event["status"]):
        return TestedEvent(starts=False, reason="path, labels or status are others than those of `on.execution`")
    found = match(Rules.of(document), event)
    if isinstance(found, Ignored):
        return TestedEvent(starts=False, reason=found.reason)
    call = document.call
    named = call.path if call.version is None else f"{call.path}@{call.version}"
    return TestedEvent(starts=True, playbook=named, workload=found.workload, key=found.key or None)


def _outcome(found: TestedEvent) -> str:
    return "starts" if found.starts else "ignored"
