"""URLs and DSNs from outside: splitting them, and showing them without their secrets."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_BETWEEN_URLS: Final = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9+.-]*://)")
_QUERY: Final = re.compile("[?#].*", re.DOTALL)


def split_url(text: str) -> SplitResult | None:
    """The parts of a URL, which may name several hosts; ``None`` if it is not a URL.

    The errors of the library quote the invalid part, which may be a part of the password.
    """
    try:
        return urlsplit(text)
    except ValueError:
        return None


def split_address(text: str) -> SplitResult | None:
    """The parts of the URL of one server; ``None`` if it is not a URL, or its port is not a number."""
    parts = split_url(text)
    try:
        _ = parts and parts.port
    except ValueError:
        return None
    return parts


def redact_urls(urls: str) -> str:
    """Redacts the passwords and tokens of a URL, or of several with commas between: ``nats://ann:***@host``.

    Everything before the last ``@`` counts as user and password: an unencoded password may contain any character.
    """
    return ",".join(map(_without_secrets, _BETWEEN_URLS.split(urls)))


def strip_logins(urls: str) -> str:
    """Strips users, passwords, queries and fragments from a URL, or from several with commas between."""
    return ",".join(f"{scheme}{place}" for scheme, _, place in map(_login_of, _BETWEEN_URLS.split(urls)))


def _without_secrets(url: str) -> str:
    scheme, login, place = _login_of(url)
    if login is None:
        return f"{scheme}{place}"
    user, colon, _ = login.partition(":")
    return f"{scheme}{user}:***@{place}" if colon else f"{scheme}***@{place}"


def _login_of(url: str) -> tuple[str, str | None, str]:
    """The scheme, the user and password if any, and the host and path, without query and fragment."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator:
        scheme, rest = "", scheme
    login, at, place = rest.rpartition("@")
    return scheme + separator, login if at else None, _QUERY.sub("", place)
