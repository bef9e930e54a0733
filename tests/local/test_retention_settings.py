"""NOETL_RETENTION, NOETL_EVENTS_MAX_BYTES and NOETL_EVENTS_MAX_AGE."""

from __future__ import annotations

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.settings.retention_periods import RetentionRule, RetentionSettings
from noetl_stream.settings.sources.environment import Settings

DAY_S = 86_400.0


def settings(**variables: str) -> RetentionSettings:
    return Settings.from_environment({f"NOETL_{name}": value for name, value in variables.items()}).retention


def kept_s(rules: tuple[RetentionRule, ...], path: str, status: str) -> float | None:
    """How long the first rule for it keeps it; ``None``: for ever."""
    return next((rule.keep_s for rule in rules if rule.is_for(path, status)), None)


def test_by_default_executions_stay_and_events_keeps_a_day_or_256_mib() -> None:
    assert settings() == RetentionSettings()
    assert kept_s(settings().rules, "team/report", "completed") is None


def test_the_first_rule_that_fits_says_how_long_an_execution_is_kept() -> None:
    rules = settings(RETENTION=" team/audit=never, team/report:failed=12w , :failed=90d,team/report=7d, 30d").rules
    assert kept_s(rules, "team/audit/year", "failed") is None
    assert kept_s(rules, "team/report", "failed") == 84 * DAY_S
    assert kept_s(rules, "team/report/daily", "completed") == 7 * DAY_S
    assert kept_s(rules, "team/reporting", "completed") == 30 * DAY_S
    assert kept_s(rules, "other", "failed") == 90 * DAY_S


def test_events_has_bounds_of_size_and_age() -> None:
    found = settings(EVENTS_MAX_BYTES="2GiB", EVENTS_MAX_AGE="12h")
    assert (found.events_max_bytes, found.events_max_age_s) == (2 * 1024**3, DAY_S / 2)


def test_logs_has_bounds_if_they_are_set() -> None:
    found = settings(LOGS_MAX_BYTES="512MiB", LOGS_MAX_AGE="30d")
    assert (found.logs_max_bytes, found.logs_max_age_s) == (512 * 1024**2, 30 * DAY_S)
    assert (settings().logs_max_bytes, settings().logs_max_age_s) == (None, None)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("LOGS_MAX_BYTES", "1KB", "from 1MiB on"),
        ("LOGS_MAX_AGE", "1m", "from 10m on"),
        ("RETENTION", "soon", "invalid age"),
        ("RETENTION", "23h", "write an age from 1d on"),
        ("RETENTION", "team/report", "invalid age"),
        ("RETENTION", ":running=30d", "invalid status"),
        ("RETENTION", ",".join(["30d"] * 101), "at most 100"),
        ("EVENTS_MAX_BYTES", "10KB", "from 1MiB on"),
        ("EVENTS_MAX_BYTES", "much", "write a size"),
        ("EVENTS_MAX_AGE", "9m", "from 10m on"),
        ("EVENTS_MAX_AGE", "1", "write an age"),
    ],
)
def test_an_invalid_value_is_refused_with_the_name_of_its_variable(name: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"NOETL_{name}") as caught:
        settings(**{name: value})
    assert says in str(caught.value)
