"""Resolves secrets: from the playbook's keychain, the credential store, the worker's own settings (LANGUAGE §11)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.credential import CredentialValue, check_secrets, credential_value
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.kinds.keychain import CREDENTIAL_KINDS, OauthSettings, installed_kinds
from noetl_stream.playbook.plan import KeychainPlan
from noetl_stream.ports.clock import Clock
from noetl_stream.settings.environment import environment_variable
from noetl_stream.tools.contract import Tool, ToolFailure
from noetl_stream.tools.oauth2 import fetch_token
from noetl_stream.worker.limits import (
    ABSENT_KEPT_S,
    MAX_SECRET_FILE_BYTES,
    MAX_SECRETS_KEPT,
    SECRET_KEPT_S,
    TOKEN_MARGIN_S,
    UNKNOWN_LIFETIME_S,
)
from noetl_stream.worker.secrets.cache import CachedSecret, Key, SecretCache
from noetl_stream.worker.secrets.client import NotStored, Secret, SecretsClient
from noetl_stream.worker.secrets.redaction import Redactor

Credentials = Callable[[str], Awaitable[CredentialValue]]
"""Resolves a credential of the worker's own; raises :class:`~noetl_stream.tools.contract.ToolFailure` of kind
``credential``."""


class Keychain:
    """Resolves and caches secrets for all runs of one worker.

    Attributes:
        redactor: Redacts every secret ever resolved here, for the logs of the process.

    Args:
        own: The worker's own credentials (``NOETL_CREDENTIAL_<NAME>``).
        store: The credential store; ``None`` for a worker without servers.
        http: The tool that fetches tokens.
    """

    def __init__(
        self, clock: Clock, own: Credentials, store: SecretsClient | None = None, http: Tool | None = None
    ) -> None:
        self.redactor = Redactor()
        self._clock = clock
        self._own = own
        self._store = store
        self._http = http
        self._cache = SecretCache(clock)
        self._absent: dict[str, tuple[float, str]] = {}

    async def entry(self, execution_id: str, entry: KeychainPlan) -> tuple[Secret, Key | None]:
        """The secret of an entry of a playbook's keychain; with its cache key if it is a token.

        Raises:
            ToolFailure: kind ``credential``.
        """
        try:
            secret, key = await self._resolved(execution_id, entry)
        except ToolFailure as failure:
            raise _with_message(failure, f"keychain.{entry.name}: {failure.error.message}") from None
        self.redactor.learn(secret.value)
        return secret, key

    async def named(self, execution_id: str, name: str, *, is_global: bool = False) -> Secret:
        """The stored credential ``name``, else the worker's own credential of that name.

        Raises:
            ToolFailure: kind ``credential``.
        """
        try:
            secret = await self._cache.get(
                _stored_key(execution_id, name, is_global), lambda: self._ask(execution_id, name)
            )
        except _Absent as absent:
            secret = await self._own_credential(name, absent.near)
        self.redactor.learn(secret.value)
        return secret

    def drop(self, key: Key, token: Secret) -> None:
        """Drops a ``token`` that the remote end rejected."""
        self._cache.drop(key, token)

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._cache.close()

    async def _ask(self, execution_id: str, name: str) -> CachedSecret:
        """The stored credential. Its absence is cached for a moment, for all callers."""
        until_s, near = self._absent.get(name, (0.0, ""))
        if self._store is None or self._clock.monotonic_s() < until_s:
            raise _Absent(near)
        found = await self._store.find(execution_id, name)
        if isinstance(found, NotStored):
            if len(self._absent) >= MAX_SECRETS_KEPT:
                self._absent.clear()
            self._absent[name] = (self._clock.monotonic_s() + ABSENT_KEPT_S, found.near)
            raise _Absent(found.near)
        return CachedSecret(found, SECRET_KEPT_S)

    async def _own_credential(self, name: str, near: str) -> Secret:
        try:
            return Secret(await self._own(name))
        except ToolFailure as failure:
            if not near:
                raise
            raise _with_message(failure, f"{failure.error.message}; did you mean `{near}`?") from None

    async def _resolved(self, execution_id: str, entry: KeychainPlan) -> tuple[Secret, Key | None]:
        settings = entry.settings
        if entry.kind in CREDENTIAL_KINDS:
            name = settings.get("credential") or entry.name
            return await self.named(execution_id, name, is_global=settings.get("scope") == "global"), None
        if entry.kind == "env":
            return Secret(_environment(settings["variable"])), None
        if entry.kind == "file":
            return Secret(await asyncio.to_thread(_file, settings["path"])), None
        written = json.dumps(dict(settings), sort_keys=True)
        if entry.kind == "oauth2_client_credentials":
            model = OauthSettings.model_validate(settings)
            key = ("", "token", written)
            return await self._cache.get(key, lambda: self._fetch(execution_id, model)), key
        return await self._cache.get((execution_id, entry.kind, written), lambda: _from_plugin(entry)), None

    async def _fetch(self, execution_id: str, settings: OauthSettings) -> CachedSecret:
        name = settings.credential
        stored = None if name is None else await self.named(execution_id, name)
        found: Any = {} if stored is None else stored.value
        if not isinstance(found, Mapping):
            found = {"client_secret": found}
        client_id = settings.client_id or found.get("client_id")
        client_secret = settings.client_secret or found.get("client_secret")
        if not isinstance(client_id, str) or not isinstance(client_secret, str):
            raise _failed(f"credential {name!r} must hold client_id and client_secret as text")
        if self._http is None:
            raise _failed("this worker has no tool of kind http to fetch a token with")
        self.redactor.learn(client_secret)
        try:
            token = await fetch_token(self._http, settings, client_id, client_secret)
        except ToolFailure:
            if name is not None and stored is not None:  # it may have been replaced since
                self._cache.drop(_stored_key(execution_id, name, False), stored)
            raise
        lives_s = UNKNOWN_LIFETIME_S if token.lives_s is None else token.lives_s
        expires_ms = None if token.lives_s is None else self._clock.now_ms() + int(lives_s * 1000)
        value = {"access_token": token.value, "token_type": token.type}
        secret = Secret(value, expires_ms=expires_ms, token=token.value)
        return CachedSecret(secret, lives_s - min(TOKEN_MARGIN_S, lives_s / 10))


class _Absent(Exception):
    """The name is not stored; ``near`` is a similar one."""

    def __init__(self, near: str) -> None:
        super().__init__(near)
        self.near = near


def _stored_key(execution_id: str, name: str, is_global: bool) -> Key:
    return ("" if is_global else execution_id, "stored", name)


def _environment(variable: str) -> CredentialValue:
    text = environment_variable(variable)
    if text is None:
        raise _failed(f"the variable {variable} is not set for this worker")
    return _value(text, f"the variable {variable}")


def _file(path: str) -> CredentialValue:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_SECRET_FILE_BYTES + 1)
        if len(data) > MAX_SECRET_FILE_BYTES:
            raise _failed(f"{path} is larger than {MAX_SECRET_FILE_BYTES} bytes")
        return _value(data.decode(), path)
    except OSError as error:
        raise _failed(f"{path} cannot be read on this worker: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _failed(f"{path} is not UTF-8 text") from None


def _value(text: str, what: str) -> CredentialValue:
    try:
        return credential_value(text, what)
    except PayloadRefused as error:
        raise _failed(error.message) from None


async def _from_plugin(entry: KeychainPlan) -> CachedSecret:
    plugin = installed_kinds().plugins.get(entry.kind)
    if plugin is None:
        reason = installed_kinds().unusable.get(entry.kind, f"this worker has no keychain kind {entry.kind!r}")
        raise _failed(reason)
    try:
        value = await plugin().resolve(installed_kinds().settings[entry.kind].model_validate(dict(entry.settings)))
    except (Exception, SystemExit) as error:  # a plugin may raise anything
        raise _failed(f"kind {entry.kind!r}: {type(error).__name__}: {error}") from None
    if not isinstance(value, str | dict):
        raise _failed(f"kind {entry.kind!r} returned neither text nor a mapping")
    try:
        check_secrets(value, f"the value from kind {entry.kind!r}")
    except PayloadRefused as error:
        raise _failed(error.message) from None
    return CachedSecret(Secret(value), SECRET_KEPT_S)


def _with_message(failure: ToolFailure, message: str) -> ToolFailure:
    return ToolFailure(msgspec.structs.replace(failure.error, message=message))


def _failed(reason: str) -> ToolFailure:
    return ToolFailure(ErrorInfo("credential", reason))
