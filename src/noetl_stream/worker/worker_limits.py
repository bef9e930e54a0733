"""The named limits of a worker (LANGUAGE §14); those of executions are :class:`noetl_stream.model.limits.Limits`."""

from __future__ import annotations

from typing import Final

ACK_WAIT_S: Final = 30.0
"""The length of a lease on a command without renewal; the queue's consumer is configured with it."""

RENEWALS_PER_LEASE: Final = 3
"""The number of lease renewals within ``ACK_WAIT_S`` (PROTOCOL §3 *Order*)."""

CONTACT_INTERVAL_S: Final = 5.0
"""The interval at which the worker probes NATS when nothing else proves contact."""

CONTACT_RETRY_S: Final = 1.0
CONTACT_ANSWER_S: Final = 5.0

CONTACT_LOST_AFTER_S: Final = 20.0
"""The time without contact after which the worker stops its runs: their leases are about to expire (PROTOCOL §3
*Order*).
"""

UNSTORED_S: Final = 10.0
"""The time for which a result may be unstored before the worker is not ready: NATS elects a leader sooner."""

UNCLAIMED_S: Final = ACK_WAIT_S / RENEWALS_PER_LEASE
"""The wait for a playbook after which a copy of the command is claimed before it begins: its lease may have ended."""

CLAIM_ANSWER_S: Final = 2.0
"""The wait for the answer to a claim before it is repeated; it doubles each time."""

SERVER_ANSWER_S: Final = 2.0
LONGEST_ANSWER_S: Final = 16.0
"""The waits for the answer to a question: at first, and after a few unanswered attempts. A claim waits no longer
either.
"""

PLAN_TRIES: Final = 3
"""The number of requests for a playbook that no server knows before the command is returned."""

REFERENCE_FIRST_BYTES: Final = 1024
"""The largest inline result of a playbook with ``results.reference_first``."""

PLANS_KEPT: Final = 256
SCHEMAS_KEPT: Final = 256

RETURN_DELAY_S: Final = 5.0
"""The delay before a command that this worker cannot run is delivered again."""

MAX_RETURNS: Final = 2
"""The number of times a command is returned because one of its tasks could not begin; then the task fails."""

FIRST_TEST_S: Final = RETURN_DELAY_S + 1.0
LONGEST_TEST_S: Final = 60.0
"""The waits before self-tests of an unfit worker: at first long enough for another worker to take what it returned."""

TEST_S: Final = 30.0
"""The longest duration of a self-test."""

FLUSH_INTERVAL_S: Final = 0.05
"""The longest time that events of a run wait to be reported (DESIGN §1)."""

MAX_REPORT_BYTES: Final = 384 * 1024
"""The size of a report above which it is split, except for a single larger group of events."""

MAX_UNREPORTED_BYTES: Final = 1024 * 1024
"""The bytes of unreported events above which a run waits until some are acknowledged."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""The first and the longest pause between retries of a request that must succeed."""

MAX_STOPPED_REMEMBERED: Final = 16_384
"""The number of stopped commands that are remembered, so that a copy fetched later does not run."""

MAX_LOADED_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of results kept by reference that the templates of one run may read."""

MAX_PAGES_KEPT_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of JSON of loop pages that a worker caches for later iterations."""

PREVIEW_CHARACTERS: Final = 200
MAX_MESSAGE_CHARACTERS: Final = 4_000
MAX_OUTPUT_CHARACTERS: Final = 16_000

LAST_REPORTS_S: Final = 5.0
"""The longest time for the reports of runs stopped at the end of the grace period."""

TURNS_PER_YIELD: Final = 16
"""The number of consecutive task runs after which a pipeline yields to others, even if its tools never await."""

SECRET_KEPT_S: Final = 3_600.0
"""The time for which a worker caches a stored credential (legacy architecture §5.2)."""

ABSENT_KEPT_S: Final = 10.0
"""The time for which a worker remembers that a credential name is not stored."""

TOKEN_MARGIN_S: Final = 60.0
"""The longest time before its end at which a token is renewed; a tenth of its lifetime if that is shorter."""

UNKNOWN_LIFETIME_S: Final = 300.0
"""The time for which a token without a stated lifetime is cached."""

MAX_RUNNING_SHOWN: Final = 100
"""The most running commands that a worker lists in its presence."""

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
"""The longest time that a log line waits to be published."""

LONG_TASK_S: Final = 1.0
"""The runtime of a task after which a worker logs its start."""
