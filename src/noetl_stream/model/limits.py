"""Limits with names (LANGUAGE §14). ``execution.started`` pins those that decisions read."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bounds of one execution. Bytes are bytes of JSON, ``_s`` seconds."""

    max_inline_bytes: int = 64 * 1024
    max_resolve_bytes: int = 4 * 1024 * 1024
    max_ctx_bytes: int = 1024 * 1024
    max_workload_bytes: int = 1024 * 1024
    max_loop_items_bytes: int = 512 * 1024
    max_task_runs: int = 10_000
    max_step_runs: int = 100_000
    max_decisions_per_fact: int = 1_000
    max_in_flight: int = 1_000
    max_deliveries: int = 5
    inline_delay_s: float = 5.0


DEFAULT_LIMITS = Limits()
