"""Settings of keychain entries, and kinds added by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from noetl_stream.playbook.kinds.keychain import (
    CREDENTIAL_KINDS,
    GROUP,
    credential_name,
    installed_kinds,
    plain_text_secrets,
    read_kinds,
    secret_name,
)

OAUTH: dict[str, Any] = {"token_url": "https://a.example/token"}


class VaultSettings(BaseModel):
    path: str


class Vault:
    settings = VaultSettings

    async def resolve(self, settings: VaultSettings) -> str:
        return settings.path


class WithoutSettings:
    async def resolve(self, settings: Any) -> str:
        return ""


class WithoutResolve:
    settings = VaultSettings


def point(name: str, attribute: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{attribute}", GROUP)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("credential", {}),
        ("postgres_credential", {"credential": "pg"}),
        ("secret_manager", {"scope": "global"}),
        ("env", {"variable": "API_TOKEN"}),
        ("file", {"path": "/run/secrets/token"}),
        ("oauth2_client_credentials", OAUTH | {"client_id": "me", "client_secret": "hush"}),
        ("oauth2_client_credentials", OAUTH | {"credential": "client", "scopes": ["a"], "audience": "b"}),
        ("oauth2_client_credentials", OAUTH | {"credential": "c", "auth_method": "client_secret_post"}),
    ],
)
def test_valid_settings_are_taken(kind: str, settings: dict[str, Any]) -> None:
    valid = installed_kinds().settings[kind].model_validate(settings)
    assert valid.model_dump(mode="json", exclude_unset=True) == settings


@pytest.mark.parametrize(
    ("kind", "settings", "problem"),
    [
        ("credential", {"scope": "forever"}, "execution"),
        ("credential", {"variable": "X"}, "Extra inputs"),
        ("env", {}, "Field required"),
        ("env", {"variable": "A B"}, "pattern"),
        ("env", {"variable": "NOETL_POSTGRES_DSN"}, "must not start with NOETL_"),
        ("file", {"path": "token"}, "must be an absolute path"),
        ("oauth2_client_credentials", OAUTH, "exactly one of `client_secret` and `credential`"),
        ("oauth2_client_credentials", OAUTH | {"client_secret": "a", "credential": "b"}, "exactly one of"),
        ("oauth2_client_credentials", OAUTH | {"client_secret": "a"}, "`client_id` is missing"),
        ("oauth2_client_credentials", {"token_url": "ftp://a", "credential": "b"}, "pattern"),
        ("oauth2_client_credentials", OAUTH | {"credential": "b", "scopes": "a b"}, "list"),
    ],
)
def test_settings_that_make_no_credential_are_refused(kind: str, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        installed_kinds().settings[kind].model_validate(settings)


def test_kinds_are_added_by_entry_points() -> None:
    found = read_kinds([point("vault", "Vault")])
    assert found.settings["vault"] is VaultSettings
    assert found.plugins == {"vault": Vault}
    assert found.unusable == {}
    assert set(installed_kinds().settings) < set(found.settings)


@pytest.mark.parametrize(
    ("name", "attribute", "reason"),
    [
        ("env", "Vault", "a kind with this name already exists"),
        ("broken", "Nothing", "importing it raised AttributeError"),
        ("broken", "WithoutSettings", "no pydantic model as the attribute `settings`"),
        ("broken", "WithoutResolve", "no `async def resolve"),
    ],
)
def test_an_unusable_kind_is_skipped_with_the_reason(name: str, attribute: str, reason: str) -> None:
    found = read_kinds([point(name, attribute)])
    assert reason in found.unusable[name]
    assert found.plugins == {}
    assert set(found.settings) == set(installed_kinds().settings)


@pytest.mark.parametrize("kind", CREDENTIAL_KINDS)
def test_a_stored_credential_has_the_name_of_its_entry_unless_it_has_its_own(kind: str) -> None:
    assert credential_name("entry", kind, {}) == "entry"
    assert credential_name("entry", kind, {"credential": "other"}) == "other"


def test_other_kinds_need_a_stored_credential_only_if_they_name_one() -> None:
    assert credential_name("entry", "env", {"variable": "X"}) is None
    assert credential_name("entry", "oauth2_client_credentials", {"client_secret": "a"}) is None
    assert credential_name("entry", "oauth2_client_credentials", {"credential": "client"}) == "client"


def test_secrets_in_plain_text_are_named() -> None:
    assert plain_text_secrets({"client_secret": "a", "client_id": "b"}) == ("client_secret",)
    assert plain_text_secrets({"credential": "a"}) == ()


def test_a_secrets_task_reads_the_name_in_its_input_else_its_own() -> None:
    assert secret_name("task", {"auth": "pg"}) == "pg"
    assert secret_name("task", {"credential": None}) == "task"
