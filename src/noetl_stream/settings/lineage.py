"""The settings of the lineage receiver; part of :mod:`noetl_stream.settings.sources.environment`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_address, strip_logins

LINEAGE_VARIABLE: Final = "NOETL_OPENLINEAGE_URL"


class LineageSettings(msgspec.Struct, frozen=True, gc=False):
    """The URL to post run events to, without credentials, and the bearer token of the requests.

    ``written`` is the value of the variable.
    """

    url: str
    key: str = ""
    written: str = ""

    @property
    def shown(self) -> str:
        """The URL as messages show it."""
        return strip_logins(self.url)


def read_lineage(variable: str, given: Mapping[str, str]) -> LineageSettings | None:
    """Reads the settings of the lineage receiver; ``None`` if the variable is not set.

    Raises:
        UsageError: The value is not a URL. The message does not show it, since it may contain the token.
    """
    text = given.get(variable)
    if text is None:
        return None
    parts = split_address(text)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise UsageError(f"invalid address in {variable}", hint="use http://HOST:5000/api/v1/lineage")
    place = parts.netloc.rpartition("@")[2]
    return LineageSettings(parts._replace(netloc=place).geturl(), unquote(parts.password or parts.username or ""), text)
