"""Resolves secrets: from the playbook's keychain, the credential store, the worker's own settings (LANGUAGE §11)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from noetl_stream.concurrency import Key as Shared
from noetl_stream.concurrency import Result, SharedLoads
from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import HideQuestion, SecretQuestion, hidden_as, subject_of
from noetl_stream.model.secrets.credential import (
    CREDENTIAL_NAME,
    NOT_A_NAME,
    CredentialValue,
    check_secrets,
    credential_value,
)
from noetl_stream.playbook.kinds.keychain import CREDENTIAL_KINDS, OauthSettings, installed_kinds
from noetl_stream.playbook.plan import KeychainPlan
from noetl_stream.ports.clock import Clock
from noetl_stream.protocol import subjects
from noetl_stream.sealing.handover import HandoverKey, Sealed, seal
from noetl_stream.settings.sources.process_environment import environment_variable
from noetl_stream.tools.contract import Tool, ToolFailure
from noetl_stream.tools.oauth2 import fetch_token
from noetl_stream.worker import worker_limits as limits
from noetl_stream.worker.secrets.files import FileRefused, read_secret_file
from noetl_stream.worker.secrets.redaction import ToolRedactor
from noetl_stream.worker.waiting import Asker

_DIGEST_BYTES: Final = 16


async def load_shared(
    loads: SharedLoads[Shared, Result], key: Shared, load: Callable[[], Coroutine[Any, Any, Result]]
) -> Result:
    """Returns the result of the running load for ``key``, or of ``load`` without one or after its failure."""
    while True:
        is_shared = key in loads
        try:
            return await loads.get(key, load)
        except ToolFailure:
            if not is_shared:  # the shared load was refused to another command, which may have ended
                raise


class Hiding:
    """Makes servers hide secrets, each once per execution."""

    def __init__(self) -> None:
        self._hidden: LruCache[bytes, bool] = LruCache(limits.MAX_SECRETS_KEPT)
        self._loads: SharedLoads[bytes, None] = SharedLoads()
        self._server_keys: dict[int, bytes] = {}
        """The key of each partition's owner, to which values are sealed."""

    async def hide(self, asker: Asker, name: str, value: CredentialValue) -> None:
        """Makes servers hide ``value``, the secret ``name``, in the execution of ``asker``, and waits until they do.

        Raises:
            ToolFailure: kind ``credential``: a server refuses.
        """
        key = _key(asker.execution_id, name, value)
        if key not in self._hidden:
            await load_shared(self._loads, key, lambda: self._hide(key, asker, name, value))

    def note(self, execution_id: str, name: str, value: CredentialValue) -> None:
        """Notes that servers already hide ``value`` in that execution."""
        self._hidden.put(_key(execution_id, name, value), True)

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._loads.close()

    async def _hide(self, key: bytes, asker: Asker, name: str, value: CredentialValue) -> None:
        partition = partition_of(asker.execution_id)
        while True:
            server_key = self._server_keys.get(partition, b"")
            question = HideQuestion(asker.command, name, server_key, worker=asker.worker)
            if server_key:
                sealed = seal(codec.encode(value), server_key, hidden_as(question))
                question = replace(question, public_key=sealed.public_key, body=sealed.body)
            answer = codec.decode_hide_answer(await asker.ask(subjects.ASK_HIDE, question))
            if answer.refused:
                raise ToolFailure.of("credential", f"what {name!r} holds cannot be hidden: {answer.refused}")
            if not answer.server_key:
                self._hidden.put(key, True)  # before the load ends, so that nobody asks again
                return
            self._server_keys[partition] = answer.server_key


