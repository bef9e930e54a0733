"""Commands that ask one verb, such as ``cluster.pools``, and print its answer.

Options and arguments of such a command are the arguments of the verb. Of pages, all are read, or as many as needed for
the option ``--limit``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from operator import attrgetter
from typing import Any

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import Cell, Columns, print_document, print_documents, print_members
from noetl_stream.cli.base.session import Session, collect, with_session
from noetl_stream.cli.base.target import Target, target_options

Command = Callable[..., None]


def lists(verb: str, columns: Columns, name: Cell, *, publishes: bool = False) -> Callable[[Command], Command]:
    """Makes a command that lists what a verb answers with, as :func:`~noetl_stream.cli.base.output.print_documents`."""
    return _asks(verb, lambda found, output: print_documents(found, output, columns, name), "table", publishes)


def shows(
    verb: str, name: Cell, show: Callable[[Any], object] = print_members, form: str = "text"
) -> Callable[[Command], Command]:
    """Makes a command that shows what a verb answers with, as :func:`~noetl_stream.cli.base.output.print_document`."""
    return _asks(verb, lambda found, output: print_document(found, output, name, show), form)


def _asks(
    verb: str, shown: Callable[[Any, str], None], form: str, publishes: bool = False
) -> Callable[[Command], Command]:
    async def read(session: Session, given: dict[str, Any]) -> Any:
        ask = attrgetter(verb)(session.operations)
        if "limit" not in given:
            return await ask(**given)
        limit = given.pop("limit")
        return await collect(lambda size, cursor: ask(**given, limit=size, cursor=cursor), limit)

    def made(described: Command) -> Command:
        def run(output: str, target: Target, **given: Any) -> None:
            shown(with_session(target, lambda session: read(session, given), publishes=publishes), output)

        return form_option(form)(target_options(update_wrapper(run, described)))

    return made
