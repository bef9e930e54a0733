"""What arcs do beyond their guards, as read: an arc's ``spec``, and ``next.spec.policy`` for all arcs of a step
(LANGUAGE §7 *Keys and priority of arcs*).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.document import PRIORITY, check_priority
from noetl_stream.playbook.model.flow_control import KEY_TEXT, read_key
from noetl_stream.playbook.model.sections import Part, Reserved, Section, described, is_empty, or_null, read_section
from noetl_stream.playbook.yaml.nodes import Node

_SPEC: Final = 'spec: { dedupe: "{{ args.order }}" }'


class ArcSpec(Section):
    title = "an arc's `spec`"
    example = f"write {_SPEC}"

    dedupe: Part = described("A key: of the tokens with one key, the arc sends the first alone.", or_null(KEY_TEXT))
    priority: int | None = described("What waits in a pool of the step run comes from the highest: 0 to 9.", PRIORITY)
    partition: Annotated[Any, Reserved()] = None


class RouterPolicy(ArcSpec):
    title = "`next.spec.policy`"


class ArcSpecDraft(msgspec.Struct, frozen=True):
    """What an arc does beyond its guard, as read."""

    dedupe: Node | None = None
    priority: int | None = None

    @property
    def keys(self) -> dict[str, Node]:
        """The keys, by their names."""
        return {} if self.dedupe is None else {"dedupe": self.dedupe}

    @property
    def is_empty(self) -> bool:
        return self.dedupe is None and self.priority is None

    def over(self, usual: ArcSpecDraft) -> ArcSpecDraft:
        """This, with what all arcs of the step have where it says nothing."""
        return ArcSpecDraft(
            dedupe=self.dedupe or usual.dedupe,
            priority=usual.priority if self.priority is None else self.priority,
        )


def read_arc_spec(node: Node | None, model: type[ArcSpec], problems: Problems) -> ArcSpecDraft:
    """Reads the ``spec`` of an arc, or of all arcs of a step."""
    if is_empty(node):
        return ArcSpecDraft()
    spec = read_section(node, model, problems)
    check_priority(spec.priority, node, problems)
    return ArcSpecDraft(read_key(spec.dedupe, "`dedupe`", problems), spec.priority)
