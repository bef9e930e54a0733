"""Rows of a query as a file: ``into`` of a DuckDB task, and input for Postgres' ``COPY``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetl_stream.tools.duckdb.copies import NULL
from noetl_stream.tools.duckdb.job import Written
from noetl_stream.tools.duckdb.tables import quote_identifier, quote_text

_OPTIONS: Final[Mapping[Written, str]] = {
    "parquet": "format parquet, compression zstd",
    "csv": "format csv, header true",
    "json": "format json, array true",
    "ndjson": "format json, array false",
    "copy": f"format csv, header false, nullstr {quote_text(NULL)}",
}
_INTEGERS: Final = "DECIMAL(38,0)"
_STORED: Final[Mapping[str, str]] = {"hugeint": _INTEGERS, "uhugeint": _INTEGERS, "interval": "VARCHAR"}
"""The types in place of those that Parquet would round, by DuckDB's name of them."""
_BEFORE_CHRIST: Final = (
    "case when contains({0}::varchar, '(BC)') "
    r"then regexp_replace({0}::varchar, '^(\S+) \(BC\)(.*)$', '\1\2 BC') else {0}::varchar end"
)
_OF_POSTGRES: Final[Mapping[str, str]] = {
    **dict.fromkeys(["date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"], _BEFORE_CHRIST),
    "timestamp with time zone": _BEFORE_CHRIST,
    "blob": "'\\x' || lower(hex({}))",
    **dict.fromkeys(["struct", "tuple", "map", "union", "variant"], "to_json({})::varchar"),
}
"""The text that Postgres reads for a value, by its type."""


def copy_statement(query: str, columns: Sequence[tuple[str, Any]], into: Written, file: str) -> str:
    """Returns the statement that writes the rows of a query to a file.

    Args:
        columns: Their names, and their types as DuckDB's library describes them.
    """
    selected = ", ".join(
        f"{_value(quote_identifier(name), kind, into)} as {quote_identifier(name)}" for name, kind in columns
    )
    return f"copy (select {selected} from ({query}\n)) to {quote_text(file)} ({_options(into, len(columns))})"


def _options(into: Written, columns: int) -> str:
    # A line that is nothing but `\.` would end what Postgres reads.
    quoted = ", force_quote *" if into == "copy" and columns == 1 else ""
    return f"{_OPTIONS[into]}{quoted}, use_tmp_file false"


def _value(name: str, kind: Any, into: Written) -> str:
    if into == "copy":
        return _postgres_text(name, kind, 0)
    stored = _stored_type(kind) if into == "parquet" else str(kind)
    return name if stored == str(kind) else f"{name}::{stored}"


def _stored_type(kind: Any) -> str:
    """Returns the type in which Parquet stores a type's values unchanged."""
    match kind.id:
        case "list" | "array":
            children = dict(kind.children)
            return f"{_stored_type(children['child'])}[{children.get('size', '')}]"
        case "struct":
            members = ", ".join(f"{quote_identifier(str(name))} {_stored_type(part)}" for name, part in kind.children)
            return f"STRUCT({members})"
        case "map":
            parts = dict(kind.children)
            return f"MAP({_stored_type(parts['key'])}, {_stored_type(parts['value'])})"
    return _STORED.get(kind.id, str(kind))


def _postgres_text(name: str, kind: Any, depth: int) -> str:
    if kind.id not in ("list", "array"):
        return _OF_POSTGRES.get(str(kind).lower(), _OF_POSTGRES.get(kind.id, "{}::varchar")).format(name)
    item, child = f"item{depth}", dict(kind.children)["child"]
    text = _postgres_text(item, child, depth + 1)
    if child.id not in ("list", "array"):
        text = f"""'"' || replace(replace({text}, '\\', '\\\\'), '"', '\\"') || '"'"""
    items = f"[coalesce({text}, 'NULL') for {item} in {name}]"
    return f"case when {name} is not null then '{{' || coalesce(array_to_string({items}, ','), '') || '}}' end"
