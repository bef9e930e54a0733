"""What follows from a fact, by the state after it (DESIGN §3). One file a subject, each with a table of its rules.

A rule depends on the state and the fact alone, never on the batch, and may raise
:class:`~noetl_stream.template.ReferenceNeeded`. What follows once nothing else does is in :mod:`.quiescence`, what a
state owes after a halt in :mod:`.pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import Fact
from noetl_stream.playbook.plan import Plan

NOTHING: Final[Sequence[Fact]] = ()

Rule = Callable[[Plan, Execution, Any], Sequence[Fact]]
Rules = dict[type[Fact], Rule]
"""The facts that follow from a fact of a kind, in the state that already holds it."""
