"""The documents of a table view: columns, value counts and first rows."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from noetl_stream.ports.operations.verbs import Default, Document, Without
from noetl_stream.sealing.data_references import DataReference

MAX_ROWS: Final = 100
DEFAULT_ROWS: Final = 20
MAX_COLUMNS: Final = 100

TableReference = Annotated[DataReference, Without("name"), Without("media_type"), Without("columns")]
RowLimit = Annotated[
    int,
    Default(DEFAULT_ROWS),
    Meta(ge=0, le=MAX_ROWS, description="Maximum number of first rows; fewer of many columns."),
]


class ValueCountDocument(Document, frozen=True):
    """How many of the rows that were read have a value from `low` to `high`; they are the same where values are counted
    each by itself.
    """

    low: str
    high: str
    rows: int


class TableColumnDocument(Document, frozen=True):
    """A column. `nulls`, `low` and `high` are of all rows if `whole` is true, else of those that were read; null where
    they are not known. `counts` are at most 20.
    """

    column: str
    type: str
    nulls: int | None
    low: str | None
    high: str | None
    whole: bool
    counts: list[ValueCountDocument]


class StoredTableDocument(Document, frozen=True):
    """A table. `rows_read` are the rows that `counts` are of. `first_rows` are texts, of which long ones are cut.
    `columns_left_out` are behind the last one. `note` says what is not known, and why.
    """

    execution_id: str
    rows: int
    rows_read: int
    columns: list[TableColumnDocument]
    columns_left_out: int
    first_rows: list[list[str | None]]
    note: str
