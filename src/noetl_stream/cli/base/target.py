"""Where a command works: on NATS and Postgres, or through a gateway. Options come before the environment, that before
the contexts file, that before the default.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from noetl_stream.cli.base.contexts import DIRECT, check_url, read_contexts
from noetl_stream.cli.base.options import home_option
from noetl_stream.errors import UsageError
from noetl_stream.settings.environment import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


class Target(NamedTuple):
    """What the options say."""

    home: Path | None = None
    url: str | None = None
    context: str | None = None


class GatewayAddress(NamedTuple):
    """A gateway to ask. ``name`` is what errors call it."""

    url: str
    token: str | None
    name: str


def target_options(command: Command) -> Command:
    """``--home``, ``--url`` and ``--context``, given to the command as one ``target``."""

    @functools.wraps(command)
    def bundled(*words: Any, home: Path | None, url: str | None, context: str | None, **given: Any) -> Any:
        return command(*words, target=Target(home, url, context), **given)

    decorated: Any = bundled
    for option in (
        click.option("--context", metavar="NAME", help="The gateway of this name. [default: NOETL_CONTEXT]"),
        click.option("--url", metavar="URL", help="The gateway to ask. [default: NOETL_URL, else work directly]"),
        home_option,
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def gateway_of(target: Target, settings: Settings) -> GatewayAddress | None:
    """The gateway to ask; ``None``: work on NATS and Postgres.

    Raises:
        UsageError: the options contradict each other, or there is no such context.
    """
    given = [f"--{name}" for name, value in target._asdict().items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are ways to say where to work", hint="give one of them")
    if target.home is not None:
        return None
    url = target.url if target.context is None else None
    if url is None and target.context is None:
        url = settings.url
    if url is not None:
        named = "--url" if target.url is not None else "NOETL_URL"
        check_url(url, named)
        return GatewayAddress(url, settings.token, f"{named} {url}")
    name = target.context or settings.context
    if name == DIRECT or (name is None and settings.selects_stack):
        return None
    contexts = read_contexts(settings.contexts_file)
    name = name or contexts.current or DIRECT
    if name == DIRECT:
        return None
    context = contexts.find(name)
    return GatewayAddress(context.url, settings.token or context.read_token(), f"context {name}")
