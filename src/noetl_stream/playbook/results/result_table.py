"""``spec.result.table``: reads the columns that a result's table must have, and compares them (LANGUAGE §10)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.loop import TOLERATED, read_tolerated
from noetl_stream.playbook.model.sections import Part, Required, Schema, Section, described, is_null, pairs, section
from noetl_stream.playbook.plan import ColumnPlan, TablePlan, Tolerated
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, child

_INTEGERS: Final = frozenset(
    ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"]
)
_FRACTIONS: Final = frozenset(["DECIMAL", "FLOAT", "DOUBLE"])
_MOMENTS: Final = frozenset(["TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"])
_TIMES: Final = frozenset(["DATE", *_MOMENTS])
_OTHERS: Final = frozenset(
    ["BOOLEAN", "VARCHAR", "BLOB", "TIME", "TIME_NS", "TIME WITH TIME ZONE", "INTERVAL", "UUID", "JSON"]
)
_NESTED: Final = frozenset(["LIST", "STRUCT", "MAP"])
TYPES: Final = _INTEGERS | _FRACTIONS | _TIMES | _OTHERS | _NESTED
"""The types of columns. ``DECIMAL``, ``LIST``, ``STRUCT`` and ``MAP`` without parameters match any such type."""
_SYNONYMS: Final = {
    "BOOL": "BOOLEAN",
    **dict.fromkeys(["INT1", "BYTE"], "TINYINT"),
    **dict.fromkeys(["INT2", "SHORT"], "SMALLINT"),
    **dict.fromkeys(["INT", "INT4"], "INTEGER"),
    **dict.fromkeys(["INT8", "LONG"], "BIGINT"),
    **dict.fromkeys(["REAL", "FLOAT4"], "FLOAT"),
    **dict.fromkeys(["FLOAT8", "DOUBLE PRECISION"], "DOUBLE"),
    **dict.fromkeys(["NUMERIC", "DEC"], "DECIMAL"),
    **dict.fromkeys(["TEXT", "STRING", "CHAR", "BPCHAR"], "VARCHAR"),
    **dict.fromkeys(["BYTEA", "BINARY", "VARBINARY"], "BLOB"),
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
    "TIMETZ": "TIME WITH TIME ZONE",
    "JSONB": "JSON",
}
_STORED_AS: Final = {
    **dict.fromkeys(["HUGEINT", "UHUGEINT", "INT128"], "DECIMAL(38,0)"),
    **dict.fromkeys(["TIMESTAMP_S", "TIMESTAMP_MS"], "TIMESTAMP"),
    "ENUM": "VARCHAR",
}
"""SQL types that Parquet tables do not keep, and the types that they are stored as."""
_TYPE: Final = re.compile(r"([A-Z][A-Z0-9_ ]*)(?:\((\d{1,2}),(\d{1,2})\))?((?:\[\d*\])*)")
_MOST_DIGITS: Final = 38

_BOUND: Final[Schema] = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"}]}


class TableColumn(Section):
    title = "a column of `spec.result.table`"
    example = "write id: { type: BIGINT, nullable: false, unique: true }, or id: BIGINT"

    type: str | None = described(
        "Its type in words of DuckDB: `BIGINT`, `VARCHAR[]`, `DECIMAL(9,2)`. `DECIMAL`, `LIST`, `STRUCT` and `MAP` "
        "alone are any such. Default: any.",
        {"type": "string", "examples": sorted(TYPES)},
    )
    nullable: bool | None = described("Whether a row may have no value. Default: true.")
    unique: bool | None = described("Whether no two rows may have the same value. Nulls are not compared.")
    minimum: Part = described("The least value: a number, a date or a time.", _BOUND)
    maximum: Part = described("The greatest value: a number, a date or a time.", _BOUND)


class ResultTable(Section):
    title = "`spec.result.table`"
    example = "write table: { columns: { id: { type: BIGINT, nullable: false } } }"

    columns: Annotated[Part, Required("columns: { id: BIGINT }")] = described(
        "The columns that the table must have, by name; it may have more. A text is the type.",
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"anyOf": [{"type": "string"}, section("TableColumn")]},
        },
    )
    tolerated: Part = described("How many rows may be otherwise: a number, or a share as `1%`. Default: 0.", TOLERATED)


def read_result_table(node: Node, problems: Problems) -> TablePlan | None:
    """Reads the value of ``spec.result.table``; reports a problem and returns ``None`` if it has no columns."""
    table = ResultTable.from_node(node, problems)
    columns, names = [], dict[str, str]()
    listed = pairs(table.columns, "`columns`", problems)
    if isinstance(table.columns, Mapping) and not listed:
        problems.error("missing_key", "`columns` is empty", table.columns, ResultTable.example)
    for key, value in listed:
        other = names.setdefault(key.name.lower(), key.name)
        if other != key.name:
            message = f"`{key.name}` and `{other}` are the same column: names are compared without their case"
            problems.error("duplicate_name", message, key, "write one of them")
        columns.append(_read_column(key, value, problems))
    tolerated = None if is_null(table.tolerated) else read_tolerated(table.tolerated, "rows", problems)
    return TablePlan(tuple(columns), tolerated or Tolerated(Decimal(0))) if columns else None


def _read_column(key: MappingKey, node: Node, problems: Problems) -> ColumnPlan:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return ColumnPlan(key.name, _read_type(node.value, node, problems))
    found = TableColumn.from_node(node, problems)
    kind = "" if found.type is None else _read_type(found.type, child(node, "type") or node, problems)
    bounds = {
        name: _read_bound(value, name, kind, problems)
        for name, value in (("minimum", found.minimum), ("maximum", found.maximum))
        if not is_null(value)
    }
    least, most = bounds.get("minimum"), bounds.get("maximum")
    if least is not None and most is not None and least[0] > most[0]:
        message = f"no value of `{key.name}` is between its minimum and its maximum"
        problems.error("conflicting_keys", message, found.maximum, "the minimum is the smaller one")
    return ColumnPlan(
        key.name,
        kind,
        nullable=found.nullable is not False,
        unique=found.unique or False,
        minimum="" if least is None else least[1],
        maximum="" if most is None else most[1],
    )


def _read_type(text: str, at: Node, problems: Problems) -> str:
    """Reads a type, in the spelling of references; reports a problem and returns ``""`` if it is unknown."""
    shown = " ".join(text.upper().split())
    found = _TYPE.fullmatch(re.sub(r" ?([(,[]) ?", r"\1", shown))
    word = "" if found is None else _SYNONYMS.get(found[1], found[1])
    if found is None or word not in TYPES:
        stored = _STORED_AS.get(word)
        near = f"a table keeps it as {stored}" if stored else did_you_mean(text, [*sorted(TYPES), *_SYNONYMS])
        hint = near or f"types are {list_names(sorted(TYPES))}, and lists of them as `VARCHAR[]`"
        problems.error("invalid_value", f"no column has the type `{text[:100]}`", at, hint)
        return ""
    _, digits, places, lists = found.groups()
    if lists and (word in _NESTED or (word == "DECIMAL" and digits is None)):
        problems.error("invalid_value", f"no column has the type `{text[:100]}`", at, "write LIST, which is any list")
        return ""
    if digits is not None and not (word == "DECIMAL" and int(places) <= int(digits) <= _MOST_DIGITS and int(digits)):
        message = f"no column has the type `{text[:100]}`"
        problems.error("invalid_value", message, at, "write DECIMAL(18,2): 2 of at most 38 digits after the point")
        return ""
    return f"{word}{'' if digits is None else f'({int(digits)},{int(places)})'}{lists}"


def _read_bound(node: Node, name: str, kind: str, problems: Problems) -> tuple[Any, str] | None:
    """Reads a bound: its value and its SQL literal. Reports a bound that does not fit the type: ``None``."""
    value, word = node.plain(), kind.partition("(")[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind.endswith("]"):
        word = "LIST"
    if word in _INTEGERS | _FRACTIONS and is_number:
        return value, str(value)
    moment = _moment(value) if word in _TIMES else None
    if moment is not None:
        text = moment.date().isoformat() if word == "DATE" else moment.isoformat(" ")
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC), f"'{text}'::{word}"
    if word in _INTEGERS | _FRACTIONS:
        wanted, hint = "a number", f"write {name}: 0"
    elif word in _TIMES:
        wanted, hint = "a date or time as ISO 8601", f'write {name}: "2026-01-31"'
    else:
        wanted, hint = "of a number, a date or a time", "give the column such a `type`, or remove it"
    problems.error("invalid_value", f"`{name}` must be {wanted}", node, hint)
    return None


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def column_faults(plan: TablePlan, columns: Iterable[tuple[str, str]]) -> list[str]:
    """Lists the columns that are missing from a table or have another type."""
    types = dict(columns)
    faults = []
    for column in plan.columns:
        kind = types.get(column.name)
        if kind is None:
            faults.append(f"it has no column `{column.name}`")
        elif column.type and not _is(kind, column.type):
            faults.append(f"column `{column.name}` is {kind[:100]}, not {column.type}")
    return faults


def _is(kind: str, wanted: str) -> bool:
    if wanted in ("LIST", "STRUCT", "MAP", "DECIMAL"):
        return kind.endswith("]") if wanted == "LIST" else kind.startswith(f"{wanted}(") and not kind.endswith("]")
    return kind.replace(" ", "") == wanted.replace(" ", "")
