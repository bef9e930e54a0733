"""The address of a verb in the HTTP API, written once, on the verb: the gateway serves it there, clients ask there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Verb = TypeVar("Verb", bound=Callable[..., Any])

HttpAddress = tuple[Method, str]
"""A method and a whole path, with parameters in braces, named as the verb's own."""

API: Final = "/api/v1"
_ADDRESS: Final = "__http_address__"


def http(method: Method, path: str) -> Callable[[Verb], Verb]:
    """Gives a verb its address.

    Args:
        path: Below :data:`API`. Parameters of the verb that it does not name are in the query of a GET or DELETE,
            otherwise in a JSON object; ``by`` comes from the token, ``reason`` from the header ``X-Reason``.
    """

    def addressed(verb: Verb) -> Verb:
        setattr(verb, _ADDRESS, (method, API + path))
        return verb

    return addressed


def address_of(verb: Callable[..., Any]) -> HttpAddress:
    """The address of a verb that has one."""
    address: HttpAddress = getattr(verb, _ADDRESS)
    return address


def has_address(verb: object) -> bool:
    return hasattr(verb, _ADDRESS)
