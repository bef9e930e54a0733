"""The decisions: facts that follow from a fact, by the state after it (DESIGN §3). One module per subject, with its
rules.

A rule depends only on the state and the fact, never on the batch, and may raise
:class:`~noetl_stream.template.ReferenceNeeded`. :mod:`.quiescence` decides what follows when no rule applies any more,
and what is still undecided after a halt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import Fact
from noetl_stream.playbook.plan import Plan

Rules = dict[type[Fact], Callable[[Plan, Execution, Any], Sequence[Fact]]]
"""Decision rules by kind of fact: the facts that follow from it in the state that already holds it."""
