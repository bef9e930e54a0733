"""What may be shown of a connection string: everything but secrets."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from noetl_stream.errors import UsageError


def shown_address(dsn: str) -> str:
    """``dsn`` for people and logs, without its password.

    Raises:
        UsageError: if it is no Postgres URL. The message does not repeat it: it may hold a password.
    """
    hint = "write postgresql://user:password@host:5432/database"
    try:
        parts = urlsplit(dsn)
        place = parts.hostname or ""
        if ":" in place:
            place = f"[{place}]"
        if parts.port is not None:
            place += f":{parts.port}"
    except ValueError:
        raise UsageError("the Postgres address is not a URL", hint=hint) from None
    if parts.scheme not in ("postgres", "postgresql"):
        raise UsageError("the Postgres address does not begin with postgresql://", hint=hint)
    if not place:
        options = parse_qs(parts.query)
        place = ":".join(options.get("host", []) + options.get("port", [])) or "localhost"
    user = f"{parts.username}@" if parts.username else ""
    return f"postgresql://{user}{place}{parts.path}"
