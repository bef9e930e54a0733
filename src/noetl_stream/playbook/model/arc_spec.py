"""The effects of arcs beyond their guards, as read: an arc's ``spec``, and ``next.spec.policy`` for all arcs of a step
(LANGUAGE §7 *Keys and priority of arcs*).
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.document import PRIORITY, check_priority
from noetl_stream.playbook.model.flow_control import KEY_TEXT, read_key
from noetl_stream.playbook.model.sections import Part, Section, described, is_empty, or_null
from noetl_stream.playbook.yaml.nodes import Node

_SPEC: Final = 'spec: { dedupe: "{{ args.order }}" }'


class ArcSpec(Section):
    title = "an arc's `spec`"
    example = f"write {_SPEC}"

    dedupe: Part = described("A key: of the tokens with one key, the arc sends the first alone.", or_null(KEY_TEXT))
    priority: int | None = described("What waits in a pool of the step run comes from the highest: 0 to 9.", PRIORITY)
    partition: Part = described(
        "A key: of the step runs with one key, the next begins when the one before has ended.", or_null(KEY_TEXT)
    )


class RouterPolicy(ArcSpec):
    title = "`next.spec.policy`"


class ArcSpecDraft(msgspec.Struct, frozen=True):
    """The effects of an arc beyond its guard, as read."""

    dedupe: Node | None = None
    priority: int | None = None
    partition: Node | None = None

    @property
    def keys(self) -> dict[str, Node]:
        keys = {"dedupe": self.dedupe, "partition": self.partition}
        return {name: node for name, node in keys.items() if node is not None}

    @property
    def is_empty(self) -> bool:
        return not self.keys and self.priority is None

    def over(self, usual: ArcSpecDraft) -> ArcSpecDraft:
        """This draft, completed by the usual one of all arcs of the step."""
        return ArcSpecDraft(
            dedupe=self.dedupe or usual.dedupe,
            priority=usual.priority if self.priority is None else self.priority,
            partition=self.partition or usual.partition,
        )


def read_arc_spec(node: Node | None, model: type[ArcSpec], problems: Problems) -> ArcSpecDraft:
    """Reads the ``spec`` of an arc, or of all arcs of a step."""
    if is_empty(node):
        return ArcSpecDraft()
    spec = model.from_node(node, problems)
    check_priority(spec.priority, node, problems)
    keys = {name: read_key(getattr(spec, name), f"`{name}`", problems) for name in ("dedupe", "partition")}
    return ArcSpecDraft(priority=spec.priority, **keys)
