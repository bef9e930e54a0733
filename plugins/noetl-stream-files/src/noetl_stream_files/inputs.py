"""The inputs of ``files``: each operation is a key of its own, so that `check` knows its inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AliasChoices, Field

from noetl_stream.tools.inputs import Auth, Inputs, Knobs, auth_field
from noetl_stream_files.places import MAX_PATTERN_CHARACTERS, AnyPlace, FilePlace

MAX_LISTED: Final = 10_000
MAX_DELETED: Final = 1_000
_DEFAULT_LATE_S: Final = 900.0


def _operation(key: str, description: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(key), description=description)


def _not_empty(value: Any) -> Any:
    if isinstance(value, list) and not value:
        raise ValueError("names no file")
    return value


class FilesInputs(Inputs):
    """Inputs of ``files``: exactly one operation, named by its key, with what belongs to it."""

    listed: AnyPlace | None = _operation("list", "List the files below this place.")
    asked: FilePlace | None = _operation("stat", "Ask for this file.")
    copied: FilePlace | dict[str, Any] | None = _operation("copy", "Copy this file, or the file of a reference.")
    moved: FilePlace | None = _operation("move", "Copy this file, then delete it.")
    deleted: (
        FilePlace | Annotated[list[FilePlace], Field(max_length=MAX_DELETED), AfterValidator(_not_empty)] | None
    ) = _operation("delete", "Delete this file, or these.")
    synced: AnyPlace | None = _operation("sync", "Copy the files below this place which `to` lacks or has older.")
    marked: FilePlace | None = _operation("mark", "Write the marker of `list` with `arrived` into this file.")
    to: AnyPlace | None = Field(default=None, description="Where to copy to. `copy` and `move` take a file.")
    into: Literal["file"] | None = Field(default=None, description="`file`: `copy` stores a file, and returns it.")
    condition: Annotated[str, Field(min_length=1, max_length=300)] | None = Field(
        default=None,
        validation_alias=AliasChoices("if"),
        description="`absent`, or the `etag` that the file of `to` must have; otherwise `conflict`.",
    )
    media_type: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Media type of the copy. Default: that of the source."
    )
    pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARACTERS)] | None = Field(
        default=None, description="Names to take, as `*.csv` or `2026/**/*.csv`."
    )
    limit: int = Field(default=1_000, ge=1, le=MAX_LISTED, description="The most files that `list` returns.")
    after: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="`next` of the page before; the list goes on behind it."
    )
    arrived: FilePlace | None = Field(
        default=None, description="The file of a marker: list what was written since it, in the order of that."
    )
    late_s: float = Field(
        default=_DEFAULT_LATE_S,
        ge=0,
        le=86_400,
        description="How much later than its time a file may become visible.",
    )
    marker: Mapping[str, Any] | None = Field(default=None, description="The `marker` of a list with `arrived`.")
    missing: Literal["ignore", "fail"] = Field(default="ignore", description="`fail`: to delete nothing is an error.")
    extra: Literal["keep", "delete"] = Field(
        default="keep", description="`delete`: `sync` deletes the files of `to` that the source lacks."
    )
    auth: Auth | None = auth_field(None, "Name of a credential, or the words of the storage as a mapping.")
    to_auth: Auth | None = Field(default=None, description="That of `to`. Default: `auth`.")
    marker_auth: Auth | None = Field(default=None, description="That of `arrived`. Default: `auth`.")


class FilesKnobs(Knobs):
    """``files`` has no knobs."""


OPERATIONS: Final[Mapping[str, tuple[str, frozenset[str], frozenset[str]]]] = {
    "listed": ("list", frozenset(), frozenset({"pattern", "limit", "after", "arrived", "late_s", "marker_auth"})),
    "asked": ("stat", frozenset(), frozenset()),
    "copied": ("copy", frozenset(), frozenset({"to", "into", "condition", "media_type", "to_auth"})),
    "moved": ("move", frozenset({"to"}), frozenset({"condition", "media_type", "to_auth"})),
    "deleted": ("delete", frozenset(), frozenset({"missing"})),
    "synced": ("sync", frozenset({"to"}), frozenset({"pattern", "extra", "to_auth"})),
    "marked": ("mark", frozenset({"marker"}), frozenset()),
}
"""Per field of an operation: its key, its required inputs, and its optional ones."""


_KEYS: Final = {"condition": "if"}


def combination_error(given: Collection[str]) -> str | None:
    """The error of inputs, by their fields, that cannot be combined; ``None`` if they can."""
    chosen = [field for field in OPERATIONS if field in given]
    if len(chosen) != 1:
        keys = ", ".join(f"`{key}`" for key, _, _ in OPERATIONS.values())
        return f"`files` needs exactly one operation: {keys}"
    key, needed, taken = OPERATIONS[chosen[0]]
    if missing := sorted(needed - set(given)):
        return f"`{key}` needs `{missing[0]}`"
    if other := sorted(set(given) - needed - taken - {chosen[0], "auth"}):
        return f"`{_KEYS.get(other[0], other[0])}` does not go with `{key}`"
    if key == "copy" and ("to" in given) == ("into" in given):
        return "`copy` needs either `to` or `into: file`"
    if "into" in given and "condition" in given:
        return "`if` goes with `to`; a stored file is never replaced"
    if "arrived" not in given and (beside := {"late_s", "marker_auth"} & set(given)):
        return f"`{min(beside)}` goes with `arrived`"
    return "`arrived` has an order of its own; remove `after`" if {"arrived", "after"} <= set(given) else None
