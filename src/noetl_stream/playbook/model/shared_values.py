"""``set_shared`` as read: contributions of iterations to a key of ``ctx`` (LANGUAGE §6)."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, get_args

from noetl_stream.model.events import SharedOperation
from noetl_stream.playbook.diagnostics import Problems, listed
from noetl_stream.playbook.model.sections import Part, RejectedKey, Required, Section, pairs, read_section
from noetl_stream.playbook.vocabulary.names import check_identifier
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, Sequence, holds_template, kind_of

OPERATIONS: Final[tuple[str, ...]] = get_args(SharedOperation)
SHOWN: Final = '{ op: add, value: "{{ … }}" }'

_TAKES: Final = dict.fromkeys(("add", "min", "max"), "a number") | {"extend": "a list", "union": "a list"} | {
    "merge": "a mapping"
}  # fmt: skip


class SharedEntry(Section):
    title = "a key of `set_shared`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = {
        name: RejectedKey(f"`{name}` is an operation, not a key", f"write {{ op: {name}, value: … }}", "unknown_key")
        for name in OPERATIONS
    }

    op: Annotated[SharedOperation | None, Required(f"write one of {listed(OPERATIONS)}")] = None
    value: Part = None


@dataclass(frozen=True, slots=True)
class SharedDraft:
    """A contribution to one key; ``value`` is ``None`` for ``count``."""

    key: MappingKey
    op: SharedOperation
    value: Node | None


def read_shared(node: Node | None, problems: Problems) -> list[SharedDraft]:
    """The valid keys of ``set_shared``."""
    drafts = []
    for key, entry in pairs(node, "`set_shared`", problems):
        if not check_identifier(key.name, "a key of `set_shared`", key, problems):
            continue
        if not isinstance(entry, Mapping):
            message = f"`{key.name}` of `set_shared` must be a mapping with `op`, not {kind_of(entry)}"
            problems.error("wrong_type", message, entry, f"write {key.name}: {SHOWN}")
            continue
        shared = read_section(entry, SharedEntry, problems)
        if shared.op is not None:
            _check_value(shared.op, entry, problems)
            drafts.append(SharedDraft(key, shared.op, shared.value))
    return drafts


def _check_value(op: SharedOperation, entry: Mapping, problems: Problems) -> None:
    value = entry.get("value")
    if op == "count":
        if value is not None:
            message = "`op: count` takes no `value`"
            problems.error("no_effect", message, entry.keys["value"], "remove it, or write op: add")
    elif value is None:
        problems.error("missing_key", f"`op: {op}` needs a `value`", entry, f"write {{ op: {op}, value: … }}")
    elif op in _TAKES and not _may_be(_TAKES[op], value):
        problems.error("wrong_type", f"`op: {op}` takes {_TAKES[op]}, not {kind_of(value)}", value)


def _may_be(wanted: str, value: Node) -> bool:
    """Whether a value has this type or is a template, known only when rendered."""
    if isinstance(value, Scalar):
        return kind_of(value) == wanted or holds_template(value)
    return wanted == ("a list" if isinstance(value, Sequence) else "a mapping")
