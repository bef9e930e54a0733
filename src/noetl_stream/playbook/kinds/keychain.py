"""Kinds of keychain entries and their settings (LANGUAGE §11).

Plugins add kinds through the entry point group ``noetl_stream.keychain``. The entry point's name is the kind; its
value is a class with an attribute ``settings``, a pydantic model, and ``async def resolve(self, settings)``, which runs
on the worker and returns the value: text or a mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import iscoroutinefunction
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from noetl_stream.model.secrets.credential import CREDENTIAL_NAME, NOT_A_NAME

GROUP: Final = "noetl_stream.keychain"
CREDENTIAL_KINDS: Final = ("credential", "postgres_credential", "secret_manager")
"""The kinds of the encrypted credential store."""

RESERVED_PREFIX: Final = "NOETL_"
"""The prefix of the program's own environment variables, which playbooks cannot read."""

MAX_PATH_CHARACTERS: Final = 4_096

SECRETS_KIND: Final = "secrets"
"""The task kind that makes a credential readable in the rest of its pipeline."""

SECRETS_INPUTS: Final = ("credential", "auth", "secret")
"""The names of the only input of ``secrets``, a constant so that ``check`` knows which secrets can be read."""

Value = TypeVar("Value")


def check_credential_name(value: Value) -> Value:
    """Returns ``value``; raises an error of type ``credential``, without the value, if it cannot be a credential's
    name.
    """
    if isinstance(value, str) and CREDENTIAL_NAME.fullmatch(value) is None:
        raise PydanticCustomError("credential", NOT_A_NAME)
    return value


CredentialName = Annotated[
    str, AfterValidator(check_credential_name), Field(json_schema_extra={"pattern": f"^{CREDENTIAL_NAME.pattern}$"})
]


class KeychainSettings(BaseModel):
    """Settings of an entry: constants, since the keychain is never rendered (LANGUAGE §2)."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


class CredentialSettings(KeychainSettings):
    """``kind: credential``: a credential of the encrypted store."""

    credential: CredentialName | None = Field(
        default=None, description="Name of the stored credential. Default: the entry's name."
    )
    scope: Literal["execution", "global"] = Field(
        default="execution",
        description="Who shares the value that a worker caches: one execution, or all executions of the playbook.",
    )


class EnvSettings(KeychainSettings):
    """``kind: env``: an environment variable of the worker."""

    variable: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the variable.")

    @field_validator("variable")
    @classmethod
    def _check_reserved(cls, variable: str) -> str:
        if variable.startswith(RESERVED_PREFIX):
            raise ValueError(f"must not start with {RESERVED_PREFIX}, which is reserved for noetl-stream")
        return variable


class FileSettings(KeychainSettings):
    """``kind: file``: a file on the worker's machine, below a folder that the operator names."""

    path: str = Field(max_length=MAX_PATH_CHARACTERS, description="Absolute path of the file.")

    @field_validator("path")
    @classmethod
    def _check_absolute(cls, path: str) -> str:
        if not path.startswith("/") or "\0" in path:
            raise ValueError("must be an absolute path: each worker runs in its own folder")
        return path


class OauthSettings(KeychainSettings):
    """``kind: oauth2_client_credentials``: a token that the worker requests for a client (RFC 6749 §4.4)."""

    token_url: str = Field(pattern=r"^https?://[^\s/]+", description="URL of the token endpoint.")
    client_id: str | None = Field(default=None, min_length=1, description="Client id, unless the credential holds it.")
    client_secret: str | None = Field(
        default=None, min_length=1, description="Client secret in plain text. Prefer `credential`."
    )
    credential: CredentialName | None = Field(
        default=None,
        description="Stored credential: `{client_id, client_secret}`, or the secret as text.",
    )
    scopes: list[str] = Field(
        default_factory=list, description="Scopes to request. Default: the scopes that the server chooses."
    )
    audience: str | None = Field(
        default=None, min_length=1, description="Audience of the token, if the server requires one."
    )
    auth_method: Literal["client_secret_basic", "client_secret_post"] = Field(
        default="client_secret_basic", description="Whether to send the client secret in a header or in the form."
    )

    @model_validator(mode="after")
    def _check_secrets(self) -> OauthSettings:
        if (self.client_secret is None) == (self.credential is None):
            raise ValueError("give exactly one of `client_secret` and `credential`")
        if self.credential is None and self.client_id is None:
            raise ValueError("`client_id` is missing")
        return self


class InstalledKinds(msgspec.Struct, frozen=True):
    """The installed keychain kinds: ``settings`` models and plugin classes by kind; ``unusable`` has the reasons why
    installed kinds cannot be used.
    """

    settings: Mapping[str, type[BaseModel]]
    plugins: Mapping[str, type[Any]]
    unusable: Mapping[str, str]


@cache
def installed_kinds() -> InstalledKinds:
    """The keychain kinds installed in this environment, looked up once."""
    return read_kinds(entry_points(group=GROUP))


def read_kinds(points: Iterable[EntryPoint]) -> InstalledKinds:
    """The built-in keychain kinds and those of ``points``. A plugin cannot replace an existing kind."""
    settings: dict[str, type[BaseModel]] = {
        **dict.fromkeys(CREDENTIAL_KINDS, CredentialSettings),
        "env": EnvSettings,
        "file": FileSettings,
        "oauth2_client_credentials": OauthSettings,
    }
    plugins: dict[str, type[Any]] = {}
    unusable: dict[str, str] = {}
    for point in points:
        reason, plugin = _load(point)
        if point.name in settings:
            reason = "a kind with this name already exists"
        if reason is not None:
            unusable[point.name] = f"keychain kind {point.name!r} ({point.value}) cannot be used: {reason}"
            continue
        settings[point.name], plugins[point.name] = plugin.settings, plugin
    return InstalledKinds(settings, plugins, unusable)


def plain_text_secrets(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of ``settings`` that hold a secret in plain text, stored with the playbook."""
    return tuple(key for key in ("client_secret",) if settings.get(key) is not None)


def credential_name(name: str, kind: str, settings: Mapping[str, Any]) -> str | None:
    """The stored credential that the entry ``name`` needs; ``None`` if its kind needs none."""
    if kind in CREDENTIAL_KINDS:
        return str(settings.get("credential") or name)
    found = settings.get("credential") if kind == "oauth2_client_credentials" else None
    return None if found is None else str(found)


def secret_name(task: str, inputs: Mapping[str, Any]) -> str:
    """The ``keychain`` name that a ``kind: secrets`` task makes readable: its input, or the task's own name."""
    return str(next((inputs[word] for word in SECRETS_INPUTS if inputs.get(word)), task))


def _load(point: EntryPoint) -> tuple[str | None, Any]:
    try:
        plugin = point.load()
    except (Exception, SystemExit) as error:  # importing a plugin may raise anything
        return f"importing it raised {type(error).__name__}: {str(error).partition(chr(10))[0]}", None
    model = getattr(plugin, "settings", None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return "its class has no pydantic model as the attribute `settings`", None
    if not iscoroutinefunction(getattr(plugin, "resolve", None)):
        return "its class has no `async def resolve(self, settings)`", None
    return None, plugin
