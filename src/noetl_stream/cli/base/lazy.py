"""Groups whose commands load when they are called, so that each starts fast."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from noetl_stream.cli.base.activity import activity


class LazyGroup(click.Group):
    """A group that imports a command when it is called.

    Args:
        modules: The module of each command, below ``noetl_stream.cli``, which has it as an attribute of its name or,
            after a colon, of another.
    """

    def __init__(self, *words: Any, modules: Mapping[str, str], **named: Any) -> None:
        super().__init__(*words, **named)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._modules[cmd_name].partition(":")
        if not ctx.resilient_parsing:  # completion has no line of its own
            activity.show("loading")
        found = importlib.import_module(f"noetl_stream.cli.{module}")
        activity.clear()
        command: click.Command = getattr(found, attribute or cmd_name.replace("-", "_"))
        return command
