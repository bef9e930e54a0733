"""What is known of a verb of the operations beside its signature, written once, on the method of its port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import msgspec

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Asked = TypeVar("Asked", bound=Callable[..., Any])

API: Final = "/api/v1"
_RECORD: Final = "__verb__"


class Verb(msgspec.Struct, frozen=True, gc=False):
    """A verb.

    Attributes:
        path: The whole path in the HTTP API, with parameters in braces, named as the verb's own.
    """

    method: Method
    path: str


def verb(method: Method, path: str) -> Callable[[Asked], Asked]:
    """Declares a verb at an address of the HTTP API: the gateway serves it there, clients ask there.

    Args:
        path: Below :data:`API`. Parameters of the verb that it does not name are in the query of a GET or DELETE,
            otherwise in a JSON object; ``by`` comes from the token, ``reason`` from the header ``X-Reason``.
    """

    def declared(asked: Asked) -> Asked:
        setattr(asked, _RECORD, Verb(method, API + path))
        return asked

    return declared


def verb_of(asked: Callable[..., Any]) -> Verb:
    """The record of a verb that is declared."""
    record: Verb = getattr(asked, _RECORD)
    return record


def address_of(asked: Callable[..., Any]) -> tuple[Method, str]:
    """The address of a verb."""
    record = verb_of(asked)
    return record.method, record.path


def is_verb(asked: object) -> bool:
    return hasattr(asked, _RECORD)
