"""Why an execution is where it is, in sentences for people."""

from __future__ import annotations

from typing import Any

import click


def print_why(found: dict[str, Any]) -> None:
    """The summary, then each reason: what is, since when, and what would move it."""
    if [found["summary"]] != [reason["sentence"] for reason in found["reasons"]]:
        click.echo(found["summary"])
    for reason in found["reasons"]:
        click.echo(f"- {reason['sentence']}{_since(reason)}")
        if reason["moves"]:
            click.echo(f"  → {reason['moves']}")
    if found["more"]:
        click.echo(f"… and {found['more']} more")


def _since(reason: dict[str, Any]) -> str:
    said = [f"{word} {reason[word]}" for word in ("since", "until") if reason[word]]
    return f" ({', '.join(said)})" if said else ""
