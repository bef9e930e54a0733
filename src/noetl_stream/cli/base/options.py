"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from noetl_stream.settings.places import Place, read_place

Command = TypeVar("Command", bound=Callable[..., Any])

FOR_PEOPLE = ("table", "text")
FORMS = ("json", "yaml", "name", "jsonl")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")


def bundled(
    name: str, make: Callable[..., object], options: Sequence[Callable[[Any], Any]]
) -> Callable[[Command], Command]:
    """Adds ``options`` to a command, which gets them as one argument.

    Args:
        name: The name of that argument.
        make: Makes its value; its parameters have the names of the options.
    """
    taken = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(*words: Any, **given: Any) -> Any:
            value = make(**{parameter: given.pop(parameter) for parameter in taken})
            return command(*words, **{name: value}, **given)

        return functools.reduce(lambda decorated, option: option(decorated), reversed(options), cast("Command", call))

    return decorate


def _home_folder(context: click.Context, option: click.Parameter, given: str | None) -> Path | None:
    if given is None:
        return None
    if not given:  # --home "$UNSET" would make the present folder a home
        raise click.BadParameter("is empty: name a folder")
    return Path(given)


class PlaceType(click.ParamType[Place]):
    """A folder, or an address of object storage."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        if not isinstance(value, str):  # click converts a value again
            return cast(Place, value)
        if not value:
            self.fail("is empty: name a folder, or s3://BUCKET/PREFIX", param, ctx)
        return read_place("place" if param is None else param.human_readable_name, value)


home_option = click.option(
    "--home",
    callback=_home_folder,
    default=None,
    metavar="FOLDER",
    help="Data folder of the embedded NATS and Postgres. [default: NOETL_HOME, else ~/.noetl]",
)


def seconds(context: click.Context, option: click.Parameter, given: str | None) -> float | None:
    """The callback of an option that takes a duration: ``90s``, ``15m``, ``12h``, ``30d``."""
    if given is None:
        return None
    found = _DURATION.fullmatch(given)
    if found is None or not float(found[1]):
        raise click.BadParameter(f"{given!r} is not a duration such as 90s, 15m, 12h or 30d")
    return float(found[1]) * SECONDS[found[2]]


def moment_ms(context: click.Context, option: click.Parameter, given: str | None) -> int | None:
    """The callback of an option that takes a time, or a duration before now: ms since the epoch."""
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        ago_s = seconds(context, option, given)
        assert ago_s is not None
        return int((time.time() - ago_s) * 1000)
    return int(found.timestamp() * 1000)  # without a zone, that of this machine


reason_option = click.option("--reason", default="", help="Reason, recorded in the audit.")


def explained(command: Command) -> Command:
    """``--reason`` and ``--correlation-id``."""
    command = click.option("--correlation-id", default="", help="Your own id, recorded with the event.")(command)
    return click.option("--reason", default="", help="Reason, recorded with the event.")(command)


def limit_option(items: str, default: int | None = None, most: int | None = None) -> Callable[[Command], Command]:
    """``--limit``. ``items`` are what it counts."""
    unlimited = " [default: all]" if default is None else ""
    return click.option(
        "--limit",
        type=click.IntRange(1, most),
        default=default,
        show_default=default is not None,
        help=f"Maximum number of {items}.{unlimited}",
    )


def form_option(first: str = "table") -> Callable[[Command], Command]:
    """``-o`` for documents: ``first`` for people, the others for programs (:mod:`noetl_stream.cli.base.output`)."""
    return output_option(first, *FORMS)


def output_option(*choices: str) -> Callable[[Command], Command]:
    """``-o``; the first choice is the default, and for people: ``table`` and ``text`` both select it."""
    return click.option(
        "-o", "--output", type=_Form(choices), default=choices[0], show_default=True, help="Output format."
    )


class _Form(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(self.choices[0] if value in FOR_PEOPLE else value, param, ctx)
