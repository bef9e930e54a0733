"""The named limits of a worker (LANGUAGE §14); those of executions are :class:`noetl_stream.model.limits.Limits`."""

from __future__ import annotations

from typing import Final

ACK_WAIT_S: Final = 30.0
"""How long a lease on a command lasts without renewal; the queue's consumer is configured with it."""

RENEWALS_PER_LEASE: Final = 3
"""How often a lease is renewed within ``ACK_WAIT_S`` (PROTOCOL §3 *Order*)."""

CONTACT_INTERVAL_S: Final = 5.0
"""How often the worker probes NATS when nothing else proves contact."""

CONTACT_RETRY_S: Final = 1.0
CONTACT_ANSWER_S: Final = 5.0

CONTACT_LOST_AFTER_S: Final = 20.0
"""How long without contact until the worker stops its runs: their leases are about to expire (PROTOCOL §3 *Order*)."""

UNSTORED_S: Final = 10.0
"""How long a result may wait to be stored before the worker is not ready: NATS elects a leader sooner."""

UNCLAIMED_S: Final = ACK_WAIT_S / RENEWALS_PER_LEASE
"""The wait for its playbook after which a copy is claimed before it begins: its lease may have ended meanwhile."""

CLAIM_ANSWER_S: Final = 2.0
"""How long a claim waits for its answer before it is repeated the first time; then twice as long each time."""

SERVER_ANSWER_S: Final = 2.0
LONGEST_ANSWER_S: Final = 16.0
"""How long the answer to a question is awaited: at first, and after a few unanswered attempts. A claim waits no longer
either.
"""

PLAN_TRIES: Final = 3
"""How often a playbook that no server knows is requested before the command is returned."""

REFERENCE_FIRST_BYTES: Final = 1024
"""The largest inline result of a playbook with ``results.reference_first``."""

PLANS_KEPT: Final = 256
SCHEMAS_KEPT: Final = 256

RETURN_DELAY_S: Final = 5.0
"""The delay before a command that this worker cannot run is delivered again."""

MAX_RETURNS: Final = 2
"""How often a command goes back because a task of it could not begin; the next time, the task fails."""

FIRST_TEST_S: Final = RETURN_DELAY_S + 1.0
LONGEST_TEST_S: Final = 60.0
"""The waits before self-tests of an unfit worker: at first long enough for another one to take what it returned."""

TEST_S: Final = 30.0
"""How long a self-test may take."""

FLUSH_INTERVAL_S: Final = 0.05
"""How long events of a run may wait to be reported (DESIGN §1)."""

MAX_REPORT_BYTES: Final = 384 * 1024
"""The size of a report above which it is split, except for a single larger group of events."""

MAX_UNREPORTED_BYTES: Final = 1024 * 1024
"""The bytes of unreported events above which a run waits until some are acknowledged."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Pauses between retries of a request that must succeed grow from the first to the longest."""

MAX_STOPPED_REMEMBERED: Final = 16_384
"""How many ids of stopped commands are remembered, so that a copy fetched later does not run."""

MAX_LOADED_BYTES: Final = 256 * 1024 * 1024
"""How many bytes of results kept by reference the templates of one run may read."""

MAX_PAGES_KEPT_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of JSON of loop pages a worker caches for later iterations."""

PREVIEW_CHARACTERS: Final = 200
MAX_MESSAGE_CHARACTERS: Final = 4_000
MAX_OUTPUT_CHARACTERS: Final = 16_000

LAST_REPORTS_S: Final = 5.0
"""How long the reports of runs stopped at the end of the grace period may take."""

TURNS_PER_YIELD: Final = 16
"""After how many task runs in a row a pipeline yields to others, even if none of its tools ever waits."""

SECRET_KEPT_S: Final = 3_600.0
"""How long a worker caches a stored credential (legacy architecture §5.2)."""

ABSENT_KEPT_S: Final = 10.0
"""How long a worker remembers that a credential name is not stored."""

TOKEN_MARGIN_S: Final = 60.0
"""How long before its end a token is renewed, at most; a tenth of its lifetime if that is shorter."""

UNKNOWN_LIFETIME_S: Final = 300.0
"""How long a token without a stated lifetime is cached."""

MAX_RUNNING_SHOWN: Final = 100
"""How many of its running commands a worker lists in its presence."""

MAX_SECRETS_KEPT: Final = 1_000
MAX_SECRET_FILE_BYTES: Final = 64 * 1024

MAX_LOG_LINE_BYTES: Final = 8 * 1024
"""The longest line of a task's log; the rest of it is cut off. As JSON it is at most six times as large."""

MAX_TASK_LOG_BYTES: Final = 16 * 1024 * 1024
"""The most bytes that one attempt of a task may log, as published; the rest is dropped."""

MAX_LOGS_HELD_BYTES: Final = 4 * 1024 * 1024
"""The bytes of log lines that a worker holds until they are stored; above it, new ones are dropped."""

MAX_LOGS_IN_FLIGHT_BYTES: Final = 512 * 1024
"""The bytes of log lines on their way to NATS at once: a report waits behind no more."""

LOG_INTERVAL_S: Final = 0.1
"""How long a log line may wait to be published."""

LONG_TASK_S: Final = 1.0
"""How long a task runs until a worker logs that it has started."""
