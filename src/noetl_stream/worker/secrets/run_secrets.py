"""The secrets of one step run: those its tasks have read, to be redacted from its reports (LANGUAGE §11)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from noetl_stream.model.envelope import iso
from noetl_stream.model.secrets.credential import CredentialValue
from noetl_stream.playbook.plan import KeychainPlan
from noetl_stream.template import ValueNeeded
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.worker.secrets.keychain import Key, Keychain, Secret
from noetl_stream.worker.secrets.redaction import ToolRedactor
from noetl_stream.worker.waiting import Asker


class SecretNeeded(ValueNeeded):
    """A template read a keychain entry: await ``load()``, then render again."""

    def __init__(self, name: str, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__(f"keychain.{name}")
        self.load = load


class RunSecrets:
    """The secrets of a step run, shared by its tasks: the playbook's keychain entries, and the secrets used so far.

    Attributes:
        used: Redacts every secret that a task of this run has read; ``None`` if none has.
        keychain: The keychain of the worker.
    """

    __slots__ = ("_asker", "entries", "keychain", "used")

    def __init__(self, keychain: Keychain, entries: Mapping[str, KeychainPlan], asker: Asker) -> None:
        self.used: ToolRedactor | None = None
        self.entries = entries
        self.keychain = keychain
        self._asker = asker

    async def resolve(self, name: str) -> tuple[Secret, Key | None]:
        """Resolves ``name`` as a keychain entry, else as a credential; returns it with its cache key if it is a token.

        Raises:
            ToolFailure: kind ``credential``.
        """
        entry = self.entries.get(name)
        key: Key | None = None
        if entry is not None:
            secret, key = await self.keychain.entry(self._asker, entry)
        else:
            secret = await self.keychain.named_credential(self._asker, name)
        if self.used is None:
            self.used = ToolRedactor()
        await asyncio.to_thread(self.used.learn, secret.value)
        return secret, key


class TaskSecrets(Mapping[str, Any]):
    """The secrets of one attempt. As a mapping it is the templates' ``keychain``, resolved when read.

    Args:
        opened: Names that ``kind: secrets`` tasks of this pipeline have made readable.
    """

    __slots__ = ("_loaded", "_opened", "_run", "_tokens")

    def __init__(self, run: RunSecrets, opened: Collection[str] = ()) -> None:
        self._run = run
        self._opened = opened
        self._loaded: dict[str, CredentialValue] = {}
        self._tokens: dict[Key, Secret] = {}

    def __getitem__(self, name: str) -> CredentialValue:
        if name in self._loaded:
            return self._loaded[name]
        if name in self._run.entries or name in self._opened:
            raise SecretNeeded(name, partial(self._load, name))
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self._run.entries or name in self._opened

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._run.entries, *self._opened)))

    def __len__(self) -> int:
        return len(self._run.entries.keys() | set(self._opened))

    async def credential(self, name: str) -> CredentialValue:
        """Returns the credential for ``auth: name``. Raises like :meth:`RunSecrets.resolve`."""
        return (await self._resolve(name)).credential

    async def is_operators(self, name: str) -> bool:
        """Returns whether the operator configured the credential. Raises like :meth:`RunSecrets.resolve`."""
        return (await self._resolve(name)).is_operators

    async def describe(self, name: str) -> dict[str, Any]:
        """Returns a credential's metadata: ``{name, version, expires_at}``. Raises like :meth:`RunSecrets.resolve`."""
        secret = await self._resolve(name)
        expires_at = None if secret.expires_ms is None else iso(secret.expires_ms)
        return {"name": name, "version": secret.version, "expires_at": expires_at}

    def renew_after(self, failure: ToolFailure) -> bool:
        """Drops the token that the failure rejects; returns whether one was used, so that the next attempt gets a new
        one.
        """
        refused = failure.error.kind == "http_status" and failure.error.code == "401"
        if not (refused and self._tokens):
            return False
        for key, token in self._tokens.items():
            self._run.keychain.drop(key, token)
        self._tokens.clear()
        self._loaded.clear()
        return True

    def check_unread(self, kind: str) -> None:
        """Raises :class:`~noetl_stream.tools.contract.ToolFailure` if a template has read a secret.

        The inputs of a task that suspends its pipeline are recorded in events, which must not hold secrets.
        """
        if self._loaded:
            names = ", ".join(f"keychain.{name}" for name in self._loaded)
            message = f"the inputs of kind {kind} are recorded and cannot hold a secret: leave out {names}"
            raise ToolFailure.of("invalid_input", message)

    async def _load(self, name: str) -> None:
        self._loaded[name] = (await self._resolve(name)).value

    async def _resolve(self, name: str) -> Secret:
        secret, key = await self._run.resolve(name)
        if key is not None:
            self._tokens[key] = secret
        return secret
