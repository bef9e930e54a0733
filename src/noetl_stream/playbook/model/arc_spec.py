"""What arcs do beyond their guards, as read: an arc's ``spec``, and ``next.spec.policy`` for all arcs of a step
(LANGUAGE §7 *Keys of arcs*).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.flow_control import KEY_TEXT, read_key
from noetl_stream.playbook.model.sections import Part, Reserved, Section, described, is_empty, or_null, read_section
from noetl_stream.playbook.yaml.nodes import Node

_SPEC: Final = 'spec: { dedupe: "{{ args.order }}" }'


class ArcSpec(Section):
    title = "an arc's `spec`"
    example = f"write {_SPEC}"

    dedupe: Part = described("A key: of the tokens with one key, the arc sends the first alone.", or_null(KEY_TEXT))
    priority: Annotated[Any, Reserved()] = None
    partition: Annotated[Any, Reserved()] = None


class RouterPolicy(ArcSpec):
    title = "`next.spec.policy`"


class ArcSpecDraft(msgspec.Struct, frozen=True):
    """What an arc does beyond its guard, as read."""

    dedupe: Node | None = None

    @property
    def keys(self) -> dict[str, Node]:
        """The keys, by their names."""
        return {} if self.dedupe is None else {"dedupe": self.dedupe}

    @property
    def is_empty(self) -> bool:
        return self.dedupe is None

    def over(self, usual: ArcSpecDraft) -> ArcSpecDraft:
        """This, with what all arcs of the step have where it says nothing."""
        return ArcSpecDraft(self.dedupe or usual.dedupe)


def read_arc_spec(node: Node | None, model: type[ArcSpec], problems: Problems) -> ArcSpecDraft:
    """Reads the ``spec`` of an arc, or of all arcs of a step."""
    if is_empty(node):
        return ArcSpecDraft()
    spec = read_section(node, model, problems)
    return ArcSpecDraft(read_key(spec.dedupe, "`dedupe`", problems))
