"""The kinds of keychain entries: what may be written beside ``name`` and ``kind`` (LANGUAGE §11).

Others come by the entry point group ``noetl_stream.keychain``: the entry point's name is the kind, its value a class
with the attribute ``settings``, a pydantic model, and ``async def resolve(self, settings)``, which runs on the worker
and gives the value: text, or a mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import iscoroutinefunction
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

GROUP: Final = "noetl_stream.keychain"
CREDENTIAL_KINDS: Final = ("credential", "postgres_credential", "secret_manager")
"""The encrypted store under each of its names."""

OWN_VARIABLES: Final = "NOETL_"

OPENING_KIND: Final = "secrets"
"""The kind of task that makes a credential readable in the rest of its pipeline."""

OPENING_INPUTS: Final = ("credential", "auth", "secret")
"""Its one input, under each of its names. It is a constant, so that ``check`` knows what can be read."""


class KeychainSettings(BaseModel):
    """Settings of an entry. They are constants: nothing of the keychain is rendered (LANGUAGE §2)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CredentialSettings(KeychainSettings):
    """``kind: credential``: a credential of the encrypted store."""

    credential: str | None = Field(
        default=None, min_length=1, description="Name of the stored credential; by default the entry's own name."
    )
    scope: Literal["execution", "global"] = Field(
        default="execution",
        description="Who shares the value a worker keeps: the tasks of one execution, or all executions.",
    )


class EnvSettings(KeychainSettings):
    """``kind: env``: an environment variable of the worker."""

    variable: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the variable.")

    @field_validator("variable")
    @classmethod
    def _not_ours(cls, variable: str) -> str:
        if variable.startswith(OWN_VARIABLES):
            raise ValueError(f"cannot be one of noetl-stream's own variables ({OWN_VARIABLES}…)")
        return variable


class FileSettings(KeychainSettings):
    """``kind: file``: a file on the worker's machine."""

    path: str = Field(description="The whole path of the file.")

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if not path.startswith("/") or "\0" in path:
            raise ValueError("must be a whole path, beginning with `/`: workers run in folders of their own")
        return path


class OauthSettings(KeychainSettings):
    """``kind: oauth2_client_credentials``: a token that the worker fetches for a client (RFC 6749 §4.4)."""

    token_url: str = Field(pattern=r"^https?://[^\s/]+", description="Where tokens are given out.")
    client_id: str | None = Field(
        default=None, min_length=1, description="The client; may stand in the credential instead."
    )
    client_secret: str | None = Field(
        default=None, min_length=1, description="Its secret in plain text. Better: `credential`."
    )
    credential: str | None = Field(
        default=None,
        min_length=1,
        description="Stored credential of the client: `{client_id, client_secret}`, or the secret as text.",
    )
    scopes: list[str] = Field(default_factory=list, description="What is asked for; all that is granted by default.")
    audience: str | None = Field(default=None, min_length=1, description="Whom the token is for, where that is asked.")
    auth_method: Literal["client_secret_basic", "client_secret_post"] = Field(
        default="client_secret_basic", description="Where the client's secret stands: in a header, or in the form."
    )

    @model_validator(mode="after")
    def _one_secret(self) -> OauthSettings:
        if (self.client_secret is None) == (self.credential is None):
            raise ValueError("give `client_secret` or `credential`, one of the two")
        if self.credential is None and self.client_id is None:
            raise ValueError("`client_id` is missing")
        return self


@dataclass(frozen=True, slots=True)
class InstalledKinds:
    """``settings`` models and ``plugins`` (classes) by kind, and why an installed kind cannot be used."""

    settings: Mapping[str, type[BaseModel]]
    plugins: Mapping[str, type[Any]]
    unusable: Mapping[str, str]


@cache
def keychain_kinds() -> Mapping[str, type[BaseModel]]:
    """The settings model of every kind that can be used here, by kind."""
    return installed_kinds().settings


@cache
def installed_kinds() -> InstalledKinds:
    """Every kind of this environment, looked up once."""
    return read_kinds(entry_points(group=GROUP))


def read_kinds(points: Iterable[EntryPoint]) -> InstalledKinds:
    """Our own kinds and those of ``points``. A plugin cannot take the name of a kind that is there."""
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
            reason = "there is another kind of that name"
        if reason is not None:
            unusable[point.name] = f"keychain kind {point.name!r} ({point.value}) cannot be used: {reason}"
            continue
        settings[point.name], plugins[point.name] = plugin.settings, plugin
    return InstalledKinds(settings, plugins, unusable)


def written_secrets(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys under which ``settings`` hold a secret in plain text, which is then stored with the playbook."""
    return tuple(key for key in ("client_secret",) if settings.get(key) is not None)


def stored_name(name: str, kind: str, settings: Mapping[str, Any]) -> str | None:
    """The stored credential that the entry ``name`` needs, if it is of a kind that needs one."""
    if kind in CREDENTIAL_KINDS:
        return str(settings.get("credential") or name)
    found = settings.get("credential") if kind == "oauth2_client_credentials" else None
    return None if found is None else str(found)


def opened_name(task: str, inputs: Mapping[str, Any]) -> str:
    """What a ``kind: secrets`` task makes readable as ``keychain.<name>``: what its input names, else its own name."""
    return str(next((inputs[word] for word in OPENING_INPUTS if inputs.get(word)), task))


def _load(point: EntryPoint) -> tuple[str | None, Any]:
    try:
        plugin = point.load()
    except (Exception, SystemExit) as error:  # a plugin's import may raise anything
        return f"importing it raised {type(error).__name__}: {str(error).partition(chr(10))[0]}", None
    model = getattr(plugin, "settings", None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return "its class has no pydantic model as the attribute `settings`", None
    if not iscoroutinefunction(getattr(plugin, "resolve", None)):
        return "its class has no `async def resolve(self, settings)`", None
    return None, plugin
