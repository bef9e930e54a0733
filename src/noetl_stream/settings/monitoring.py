"""The receivers of what a process tells: its status address, the receiver of spans, by the variables of OpenTelemetry
(https://opentelemetry.io/docs/specs/otel/protocol/exporter/), and that of lineage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_address, strip_logins
from noetl_stream.settings.sources.variables import number

PREFIX: Final = "OTEL_"
TRACES_VARIABLE: Final = "OTEL_<NAME>"
HEADERS_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""The variables that may contain the key of a collector, which playbooks must not read."""

PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP_PROTOBUF: Final = "http/protobuf"
QUEUE_VARIABLE: Final = "OTEL_BSP_MAX_QUEUE_SIZE"
DEFAULT_QUEUE: Final = 2048
MAX_QUEUE: Final = 1_000_000


class TraceSettings(msgspec.Struct, frozen=True, gc=False):
    """The settings of traces.

    Attributes:
        endpoint: The URL that spans are posted to.
        headers: The headers sent with them, as written: ``key=value,key=value``.
        max_queue: The most waiting spans of a process.
    """

    endpoint: str
    headers: str
    max_queue: int

    def variables(self) -> dict[str, str]:
        """The variables that a child process with these settings lacks."""
        return {HEADERS_VARIABLES[0]: self.headers} if self.headers else {}


def read_traces(_variable: str, given: Mapping[str, str]) -> TraceSettings | None:
    """Reads the settings of traces; ``None`` without an endpoint, or if another variable switches traces off. The SDK
    reads the other variables.

    Raises:
        UsageError: a value is invalid.
    """
    endpoint = _endpoint(given)
    is_off = given.get("OTEL_SDK_DISABLED", "").lower() == "true" or given.get("OTEL_TRACES_EXPORTER") == "none"
    if endpoint is None or is_off:
        return None
    for variable in PROTOCOLS:
        if given.get(variable, HTTP_PROTOBUF) != HTTP_PROTOBUF:
            raise UsageError(f"{variable} {given[variable]!r} is not there", hint=f"use {HTTP_PROTOBUF}")
    queue = number(DEFAULT_QUEUE, MAX_QUEUE)(QUEUE_VARIABLE, given)
    headers = next((given[name] for name in HEADERS_VARIABLES if name in given), "")
    return TraceSettings(endpoint, headers, queue)


def _endpoint(given: Mapping[str, str]) -> str | None:
    for variable, path in (("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", "/v1/traces")):
        if (url := given.get(variable)) is None:
            continue
        parts = split_address(url)
        if parts is None or parts.scheme not in ("http", "https"):
            hint = "use http://HOST:4318, where a collector takes OTLP"
            raise UsageError(f"invalid address in {variable}", hint=hint)
        return url.rstrip("/") + path if path else url
    return None


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
