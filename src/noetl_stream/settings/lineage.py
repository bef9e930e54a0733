"""Who is told lineage; part of :mod:`noetl_stream.settings.sources.environment`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_address, strip_logins

LINEAGE_VARIABLE: Final = "NOETL_OPENLINEAGE_URL"


class LineageSettings(msgspec.Struct, frozen=True, gc=False):
    """The URL that run events are posted to, without its login, and the bearer token that is sent with them.

    ``written`` is what the variable says.
    """

    url: str
    key: str = ""
    written: str = ""

    @property
    def shown(self) -> str:
        """The address for messages."""
        return strip_logins(self.url)


def read_lineage(variable: str, given: Mapping[str, str]) -> LineageSettings | None:
    """Reads who is told lineage, if the variable has a value.

    Raises:
        UsageError: It is no URL. The message shows no part of it, which may hold the token.
    """
    text = given.get(variable)
    if text is None:
        return None
    parts = split_address(text)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise UsageError(f"invalid address in {variable}", hint="use http://HOST:5000/api/v1/lineage")
    place = parts.netloc.rpartition("@")[2]
    return LineageSettings(parts._replace(netloc=place).geturl(), unquote(parts.password or parts.username or ""), text)