def _key(execution_id: str, name: str, value: CredentialValue) -> bytes:
    text = f"{execution_id}\0{name}\0".encode() + codec.encode(value)
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Secret:
    """A resolved secret.

    Attributes:
        value: The value of ``keychain.<name>``.
        version: The version of a stored credential.
        expires_ms: The time of expiry, ms since the epoch; ``None`` if unknown.
        token: The text of a token that ``auth`` uses.
        is_operators: Whether the operator of the worker or of the servers configured the secret
            (``NOETL_CREDENTIAL_<NAME>``).
    """

    value: CredentialValue = field(repr=False)
    version: int | None = None
    expires_ms: int | None = None
    token: str | None = field(default=None, repr=False)
    is_operators: bool = False

    @property
    def credential(self) -> CredentialValue:
        """A copy of the value for a tool's ``auth``, since the cached one must not change."""
        return deepcopy(self.value) if self.token is None else {"token": self.token}


class NotStored(Exception):
    """No credential of that name is stored; ``near`` is a similar name, or ''."""

    def __init__(self, near: str) -> None:
        super().__init__(near)
        self.near = near


async def find_stored(asker: Asker, name: str) -> Secret:
    """Asks a server for the stored credential ``name``, sealed to a key made for this one request.

    Raises:
        NotStored: the name is not stored.
        ToolFailure: kind ``credential``: it is stored but was refused; the message gives the reason.
    """
    reply_key = HandoverKey()
    question = SecretQuestion(asker.command, name, reply_key.public_key, asker.worker)
    body = await asker.ask(subjects.ASK_SECRET, question)
    try:
        answer = codec.decode_secret_answer(body)
        if answer.refused:
            raise _credential_failure(f"credential {name!r}: {answer.refused}")
        if not answer.version:
            raise NotStored(answer.near)
        sealed = Sealed(answer.public_key, answer.body)
        value = codec.decode_value(reply_key.open(sealed, subject_of(question, answer.version)))
    except NoetlError as error:
        raise _credential_failure(f"credential {name!r}: {error.message}") from None
    return Secret(value, version=answer.version, is_operators=answer.is_operators)


FindStored: TypeAlias = Callable[[Asker, str], Awaitable[Secret]]
"""A function that finds stored credentials, like :func:`find_stored`."""

Key: TypeAlias = tuple[str, ...]
"""The owner (an execution's id, or the digest of a playbook for all its executions) and the name of a secret."""


class CachedSecret(NamedTuple):
    """A secret and the seconds for which it may be cached."""

    secret: Secret
    kept_s: float


