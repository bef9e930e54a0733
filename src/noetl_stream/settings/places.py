"""Places for the files of an operator: a folder, or object storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_address
from noetl_stream.settings.sources.variables import Given, words_of

OBJECTS_VARIABLE: Final = "NOETL_OBJECTS"
IN_NATS: Final = "nats"
SCHEMES: Final = ("s3", "gs", "az")
ENDPOINT_VARIABLES: Final = (
    *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    *("GOOGLE_BASE_URL", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
)
ENCRYPTION_VARIABLE: Final = "AWS_SERVER_SIDE_ENCRYPTION"
ENCRYPTION_DETAILS: Final = ("AWS_SSE_KMS_KEY_ID", "AWS_SSE_BUCKET_KEY_ENABLED", "AWS_SSE_CUSTOMER_KEY_BASE64")
"""The variables that say more about :data:`ENCRYPTION_VARIABLE`, and have no effect without it."""

CUSTOMER_KEYS: Final = {"s3": "AWS_SSE_CUSTOMER_KEY_BASE64", "az": "AZURE_STORAGE_ENCRYPTION_KEY"}
"""The variables, by scheme, for a key without which no object can be read."""

_SCHEME: Final = r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)"
_BUCKET: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}"
_PART: Final = r"(?!\.{1,2}$)[A-Za-z0-9!_.*'()=-]{1,255}"


class ObjectAddress(msgspec.Struct, frozen=True, gc=False):
    """The address of a bucket, or container, and the prefix of its objects' names. It contains no credentials."""

    scheme: str
    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


Place = Path | ObjectAddress


def read_place(name: str, text: str) -> Place:
    """Parses a folder, or an address such as ``s3://bucket/prefix``.

    Args:
        name: The name of the option or variable, for the error, which never shows the text: it may contain a password.

    Raises:
        UsageError: it is an address, but not one of object storage.
    """
    found = re.fullmatch(_SCHEME, text, re.DOTALL)
    if found is None:
        return Path(text)
    scheme, (bucket, *parts) = found[1], found[2].rstrip("/").split("/")
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in SCHEMES)
        raise UsageError(f"invalid {name}: no object storage has the scheme {scheme}://", hint=f"use {known}")
    if not re.fullmatch(_BUCKET, bucket) or not all(re.fullmatch(_PART, part) for part in parts):
        hint = "leave out credentials and endpoints: they come from the environment"
        raise UsageError(f"invalid {name}: it is not {scheme}://BUCKET/PREFIX", hint=hint)
    return ObjectAddress(scheme, bucket, "/".join(parts))


def read_object_places(variable: str, given: Given) -> tuple[Place | None, ...]:
    """Reads the places of objects, such as ``s3://bucket/prefix, nats``. Writes go to the first, reads try all.

    ``None`` is NATS, which is always included. The result is empty if NATS is the only place.

    Raises:
        UsageError: a place is invalid, or repeated.
    """
    found: list[Place | None] = []
    for text in words_of(variable, given):
        place = None if text == IN_NATS else _object_place(variable, text)
        if place in found:
            raise UsageError(f"{variable} names {text} twice", hint="name each place once, the one to write first")
        found.append(place)
    places = tuple(found if None in found else (*found, None))
    return () if places == (None,) else places


def _object_place(variable: str, text: str) -> Place:
    folder = text.removeprefix("file://")
    if folder != text and folder.startswith("/") and ".." not in Path(folder).parts:
        return Path(folder)
    place = read_place(variable, text) if folder == text else None
    if not isinstance(place, ObjectAddress):
        hint = f"use s3://BUCKET/PREFIX, gs://…, az://…, file:///FOLDER, or {IN_NATS}"
        raise UsageError(f"invalid {variable}: it names a place that cannot hold objects", hint=hint)
    return place


def shown_place(place: Place) -> str:
    """A place of objects, in the syntax of the variable."""
    return place.as_uri() if isinstance(place, Path) else str(place)


def read_endpoints(environ: Mapping[str, str]) -> list[str]:
    """Reads the addresses that replace those of the services.

    Raises:
        UsageError: one is not an address, or holds a login.
    """
    found = {name: environ[name] for name in ENDPOINT_VARIABLES if environ.get(name)}
    for name, text in found.items():
        url = split_address(text)
        if url is None or url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
            raise UsageError(f"{name} is not the address of a server", hint="write https://HOST:PORT")
    return list(found.values())


def read_encryption(scheme: str, environ: Mapping[str, str]) -> list[str]:
    """The variables in an environment that say how this storage encrypts what is written.

    Raises:
        UsageError: one has no effect.
    """
    names = (ENCRYPTION_VARIABLE, *ENCRYPTION_DETAILS) if scheme == "s3" else (CUSTOMER_KEYS.get(scheme, ""),)
    found = [name for name in names if environ.get(name)]
    if scheme == "s3" and found and found[0] != ENCRYPTION_VARIABLE:
        hint = "set that to AES256, aws:kms, aws:kms:dsse or sse-c"
        raise UsageError(f"{found[0]} has no effect without {ENCRYPTION_VARIABLE}", hint=hint)
    return found
