"""The operator's bounds on how many executions triggers start in a minute."""

from __future__ import annotations

from typing import Final

import msgspec

TRIGGER_RATE_VARIABLE: Final = "NOETL_TRIGGER_RATE"
NAMESPACE_RATE_VARIABLE: Final = "NOETL_NAMESPACE_TRIGGER_RATE"

MOST_PER_MINUTE: Final = 60_000


class TriggerRates(msgspec.Struct, frozen=True):
    """The bounds on starts by triggers, a minute: of one trigger, and of all of a namespace."""

    of_trigger: int = MOST_PER_MINUTE
    of_namespace: int = MOST_PER_MINUTE


DEFAULT_RATES: Final = TriggerRates()