class Keychain:
    """Resolves secrets for all runs of one worker, and caches them so that tasks need not request them each time
    (legacy architecture §5.2).

    Attributes:
        redactor: Redacts every secret ever resolved here, for the logs of the process.

    Args:
        own: The worker's own credentials by lower-case name (``NOETL_CREDENTIAL_<NAME>``, LANGUAGE §11).
        store: The credential store; ``None`` for a worker without servers, which would also hide secrets that it reads.
        http: The tool that fetches tokens.
        folders: The folders whose files may be read (``NOETL_KEYCHAIN_FOLDERS``).
    """

    def __init__(
        self,
        clock: Clock,
        own: Mapping[str, str],
        store: FindStored | None = None,
        http: Tool | None = None,
        *,
        folders: Sequence[Path] = (),
    ) -> None:
        self.redactor = ToolRedactor()
        self._clock = clock
        self._own = own
        self._store = store
        self._http = http
        self._folders = folders
        self._kept: LruCache[Key, tuple[float, Secret]] = LruCache(limits.MAX_SECRETS_KEPT)
        self._loads: SharedLoads[Key, Secret] = SharedLoads()
        self._hiding = Hiding() if store is not None else None
        self._absent: LruCache[Key, tuple[float, str]] = LruCache(limits.MAX_SECRETS_KEPT)

    async def entry(self, asker: Asker, entry: KeychainPlan) -> tuple[Secret, Key | None]:
        """Resolves an entry of a playbook's keychain; with its cache key if it is a token.

        Raises:
            ToolFailure: kind ``credential``.
        """
        try:
            secret, key = await self._resolve_entry(asker, entry)
        except ToolFailure as failure:
            message = f"keychain.{entry.name}: {failure.error.message}"
            raise ToolFailure(msgspec.structs.replace(failure.error, message=message)) from None
        return secret, key

    async def named_credential(self, asker: Asker, name: str, *, is_global: bool = False) -> Secret:
        """Resolves the stored credential ``name``, else the worker's own credential of that name.

        Raises:
            ToolFailure: kind ``credential``. Text that cannot be a name is not shown: it may be a secret itself.
        """
        if CREDENTIAL_NAME.fullmatch(name) is None:
            raise _credential_failure(NOT_A_NAME)
        try:
            key = _stored_key(asker.digest if is_global else asker.execution_id, name)
            secret = await self._cached_secret(key, lambda: self._ask(asker, name))
        except NotStored as missing:
            secret = Secret(self._own_credential(name, missing.near), is_operators=True)
        await self._hide(asker, name, secret)
        return secret

    def drop(self, key: Key, token: Secret) -> None:
        """Drops a ``token`` that the remote end rejected, unless ``key`` already has a newer one."""
        if self._lookup(key)[1] is token:
            self._kept.drop(key)

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._loads.close()
        if self._hiding is not None:
            await self._hiding.close()

    async def _cached_secret(self, key: Key, load: Callable[[], Awaitable[CachedSecret]]) -> Secret:
        """Returns the secret of ``key``, from ``load`` if it is not cached or has expired. Raises as ``load`` does."""
        until_s, secret = self._lookup(key)
        if secret is not None and self._clock.monotonic_s() < until_s:
            return secret
        return await load_shared(self._loads, key, lambda: self._load(key, load))

    def _lookup(self, key: Key) -> tuple[float, Secret | None]:
        return self._kept.get(key) or (0.0, None)

    async def _load(self, key: Key, load: Callable[[], Awaitable[CachedSecret]]) -> Secret:
        secret, kept_s = await load()
        now_s = self._clock.monotonic_s()
        for old in [old for old, (until_s, _) in self._kept.items() if until_s <= now_s]:
            self._kept.drop(old)
        self._kept.put(key, (now_s + kept_s, secret))
        return secret

    async def _ask(self, asker: Asker, name: str) -> CachedSecret:
        """Asks for the stored credential. Its absence is cached for a moment, for all executions of the playbook."""
        key = _stored_key(asker.digest, name)
        until_s, near = self._absent.get(key) or (0.0, "")
        if self._store is None or self._clock.monotonic_s() < until_s:
            raise NotStored(near)
        try:
            secret = await self._store(asker, name)
            if self._hiding is not None:  # the server that sends it also hides it in this execution
                self._hiding.note(asker.execution_id, name, secret.value)
            return CachedSecret(secret, limits.SECRET_KEPT_S)
        except NotStored as missing:
            self._absent.put(key, (self._clock.monotonic_s() + limits.ABSENT_KEPT_S, missing.near))
            raise

    def _own_credential(self, name: str, near: str) -> CredentialValue:
        variable, text = f"NOETL_CREDENTIAL_{name.upper()}", self._own.get(name.lower())
        if text is not None:
            return _value(text, variable)
        message = f"no credential named {name!r}: `noetl-stream credential set {name}` stores one"
        hint = f"; did you mean `{near}`?" if near else ""
        raise _credential_failure(f"{message}, or set {variable} for the worker{hint}")

    async def _hide(self, asker: Asker, name: str, secret: Secret) -> None:
        """Hides a secret in this process's logs and wherever the execution is shown, before a task gets it."""
        await asyncio.to_thread(self.redactor.learn, secret.value)
        if self._hiding is not None:
            await self._hiding.hide(asker, name, secret.value)

    async def _resolve_entry(self, asker: Asker, entry: KeychainPlan) -> tuple[Secret, Key | None]:
        if entry.kind in CREDENTIAL_KINDS:
            name = entry.settings.get("credential") or entry.name
            return await self.named_credential(asker, name, is_global=entry.settings.get("scope") == "global"), None
        secret, key = await self._read(asker, entry)
        await self._hide(asker, entry.name, secret)
        return secret, key

    async def _read(self, asker: Asker, entry: KeychainPlan) -> tuple[Secret, Key | None]:
        """Reads a secret that no server has: from a variable, a file, a token endpoint or a plugin."""
        settings = entry.settings
        if entry.kind == "env":
            return Secret(_environment(settings["variable"])), None
        if entry.kind == "file":
            return Secret(await asyncio.to_thread(_file, settings["path"], self._folders)), None
        written = json.dumps(dict(settings), sort_keys=True)
        if entry.kind == "oauth2_client_credentials":
            model = OauthSettings.model_validate(settings)
            key = (asker.digest, "token", written)
            return await self._cached_secret(key, lambda: self._fetch(asker, model)), key
        return await self._cached_secret((asker.execution_id, entry.kind, written), lambda: _from_plugin(entry)), None

    async def _fetch(self, asker: Asker, settings: OauthSettings) -> CachedSecret:
        name = settings.credential
        stored = None if name is None else await self.named_credential(asker, name)
        found: Any = {} if stored is None else stored.value
        if not isinstance(found, Mapping):
            found = {"client_secret": found}
        client_id = settings.client_id or found.get("client_id")
        client_secret = settings.client_secret or found.get("client_secret")
        if not isinstance(client_id, str) or not isinstance(client_secret, str):
            raise _credential_failure(f"credential {name!r} must hold client_id and client_secret as text")
        if self._http is None:
            raise _credential_failure("this worker has no tool of kind http to fetch a token with")
        await asyncio.to_thread(self.redactor.learn, client_secret)
        try:
            token = await fetch_token(self._http, settings, client_id, client_secret)
        except ToolFailure:
            if name is not None and stored is not None:  # it may have been replaced since
                self.drop(_stored_key(asker.execution_id, name), stored)
            raise
        lives_s = limits.UNKNOWN_LIFETIME_S if token.lives_s is None else token.lives_s
        expires_ms = None if token.lives_s is None else self._clock.now_ms() + int(lives_s * 1000)
        value = {"access_token": token.value, "token_type": token.type}
        secret = Secret(value, expires_ms=expires_ms, token=token.value)
        return CachedSecret(secret, lives_s - min(limits.TOKEN_MARGIN_S, lives_s / 10))


