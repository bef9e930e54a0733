"""The status address of a role, at which it answers probes and scrapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from noetl_stream.errors import UsageError

STATUS_VARIABLE: Final = "NOETL_STATUS_ADDRESS"

_ADDRESS: Final = r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})"


class StatusAddress(msgspec.Struct, frozen=True, gc=False):
    """The address at which a role answers probes. ``port`` 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_status_address(variable: str, given: Mapping[str, str]) -> StatusAddress | None:
    """Reads the status address, if the variable has a value.

    Raises:
        UsageError: it is not an address.
    """
    value = given.get(variable)
    if value is None:
        return None
    found = re.fullmatch(_ADDRESS, value)
    if found is None or int(found["port"]) > 65535:
        hint = "use HOST:PORT: 0.0.0.0:9464, [::]:9464"
        raise UsageError(f"invalid {variable} {value!r}", hint=hint)
    return StatusAddress(found["ipv6"] or found["host"], int(found["port"]))
