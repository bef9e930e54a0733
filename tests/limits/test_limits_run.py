"""Limits at work: the operator's and the playbook's bound templates on the server and on the worker (LANGUAGE §14)."""

from __future__ import annotations

from noetl_stream.adapters.memory.blobs import MemoryBlobs
from noetl_stream.adapters.memory.store import MemoryStore