def _stored_key(owner: str, name: str) -> Key:
    return (owner, "stored", name)


def _environment(variable: str) -> CredentialValue:
    text = environment_variable(variable)
    if text is None:
        raise _credential_failure(f"the variable {variable} is not set for this worker")
    return _value(text, f"the variable {variable}")


def _file(path: str, folders: Sequence[Path]) -> CredentialValue:
    try:
        return _value(read_secret_file(path, folders, limits.MAX_SECRET_FILE_BYTES), path)
    except FileRefused as refused:
        raise _credential_failure(f"{path} {refused}") from None


def _value(text: str, what: str) -> CredentialValue:
    try:
        return credential_value(text, what)
    except PayloadRefused as error:
        raise _credential_failure(error.message) from None


async def _from_plugin(entry: KeychainPlan) -> CachedSecret:
    plugin = installed_kinds().plugins.get(entry.kind)
    if plugin is None:
        reason = installed_kinds().unusable.get(entry.kind, f"this worker has no keychain kind {entry.kind!r}")
        raise _credential_failure(reason)
    try:
        value = await plugin().resolve(installed_kinds().settings[entry.kind].model_validate(dict(entry.settings)))
    except (Exception, SystemExit) as error:  # a plugin may raise anything
        raise _credential_failure(f"kind {entry.kind!r}: {type(error).__name__}: {error}") from None
    if not isinstance(value, str | dict):
        raise _credential_failure(f"kind {entry.kind!r} returned neither text nor a mapping")
    what = f"the value from kind {entry.kind!r}"
    try:
        value = codec.decode_value(codec.encode(value))
    except PayloadRefused as error:
        raise _credential_failure(f"{what} is {error.message}") from None
    try:
        check_secrets(value, what)
    except PayloadRefused as error:
        raise _credential_failure(error.message) from None
    return CachedSecret(Secret(value), limits.SECRET_KEPT_S)


def _credential_failure(reason: str) -> ToolFailure:
    return ToolFailure.of("credential", reason)
