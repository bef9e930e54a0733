"""``why``: what an execution waits for, or why it ended as it did, in sentences a person can act on.

From the folded state, the journal and what runs around it. Pure: whoever asks hands everything in.
"""

from __future__ import annotations

from noetl_stream.client.why.answer import explain
from noetl_stream.client.why.environment import Environment

__all__ = ["Environment", "explain"]
