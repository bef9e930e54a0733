"""The gateways of a home: the token that opens them, and their addresses.

``gateway.token`` is an API token of an admin, made once. ``gateways/127.0.0.1:8080`` is locked for as long as a gateway
of this home listens there. Commands send the token only to such an address: another program may listen on other
addresses, or there at another time.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from noetl_stream.local.home import (
    PRIVATE_FOLDER_MODE,
    FileLock,
    exclusive_lock,
    make_folder,
    read_private,
    write_private,
)
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import LOCAL_NAME, TOKEN_TEXT, StoredToken, Tokens, hash_of, token_text

TOKEN_FILE: Final = "gateway.token"
TOKEN_LOCK: Final = "gateway-token.lock"
GATEWAYS: Final = "gateways"
MADE_BY: Final = "noetl-stream"
LOCK_WAIT_S: Final = 2.0
"""The wait for a gateway's lock: longer than a command holds it to check for a gateway."""

HOST_CHARACTERS: Final = 24
LOCALHOST: Final = ("127.0.0.1", "::1")


class LocalGateway(NamedTuple):
    """A running gateway of a home. ``url`` has its IP address, since a name may lead to another program."""

    url: str
    token: str


async def ensure_token(home: Path, tokens: Tokens, clock: Clock, *, is_shared: bool = False) -> str:
    """Returns the home's token, made if there is none, or if the present one was revoked.

    Args:
        is_shared: Whether other homes share the servers, whose tokens must stay.

    Raises:
        LocalStackError: the token's file can be read by other users.
        Unreachable: the database is away.
    """
    file = home / TOKEN_FILE
    with exclusive_lock(home / TOKEN_LOCK, "another gateway of this home is making its token and does not finish"):
        text = _read(file)
        if text is None or not await _opens(text, tokens, clock.now_ms()):
            name = (
                f"{LOCAL_NAME}-{socket.gethostname()[:HOST_CHARACTERS]}-{secrets.token_hex(3)}"
                if is_shared
                else LOCAL_NAME
            )
            text = await _make_token(name, tokens, clock)
            write_private(file, text + "\n")
        return text


@contextmanager
def announce_gateway(home: Path, url: str) -> Iterator[None]:
    """Announces a gateway of this home that listens at ``url`` to commands, during the block."""
    folder = home / GATEWAYS
    make_folder(folder, PRIVATE_FOLDER_MODE)
    with closing(FileLock(folder / urlsplit(url).netloc)) as lock:
        lock.try_exclusive_within(LOCK_WAIT_S)
        yield


def gateway_at(home: Path, url: str) -> LocalGateway | None:
    """Returns the gateway of this home that now listens at ``url``, if any.

    Raises:
        LocalStackError: the token can be read by other users.
    """
    parts = urlsplit(url)
    hosts = LOCALHOST if parts.hostname == "localhost" else (parts.hostname or "",)
    if parts.scheme != "http":
        return None
    for host in hosts:
        place = f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}"
        if _is_locked(home / GATEWAYS / place):
            token = _read(home / TOKEN_FILE)
            return None if token is None else LocalGateway(parts._replace(netloc=place).geturl(), token)
    return None


def gateways_of(home: Path) -> list[LocalGateway]:
    """Returns all running gateways of this home. Raises like :func:`gateway_at`."""
    folder = home / GATEWAYS
    places = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [found for place in places if (found := gateway_at(home, f"http://{place}")) is not None]


def _read(file: Path) -> str | None:
    try:
        return read_private(file).strip()
    except FileNotFoundError:
        return None


async def _opens(text: str, tokens: Tokens, now_ms: int) -> bool:
    spelt = TOKEN_TEXT.fullmatch(text)
    token = await tokens.get(spelt[1]) if spelt else None
    return spelt is not None and token is not None and token.holds(now_ms) and hash_of(spelt[2]) == token.secret_hash


async def _make_token(name: str, tokens: Tokens, clock: Clock) -> str:
    token_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    token = StoredToken(
        id=token_id,
        name=name,
        role="admin",
        paths=(),
        secret_hash=hash_of(secret),
        created_ms=clock.now_ms(),
        created_by=MADE_BY,
    )
    while not await tokens.add(token):  # the file of an older one is gone
        for old in await tokens.list_all():
            if old.name == name and old.revoked_ms is None:
                await tokens.revoke(old.id, clock.now_ms(), MADE_BY)
    return token_text(token_id, secret)


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with closing(FileLock(path)) as lock:
        return not lock.try_exclusive()
