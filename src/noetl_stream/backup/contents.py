"""The rights in a backup: who could do what after its restore."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from noetl_stream.backup.reader import BackupReader
from noetl_stream.model.aggregates.schedules import SCHEDULE
from noetl_stream.model.aggregates.triggers import TRIGGER
from noetl_stream.model.envelope import iso_or_none
from noetl_stream.model.rights import ROLES
from noetl_stream.ports.backup import TableShape

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)')
_NULL: Final = r"\N"


class BroughtToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """An API token. It opens the gateway as ``role`` for ``paths``, or all paths if empty, unless it is ``revoked``."""

    name: str
    role: str
    paths: list[str]
    created_by: str
    expires: str | None = None
    revoked: str | None = None


class BroughtCredential(msgspec.Struct, frozen=True):
    """A stored credential, which its key opens."""

    name: str
    kind: str


class BroughtStarter(msgspec.Struct, frozen=True):
    """A schedule or trigger, which starts ``playbook`` by itself, with the rights of ``by``."""

    kind: str
    path: str
    playbook: str
    by: str


class BroughtGrants(msgspec.Struct, frozen=True):
    """The latest registered grants as text: in force where there is no file of an operator."""

    revision: int
    source: str
    registered_by: str


class BroughtRights(msgspec.Struct, frozen=True):
    """The rights in a backup. ``sessions`` counts signed-in browsers, ``playbooks`` registered ones."""

    tokens: list[BroughtToken]
    sessions: int
    credentials: list[BroughtCredential]
    starters: list[BroughtStarter]
    playbooks: list[str]
    grants: BroughtGrants | None


class _Terms(msgspec.Struct):
    playbook: str = ""


class _StarterState(msgspec.Struct):
    terms: _Terms = msgspec.field(default_factory=_Terms)
    by: str = ""


def rights_of(backup: BackupReader) -> BroughtRights:
    """Returns the rights in a trusted backup, the most powerful tokens first.

    Raises:
        UsageError: it cannot be read.
    """
    tokens = [_token(row) for row in _rows(backup, "api_token")]
    starters = [_starter(row) for row in _rows(backup, "aggregate") if row["kind"] in (SCHEDULE, TRIGGER)]
    return BroughtRights(
        tokens=sorted(tokens, key=lambda one: (one.revoked is not None, -_rank(one.role), one.name)),
        sessions=sum(1 for _ in _rows(backup, "browser_session")),
        credentials=[BroughtCredential(_text(row["name"]), _text(row["kind"])) for row in _rows(backup, "credential")],
        starters=sorted(starters, key=lambda one: (one.kind, one.path)),
        playbooks=sorted({_text(row["path"]) for row in _rows(backup, "catalog")}),
        grants=max(map(_grants, _rows(backup, "grant_revision")), key=lambda one: one.revision, default=None),
    )


def _token(row: dict[str, str]) -> BroughtToken:
    return BroughtToken(
        name=_text(row["name"]),
        role=_text(row["role"]),
        paths=[_ESCAPED.sub(r"\1", quoted) or plain for quoted, plain in _ELEMENT.findall(_text(row["paths"]))],
        created_by=_text(row["created_by"]),
        expires=iso_or_none(_number(row["expires_ms"])),
        revoked=iso_or_none(_number(row["revoked_ms"])),
    )


def _starter(row: dict[str, str]) -> BroughtStarter:
    state = msgspec.json.decode(_text(row["state"]), type=_StarterState)
    return BroughtStarter(row["kind"].lower(), _text(row["key"]), state.terms.playbook, state.by)


def _grants(row: dict[str, str]) -> BroughtGrants:
    return BroughtGrants(int(row["revision"]), _text(row["source"]), _text(row["registered_by"]))


def _rank(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


def _rows(backup: BackupReader, name: str) -> Iterator[dict[str, str]]:
    """Yields the rows of a table, if the backup has it, in the text form of Postgres."""
    for table in backup.manifest.database.tables:
        if table.name == name:
            yield from _rows_of(backup, table)


def _rows_of(backup: BackupReader, table: TableShape) -> Iterator[dict[str, str]]:
    rest = b""
    for piece in backup.pieces(table):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield dict(zip(table.columns, line.decode().split("\t"), strict=True))


def _text(column: str) -> str:
    """Returns the text of a column in Postgres's text format."""
    return "" if column == _NULL else _ESCAPED.sub(lambda found: _LETTERS.get(found[1], found[1]), column)


def _number(column: str) -> int | None:
    return None if column == _NULL else int(column)
