"""What the input ``auth`` stands for: a named credential, or a mapping rendered in place (LANGUAGE §11)."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.contract import ToolCall, ToolFailure

AUTH_ALIASES = AliasChoices("auth", "credential")

Auth = str | dict[str, Any]


def auth_field(default: Any, description: str) -> Any:
    """The field ``auth`` of an input model, with its synonym ``credential``."""
    return Field(default=default, validation_alias=AUTH_ALIASES, description=description)


async def credential_of(call: ToolCall, auth: Auth) -> str | dict[str, Any]:
    """The credential ``auth`` names, or ``auth`` itself if it is a mapping.

    Raises:
        ToolFailure: kind ``credential``, if there is none of that name.
    """
    return await call.credential(auth) if isinstance(auth, str) else auth


def bad_credential(auth: Auth, reason: str) -> ToolFailure:
    """The failure of a credential that cannot be used. Never shows its value."""
    name = f"credential {auth!r}" if isinstance(auth, str) else "auth"
    return ToolFailure(ErrorInfo(kind="credential", message=f"{name}: {reason}"))


def text_entry(auth: Auth, credential: dict[str, Any], key: str) -> str | None:
    """The entry ``key`` as text; ``None`` if it is missing.

    Raises:
        ToolFailure: kind ``credential``, if it is something else.
    """
    value = credential.get(key)
    if value is None or isinstance(value, str):
        return value
    raise bad_credential(auth, f"{key} must be text")
