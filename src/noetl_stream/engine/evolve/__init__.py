"""How facts change the state: total and guarded (DESIGN §3). One file a subject, each with a table of its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import Fact

Rule = Callable[[Execution, Any], Execution]
Rules = dict[type[Fact], Rule]
"""The state after a fact of a kind; the very same value if it changes nothing."""
