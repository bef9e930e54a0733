"""The playbooks that a playbook calls by a constant path (LANGUAGE §12 *playbook*)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Diagnostic, Problems
from noetl_stream.playbook.kinds.spec import PLAYBOOK
from noetl_stream.playbook.model.document import ParsedPlaybook
from noetl_stream.playbook.model.step import StepDraft
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, holds_template, node_at
from noetl_stream.playbook.yaml.source import read_source

UNREGISTERED: Final[Code] = "unregistered_playbook"
"""The code of the warning about a called playbook that the catalog does not have."""

UNREGISTERED_SCHEMA: Final[Code] = "unregistered_schema"
"""The code of the diagnostic about a schema that the catalog does not have."""


class PlaybookCall(msgspec.Struct, frozen=True):
    """A call of a playbook by a constant path; ``version`` is ``None`` for the latest one or a template."""

    path: str
    version: str | None
    at: Node

    def missing_warning(self, file: str) -> Diagnostic:
        """The warning that the catalog lacks the playbook."""
        named = self.path if self.version is None else f"{self.path}@{self.version}"
        hint = "register it: noetl-stream playbook register FILE"
        return Diagnostic.warning(UNREGISTERED, f"no playbook `{named}` is registered", hint, file, self.at)


def warn_of_files(calls: Iterable[PlaybookCall], problems: Problems) -> None:
    """Warns of calls of files: a playbook is called by its path in the catalog."""
    for call in calls:
        if call.path.startswith(("./", "../")) or call.path.endswith((".yaml", ".yml")):
            message = f"`{call.path}` is a file, and a playbook is called by its path in the catalog"
            register = f"noetl-stream playbook register {call.path}"
            hint = f"put the `metadata.path` of that file here, and register it: {register}"
            problems.warn("invalid_value", message, call.at, hint)


def calls_of(document: ParsedPlaybook, steps: Iterable[StepDraft]) -> Iterator[PlaybookCall]:
    """The calls of a playbook in file order, without calls of itself: it exists once it is registered."""
    for task in (task for step in steps for task in step.tasks if task.kind is PLAYBOOK):
        at = task.inputs.get("path")
        path, version = _constant(at), _constant(task.inputs.get("version"))
        is_itself = path == document.path and version in (None, document.version)
        if at is not None and path and not is_itself:
            yield PlaybookCall(path, version, at)


def paths_missing(diagnostics: Iterable[Diagnostic], text: bytes) -> dict[Diagnostic, str]:
    """The path in ``text`` that each warning of an unregistered playbook or schema is about."""
    warnings = [warning for warning in diagnostics if warning.code in (UNREGISTERED, UNREGISTERED_SCHEMA)]
    source = read_source(text, Problems("")) if warnings else None
    named = {warning: node_at(source.root, warning.pointer) for warning in warnings} if source else {}
    paths = {warning: _constant(at.get("path") if isinstance(at, Mapping) else at) for warning, at in named.items()}
    return {warning: path for warning, path in paths.items() if path}


def constant_at(text: bytes, pointer: str) -> str | None:
    """The path at a place of a text; ``None`` without a constant there."""
    source = read_source(text, Problems(""))
    return None if source is None else _constant(node_at(source.root, pointer))


def _constant(node: Node | None) -> str | None:
    is_text = isinstance(node, Scalar) and isinstance(node.value, str) and not holds_template(node)
    return str(node.plain()).removeprefix("/") if node is not None and is_text else None
