"""The page about the worker gives the times and bounds that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.settings.sources.environment import DEFAULT_WORKER_DRAIN_S
from noetl_stream.worker import worker_limits as limits

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "explanation" / "worker.md").read_text().split())
SAID = {
    f"Without an answer after {limits.CLAIM_ANSWER_S:g} s it asks again": "claims",
    f"after {['no', 'one', 'two', 'three'][limits.PLAN_TRIES]} attempts": "plans",
    f"at most every {limits.FLUSH_INTERVAL_S * 1000:g} ms": "reports",
    f"**Up to `limits.inline_delay_s`** ({DEFAULT_LIMITS.inline_delay_s:g} s), the worker waits in its slot": "delays",
    f"renews all leases every {limits.ACK_WAIT_S / limits.RENEWALS_PER_LEASE:g} s": "renewals",
    f"a third of the {limits.ACK_WAIT_S:g} s that a lease lasts": "leases",
    f"(up to {limits.MAX_STOPPED_REMEMBERED:,})": "stopped commands",
    f"unreachable for {limits.CONTACT_LOST_AFTER_S:g} s": "contact",
    f"up to {limits.MAX_RUNNING_SHOWN} of its running commands": "presence",
    f"gives running commands {DEFAULT_WORKER_DRAIN_S} s (`NOETL_WORKER_DRAIN_S`) to finish": "draining",
}


def test_the_page_has_the_times_and_bounds_of_the_code() -> None:
    assert [what for sentence, what in SAID.items() if sentence not in PAGE] == []


def test_the_page_names_only_limits_that_there_are() -> None:
    named = set(re.findall(r"`limits\.(\w+)`", PAGE))
    assert named and named <= set(DEFAULT_LIMITS.__struct_fields__)
