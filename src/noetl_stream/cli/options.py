"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder of the embedded NATS and Postgres. [default: NOETL_HOME, else ~/.noetl]",
)


def output_option(*choices: str) -> Callable[[Command], Command]:
    """``-o``; the first choice is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(choices), default=choices[0], show_default=True, help="Form of the output."
    )
