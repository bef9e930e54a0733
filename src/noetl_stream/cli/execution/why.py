"""Why an execution is where it is, in sentences for people."""

from __future__ import annotations

import click

from noetl_stream.ports.operations.executions import ReasonDocument, WhyDocument


def print_why(found: WhyDocument) -> None:
    """The summary, then each reason: what is, since when, and what would move it."""
    if [found.summary] != [reason.sentence for reason in found.reasons]:
        click.echo(found.summary)
    for reason in found.reasons:
        click.echo(f"- {reason.sentence}{_since(reason)}")
        if reason.moves:
            click.echo(f"  → {reason.moves}")
    if found.more:
        click.echo(f"… and {found.more} more")


def _since(reason: ReasonDocument) -> str:
    said = [f"{word} {time}" for word, time in (("since", reason.since), ("until", reason.until)) if time]
    return f" ({', '.join(said)})" if said else ""
