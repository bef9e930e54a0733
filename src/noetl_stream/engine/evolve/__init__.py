"""How facts change the state: total and guarded (DESIGN §3). One module per subject, each with its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import Fact

Rules = dict[type[Fact], Callable[[Execution, Any], Execution]]
"""By kind of fact, the state after it; the same value if it changes nothing."""
