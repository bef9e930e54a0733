"""The playbooks that a playbook calls, as far as its text says (LANGUAGE §12 *playbook*)."""

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
    """A call of a constant path; ``version`` is ``None`` for the latest one or a template."""

    path: str
    version: str | None
    at: Node

    def missing(self, file: str) -> Diagnostic:
        """The warning that the catalog has no such playbook."""
        named = self.path if self.version is None else f"{self.path}@{self.version}"
        return Diagnostic(
            severity="warning",
            code=UNREGISTERED,
            message=f"no playbook `{named}` is registered",
            hint="register it: noetl-stream playbook register FILE",
            file=file,
            line=self.at.mark.line,
            column=self.at.mark.column,
            pointer=self.at.pointer,
        )


def calls_of(document: ParsedPlaybook, steps: Iterable[StepDraft]) -> Iterator[PlaybookCall]:
    """The calls in file order, less those of the playbook itself, which are known once it is registered."""
    for task in (task for step in steps for task in step.tasks if task.kind is PLAYBOOK):
        at = task.inputs.get("path")
        path, version = _constant(at), _constant(task.inputs.get("version"))
        is_itself = path == document.path and version in (None, document.version)
        if at is not None and path and not is_itself:
            yield PlaybookCall(path, version, at)


def paths_missing(diagnostics: Iterable[Diagnostic], text: bytes) -> dict[Diagnostic, str]:
    """The path in ``text`` that each warning of an unregistered playbook or schema is about."""
    found = [one for one in diagnostics if one.code in (UNREGISTERED, UNREGISTERED_SCHEMA)]
    source = read_source(text, Problems("")) if found else None
    named = {one: node_at(source.root, one.pointer) for one in found} if source else {}
    paths = {one: _constant(at.get("path") if isinstance(at, Mapping) else at) for one, at in named.items()}
    return {one: path for one, path in paths.items() if path}


def _constant(node: Node | None) -> str | None:
    is_text = isinstance(node, Scalar) and isinstance(node.value, str) and not holds_template(node)
    return str(node.plain()).removeprefix("/") if node is not None and is_text else None
