"""Commands that call one verb, such as ``cluster.pools``, and print its answer.

Options and arguments of such a command are the arguments of the verb. All pages are read, or as many as ``--limit``
needs. A verb that records its caller is given one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from operator import attrgetter
from typing import Any

from noetl_stream.cli.base.options import form_option, reason_option
from noetl_stream.cli.base.output import Cell, Columns, print_document, print_documents, print_members, say
from noetl_stream.cli.base.session import Session, collect, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.ports.operations import port_of
from noetl_stream.ports.operations.verbs import verb_of

Command = Callable[..., None]


def lists(verb: str, columns: Columns, name: Cell, *, publishes: bool = False) -> Callable[[Command], Command]:
    """Makes a command that lists the answer of a verb: see :func:`~noetl_stream.cli.base.output.print_documents`."""
    return _asks(verb, lambda found, output: print_documents(found, output, columns, name), "table", publishes)


def shows(
    verb: str,
    name: Cell,
    show: Callable[[Any], object] = print_members,
    form: str = "text",
    *,
    publishes: bool = False,
) -> Callable[[Command], Command]:
    """Makes a command that shows the answer of a verb: see :func:`~noetl_stream.cli.base.output.print_document`."""
    return _asks(verb, lambda found, output: print_document(found, output, name, show), form, publishes)


def does(verb: str, done: str, *, publishes: bool = False) -> Callable[[Command], Command]:
    """Makes a command that calls a verb for each value of its only argument, until one fails, and prints the result."""

    def made(described: Command) -> Command:
        def run(reason: str, target: Target, **named: Any) -> None:
            (value,) = named.values()

            async def work(session: Session) -> None:
                for one in value if isinstance(value, tuple) else (value,):
                    await attrgetter(verb)(session.operations)(one, session.by, reason)
                    say(f"{done} {one}")

            with_session(target, work, publishes=publishes)

        return reason_option(target_options(update_wrapper(run, described)))

    return made


def _asks(verb: str, shown: Callable[[Any, str], None], form: str, publishes: bool) -> Callable[[Command], Command]:
    async def read(session: Session, given: dict[str, Any]) -> Any:
        noun, _, name = verb.partition(".")
        if "by" in verb_of(getattr(port_of(noun), name)).parameters:
            given["by"] = session.by
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
