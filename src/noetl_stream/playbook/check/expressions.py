"""Compiles a template or guard of one place and checks what it reads, in one go (LANGUAGE §2)."""

from __future__ import annotations

from dataclasses import dataclass

from noetl_stream.playbook.check.bindings import Visible
from noetl_stream.playbook.check.reads import ReadChecks
from noetl_stream.playbook.check.templates import Templates
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.yaml.nodes import Node
from noetl_stream.template import Guard, Template


@dataclass(frozen=True, slots=True)
class Expressions:
    """Problems go to the collector behind ``templates`` and ``checks``."""

    templates: Templates
    checks: ReadChecks

    def value(self, node: Node, visible: Visible, kind: KindSpec | None = None) -> Template:
        """A value that the worker renders. ``kind`` is that of the task it belongs to."""
        template = self.templates.template(node, visible)
        self.checks.check(self.templates.readings(template.paths, node), visible, kind)
        return template

    def server_value(self, node: Node, visible: Visible) -> Template:
        """A value that the server renders: expressions only."""
        template = self.templates.template(node, visible, on_server=True)
        self.checks.check(self.templates.readings(template.paths, node), visible)
        return template

    def guard(self, node: Node, visible: Visible, kind: KindSpec | None = None) -> Guard | None:
        """A condition; ``None`` when it has problems."""
        guard = self.templates.guard(node, visible)
        if guard:
            self.checks.check(self.templates.readings(guard.paths, node), visible, kind)
            self.checks.compare(guard, lambda path: self.templates.find(path, node), visible)
        return guard
