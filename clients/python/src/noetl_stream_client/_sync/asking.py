"""Calls of verbs, and lists page by page."""
# Made by scripts/client_code.py: do not edit.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from noetl_stream_client._sync.transport import Transport
from noetl_stream_client.routes import HEADERS, ROUTES

Answer = TypeVar("Answer")
Item = TypeVar("Item", covariant=True)
Arguments = ParamSpec("Arguments")


class Page(Protocol[Item]):
    """A page of a list."""

    @property
    def items(self) -> Sequence[Item]: ...

    @property
    def next(self) -> str | int | None: ...


class Asking:
    """The caller of verbs, and base of their methods."""

    transport: Transport

    def _ask(self, name: str, kind: type[Answer], given: Mapping[str, Any]) -> Answer:
        return self.transport.ask(ROUTES[name].request(given, HEADERS), kind)

    def each(
        self,
        read: Callable[Arguments, Page[Item]],
        *args: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Iterator[Item]:
        """The items of a list, over all pages: ``client.each(client.list_executions, status=["failed"])``.

        Args:
            read: A method of this client that reads a page.

        Raises:
            TypeError: it reads no pages.
        """
        name = getattr(read, "__name__", "")
        by = ROUTES[name].next if name in ROUTES else ""
        if not by:
            raise TypeError(f"{name or read!r} is not a method of a client that reads pages")
        more: dict[str, Any] = dict(options)
        while True:
            page = read(*args, **more)
            yield from page.items
            if page.next is None:
                return
            more[by] = page.next
