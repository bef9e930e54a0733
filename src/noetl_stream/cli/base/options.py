"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def _home_folder(context: click.Context, option: click.Parameter, given: str | None) -> Path | None:
    if given is None:
        return None
    if not given:  # --home "$UNSET" would make the present folder a home
        raise click.BadParameter("is empty: name a folder")
    return Path(given)


home_option = click.option(
    "--home",
    callback=_home_folder,
    default=None,
    metavar="FOLDER",
    help="Folder of the embedded NATS and Postgres. [default: NOETL_HOME, else ~/.noetl]",
)

end_with_parent_option = click.option("--end-with-parent", "with_parent", is_flag=True, hidden=True)


FOR_PEOPLE = ("table", "text")
FORMS = ("json", "yaml", "name", "jsonl")


def form_option(first: str = "table") -> Callable[[Command], Command]:
    """``-o`` for documents: ``first`` for people, the others for programs (:mod:`noetl_stream.cli.base.output`)."""
    return output_option(first, *FORMS)


def output_option(*choices: str) -> Callable[[Command], Command]:
    """``-o``; the first choice is the default, and for people: ``table`` and ``text`` both say it."""
    return click.option(
        "-o", "--output", type=_Form(choices), default=choices[0], show_default=True, help="Form of the output."
    )


class _Form(click.Choice[str]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(self.choices[0] if value in FOR_PEOPLE else value, param, ctx)
