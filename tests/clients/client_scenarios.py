"""The scenarios of clients, done in Python: by a client with ``async``, and by one without in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from ruamel.yaml import YAML

from noetl_stream_client import AsyncClient, Client, ClientError, problems
from noetl_stream_client import errors as client_errors

FOUND: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_name("scenarios.yaml"))
PLAYBOOKS: list[str] = FOUND["playbooks"]
SCENARIOS: list[dict[str, Any]] = FOUND["scenarios"]

Step = Mapping[str, Any]

WHOLE: Final = 2**40
OVER_BREAKS: Final = [one for one in SCENARIOS if one.get("line") != "whole"]
BREAKS: Final = (WHOLE, 0, WHOLE, WHOLE, 40)
"""After how many bytes one answer after the other breaks off, for a line on which each scenario still goes its way."""


class Doer(ABC):
    """Does the steps of a scenario with clients of one kind."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._named: dict[str, Any] = {}
        self._clients: list[Any] = []
        self.client = self._new_client(token)

    @abstractmethod
    def _made(self, url: str, token: str) -> Any:
        """A client."""

    @abstractmethod
    async def _called(self, method: Any, options: Mapping[str, Any]) -> Any:
        """What a method returns: of one that iterates, all of it."""

    @abstractmethod
    async def _read(self, method: Any, options: Mapping[str, Any], meanwhile: list[Step]) -> list[Any]:
        """The items of a list, read page by page."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the clients."""

    async def do(self, steps: list[Step]) -> None:
        for step in steps:
            try:
                await self._step(step)
            except BaseException as error:
                error.add_note(f"in {step}")
                raise

    async def _step(self, step: Step) -> None:
        if "same" in step:
            assert len({self._filled(one) for one in step["same"]}) == 1
            return
        options, piled = self._filled(step.get("with", {})), bytearray()
        if step.get("call") == "download":
            options["write"] = piled.extend
        if "raises" in step:
            with pytest.raises(ClientError) as caught:
                await self._called(getattr(self._target(step), step["call"]), options)
            assert isinstance(caught.value, _exception(step["raises"])), repr(caught.value)
            for word in step.get("says", ()):
                assert word in str(caught.value)
            return
        if "each" in step:
            found: Any = await self._read(getattr(self.client, step["each"]), options, step["meanwhile"])
        else:
            found = await self._called(getattr(self._target(step), step["call"]), options)
            found = piled.decode() if "write" in options else found
        if "as" in step:
            self._named[step["as"]] = found
        self._check(step, found)

    def _check(self, step: Step, found: Any) -> None:
        if "gives" in step:
            assert found == step["gives"]
        if "has" in step:
            assert_has(msgspec.to_builtins(found), self._filled(step["has"]))
        if "first" in step:
            assert_has(msgspec.to_builtins(found[0]), step["first"])
        if "names" in step:
            assert [one.name for one in found if one.name in step["names"]] == step["names"]
        for key, length in step.get("lengths", {}).items():
            assert len(found[key]) == length

    def _target(self, step: Step) -> Any:
        given = step.get("client", {})
        if "on" in step:
            return self._named[step["on"]]
        if "as_token" in given:
            return self._new_client(self._named[given["as_token"]].secret)
        return self._new_client(given["token"]) if "token" in given else self.client

    def _new_client(self, token: str) -> Any:
        self._clients.append(self._made(self._url, token))
        return self._clients[-1]

    def _filled(self, value: Any) -> Any:
        """The value with the ids of what earlier steps have named."""
        if isinstance(value, str) and value.startswith("$"):
            name, _, attribute = value[1:].partition(".")
            named = self._named[name]
            return named[attribute] if isinstance(named, dict) else getattr(named, attribute)
        if isinstance(value, list):
            return [self._filled(one) for one in value]
        return {key: self._filled(one) for key, one in value.items()} if isinstance(value, dict) else value


class AsyncDoer(Doer):
    def _made(self, url: str, token: str) -> Any:
        return AsyncClient(url, token)

    async def _called(self, method: Any, options: Mapping[str, Any]) -> Any:
        found = method(**options)
        if inspect.isawaitable(found):
            return await found
        return [one async for one in found] if isinstance(found, AsyncIterator) else found

    async def _read(self, method: Any, options: Mapping[str, Any], meanwhile: list[Step]) -> list[Any]:
        found: list[Any] = []
        async for one in self.client.each(method, **options):
            await self.do([] if found else meanwhile)
            found.append(one)
        return found

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


class ThreadDoer(Doer):
    def _made(self, url: str, token: str) -> Any:
        return Client(url, token)

    async def _called(self, method: Any, options: Mapping[str, Any]) -> Any:
        def call() -> Any:
            found = method(**options)
            return list(found) if isinstance(found, Iterator) else found

        return await asyncio.to_thread(call)

    async def _read(self, method: Any, options: Mapping[str, Any], meanwhile: list[Step]) -> list[Any]:
        found: list[Any] = []
        reading, end = self.client.each(method, **options), object()
        while (one := await asyncio.to_thread(next, reading, end)) is not end:
            await self.do([] if found else meanwhile)
            found.append(one)
        return found

    async def close(self) -> None:
        for client in self._clients:
            client.close()


def assert_has(found: Any, part: Any) -> None:
    """The part is in what was found, at any depth."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in found
            assert_has(found[key], value)
    elif isinstance(part, list):
        assert len(found) == len(part)
        for one, two in zip_longest(found, part):
            assert_has(one, two)
    else:
        assert found == part


def _exception(name: str) -> type[Exception]:
    found: type[Exception] = getattr(problems, name, None) or getattr(client_errors, name)
    return found
