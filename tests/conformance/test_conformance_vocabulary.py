"""Words that LANGUAGE gives one meaning are not used for another."""

from __future__ import annotations

from collections.abc import Iterator

import click

from noetl_stream.cli.main import noetl_stream
from noetl_stream.gateway.gateway import RESOURCES


def verbs(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the program with its options, a line each."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        elif command is not None:
            yield " ".join((*path, name, *(option for param in command.params for option in param.opts)))


def test_nothing_that_runs_anything_is_called_replay() -> None:
    """Rerun and retry run; replay rebuilds a state from events, which no verb is needed for (LANGUAGE §9)."""
    commands = list(verbs(noetl_stream))
    routes = [f"{route.method} {route.path}" for route in RESOURCES]
    assert any(line.startswith("execution rerun") for line in commands)
    assert any(line.endswith("/rerun") for line in routes)
    assert [line for line in [*commands, *routes] if "replay" in line.lower()] == []
