"""What is known of a verb of the operations beside its signature, written once, on the method of its port."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeVar

import msgspec

from noetl_stream.model.roles import Role

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Asked = TypeVar("Asked", bound=Callable[..., Any])

Scope = Literal["arguments", "items", "everyone", "special"]
"""What a token with paths may ask of a verb: about executions and a path of its own, as arguments name them; for items
of a list that have such a path; the same as every token; or what the verb's method there allows.
"""

API: Final = "/api/v1"
EXECUTIONS: Final = ("execution_id", "other")
"""Parameters of verbs that are the id of an execution."""

PATH: Final = "path"
"""The parameter of verbs that is the path of a playbook, a schedule or a trigger."""

_RECORD: Final = "__verb__"


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """A verb.

    Attributes:
        path: The whole path in the HTTP API, with parameters in braces, named as the verb's own.
        operation: Its ``operationId``, where the gateway makes its route from this record; empty: a handler serves it.
        role: The lowest that may ask it there.
        parameters: The names of all of its parameters, in order.
        denied: What a token with paths may not do, in words; empty: ``scope`` says what it may.
        secrets: Whether its answer may contain secrets of executions.
        replica: Whether a replica of the database may answer, which may be behind.
        refuses: Problems beside those that any route may have, by name.
        adds_work: Whether it makes more for servers to fold: not while they are far behind.
        reads: Whether it changes nothing, though it is no GET.
        document: What HTTP answers with, where the verb returns a list or an object.
        request: What the OpenAPI document calls the JSON object that it takes, and says of it; ``None``: its operation,
            and nothing.
        next: The parameter that ``next`` of its answer is for, unless that is ``cursor``.
        description: What the OpenAPI document says beside the first line of the docstring.
        listed_first: Parameters that the OpenAPI document has before the others.
    """

    name: str
    method: Method
    path: str
    parameters: tuple[str, ...]
    operation: str = ""
    role: Role = "viewer"
    scope: Scope = "arguments"
    denied: str = ""
    secrets: bool = True
    replica: bool = False
    refuses: tuple[str, ...] = ()
    adds_work: bool = False
    reads: bool = False
    document: type[msgspec.Struct] | None = None
    request: tuple[str, str] | None = None
    next: str = "cursor"
    description: str = ""
    listed_first: tuple[str, ...] = ()

    @property
    def takes_object(self) -> bool:
        """Whether parameters that are not in its path are a JSON object; else they are in the query."""
        return self.method not in ("GET", "DELETE") and "source" not in self.parameters

    @property
    def changes(self) -> bool:
        """Whether it may change something."""
        return self.method != "GET" and not self.reads

    def target_of(self, arguments: Mapping[str, Any]) -> str:
        """What it is about: the first parameter in its path; empty without one."""
        named = (part[1:-1] for part in self.path.split("/") if part.startswith("{"))
        return str(arguments[name]) if (name := next(named, None)) else ""

    def arguments(self, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, by parameter."""
        return {**dict(zip(self.parameters, args, strict=False)), **options}


def verb(
    method: Method, path: str, operation: str = "", role: Role = "viewer", **more: Any
) -> Callable[[Asked], Asked]:
    """Declares a verb at an address of the HTTP API: the gateway serves it there, clients ask there.

    Args:
        path: Below :data:`API`. ``by`` comes from the token, ``reason`` from the header ``X-Reason``, ``source`` from
            the body, and other parameters from where :class:`~.parameters.VerbParameter` says.
        more: Other fields of :class:`Verb`.

    Raises:
        TypeError: no parameter says what the verb is about, and ``more`` no scope.
    """

    def declared(asked: Asked) -> Asked:
        code = asked.__code__
        parameters = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        record = Verb(
            name=asked.__name__,
            method=method,
            path=API + path,
            operation=operation,
            role=role,
            parameters=parameters,
            **more,
        )
        if record.scope == "arguments" and not record.denied and not {PATH, *EXECUTIONS}.intersection(parameters):
            known = ", ".join((PATH, *EXECUTIONS))
            raise TypeError(f"{asked.__qualname__} needs a scope, since none of its parameters is {known}")
        setattr(asked, _RECORD, record)
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


class Verbs(ABC):
    """Base of what answers all verbs of a port in one way. A subclass defines the verbs that it answers in another."""

    def __init__(self, port: type) -> None:
        self._port: Final = port

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        asked = getattr(self._port, name)
        if not is_verb(asked):
            raise AttributeError(f"{self._port.__name__}.{name} is not a verb")
        return partial(self._ask, verb_of(asked))

    @abstractmethod
    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        """Answers a verb that the subclass does not define."""
