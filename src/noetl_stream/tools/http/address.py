"""URLs of ``kind: http``, which are sent as written (LANGUAGE §12 *http*).

A signature covers the bytes of a URL, so nothing is decoded, encoded again or reordered: only characters that a request
cannot contain are quoted.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urljoin, urlsplit

if TYPE_CHECKING:  # as in tool.py
    from yarl import URL

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_QUOTED: Final = re.compile(r'[^\x21-\x7e]+|["<>]+')


def written_url(url: str, params: list[tuple[str, str]] | None = None) -> str:
    """Returns the URL as it is sent, without its fragment; ``params`` follow its query.

    Raises:
        ValueError: the URL cannot be sent. The message shows no part of it, which may hold a password.
    """
    text = url.strip(" \t\r\n")
    if _CONTROL.search(text):
        raise ValueError("contains a line break or another control character")
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        raise ValueError("its host or port is not valid") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(sign.isspace() for sign in parts.netloc):
        raise ValueError("must start with http:// or https:// and have a host")
    path, query = _quote_unsafe(parts.path), _quote_unsafe(parts.query)
    if params:
        joint = "&" if query and not query.endswith("&") else ""
        query += joint + urlencode(params)
    return f"{parts.scheme}://{parts.netloc}{path or '/'}{'?' if query else ''}{query}"


def shown(url: str) -> str:
    """Returns a URL for messages: without user, password and query, which may hold a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def has_user(url: str) -> bool:
    """Returns whether the URL contains a user or a password."""
    parts = urlsplit(url)
    return bool(parts.username or parts.password)


def parse_url(url: str) -> URL:
    """Parses a URL of :func:`written` for the library.

    Raises:
        ValueError: the host is not valid.
    """
    from yarl import URL

    parts = urlsplit(url)
    origin = URL(f"{parts.scheme}://{parts.netloc}/")
    return URL.build(
        scheme=origin.scheme, authority=origin.raw_authority, path=parts.path, query_string=parts.query, encoded=True
    )


def redirect_url(url: str, location: bytes) -> str:
    """Returns the URL that the header ``Location`` of an answer from ``url`` leads to.

    Raises:
        ValueError: the URL is not of the web.
    """
    try:
        target = location.decode()
    except UnicodeDecodeError:
        target = quote(location, safe=string.punctuation)
    parts = urlsplit(url)
    if target.startswith("//"):
        target = f"{parts.scheme}:{target}"
    elif target.startswith("/"):
        target = f"{parts.scheme}://{parts.netloc}{target}"
    elif not urlsplit(target).scheme:
        target = urljoin(url, target)
    return written_url(target)


def _quote_unsafe(text: str) -> str:
    return _QUOTED.sub(lambda found: quote(found[0], safe=""), text)
