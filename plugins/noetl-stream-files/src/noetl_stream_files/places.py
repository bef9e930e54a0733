"""Places of files: ``s3://``, ``gs://``, ``az://``, ``sftp://`` and ``file://``, as tasks write them.

Nothing in a place is decoded: the name of an object may contain any character, including ``%``, ``?`` and ``#``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, Field

MAX_PLACE_CHARACTERS: Final = 2_048
MAX_PATTERN_CHARACTERS: Final = 200

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(:[1-9][0-9]{0,4})?")
_CLOUDS: Final = ("s3", "gs", "az")


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or the files below a folder or a prefix that ends in ``/``.

    Attributes:
        bucket: The bucket, the container, or the host and its port; empty for ``file://``.
        path: The path in it without a ``/`` at its ends; for ``file://`` that of the machine, without the first one.
    """

    scheme: str
    bucket: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}"

    def below(self, path: str) -> Place:
        """The place of ``path`` below this one."""
        return Place(self.scheme, self.bucket, f"{self.path}/{path}".strip("/"))

    def relative(self, path: str) -> str:
        """The part of ``path``, which lies below this place, after the place."""
        return path[len(self.path) :].lstrip("/") if self.path else path


def read_place(text: str) -> Place:
    """Reads a place.

    Raises:
        ValueError: It is none.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in (*_CLOUDS, "sftp", "file"):
        raise ValueError("must begin with s3://, gs://, az://, sftp:// or file://")
    bucket, _, path = rest.partition("/")
    if "@" in bucket:
        raise ValueError("must not contain a user or password, which logs would show; use auth")
    if scheme == "file" and bucket:
        raise ValueError("must be file:/// and an absolute path")
    if scheme == "sftp" and not _HOST.fullmatch(bucket):
        raise ValueError("must name a host, as in sftp://files.example.com/folder/name, or with :port")
    if scheme in _CLOUDS and not _BUCKET.fullmatch(bucket):
        raise ValueError(f"must name a bucket, as in {scheme}://bucket/folder/name")
    path = path.rstrip("/")
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") for part in parts) or not path.isprintable():
        raise ValueError("must have no empty part, no `.` or `..` and no control character in its path")
    return Place(scheme, bucket, path)


def _place(text: str) -> str:
    read_place(text)
    return text


def _file(text: str) -> str:
    if not read_place(text).path or text.endswith("/"):
        raise ValueError("must name one file, not a folder or a bucket")
    return text


AnyPlace = Annotated[str, Field(max_length=MAX_PLACE_CHARACTERS), AfterValidator(_place)]
FilePlace = Annotated[str, Field(max_length=MAX_PLACE_CHARACTERS), AfterValidator(_file)]


def is_match(pattern: str, path: str) -> bool:
    """Whether a relative path matches a pattern. A pattern without ``/`` matches the last part; ``**`` matches any
    parts.
    """
    parts: Sequence[str] = path.split("/")
    if "/" not in pattern:
        return pattern == "**" or fnmatchcase(parts[-1], pattern)
    reached = {0}
    for wanted in pattern.split("/"):
        if wanted == "**":
            reached = set(range(min(reached), len(parts) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatchcase(parts[at], wanted)}
    return len(parts) in reached
