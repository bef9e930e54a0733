"""Limits: which ones a playbook may lower and an operator may set, and the errors for anything else (LANGUAGE §14)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl_stream.errors import UsageError
from noetl_stream.model.limits import DEFAULT_LIMITS, NAMES, UNBOUNDED, VARIABLE_PREFIX, Limits, operator_limits
from noetl_stream.settings.sources.environment import LIMIT_PREFIX, Settings, limit_settings


def refusal(name: str, value: Any, limits: Limits = DEFAULT_LIMITS) -> tuple[str, str]:
    lowered = limits.lower_to({name: value, "max_step_runs": 7})
    assert lowered.limits == msgspec.structs.replace(limits, max_step_runs=7)
    (problem,) = lowered.problems
    assert problem.name == name
    return problem.code, f"{problem.message}; {problem.hint}"


def test_a_playbook_lowers_limits() -> None:
    lowered = DEFAULT_LIMITS.lower_to({"max_ctx_bytes": 1000, "inline_delay_s": 0, "max_template_operations": 10})
    assert lowered.limits == Limits(max_ctx_bytes=1000, inline_delay_s=0.0, max_template_operations=10)
    assert isinstance(lowered.limits.inline_delay_s, float)
    assert lowered.problems == ()


def test_a_playbook_may_keep_a_limit_as_it_is() -> None:
    assert DEFAULT_LIMITS.lower_to({"max_ctx_bytes": DEFAULT_LIMITS.max_ctx_bytes}).limits == DEFAULT_LIMITS
    assert DEFAULT_LIMITS.lower_to({}).limits is not None


def test_a_limit_with_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    assert refusal("max_ctx_byte", 1) == ("unknown_key", "unknown limit `max_ctx_byte`; did you mean `max_ctx_bytes`?")
    code, message = refusal("zzz", 1)
    assert code == "unknown_key"
    assert all(name in message for name in NAMES)


@pytest.mark.parametrize("value", ["1", None, True, [1], {}, 1.5])
def test_a_limit_that_is_counted_takes_whole_numbers_only(value: Any) -> None:
    assert refusal("max_ctx_bytes", value) == ("wrong_type", "`max_ctx_bytes` must be a whole number; None")


@pytest.mark.parametrize("value", ["1", None, True])
def test_a_limit_in_seconds_takes_numbers_only(value: Any) -> None:
    assert refusal("inline_delay_s", value) == ("wrong_type", "`inline_delay_s` must be a number; None")


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("max_ctx_bytes", 0, 1), ("inline_delay_s", -0.1, 0), ("inline_delay_s", float("nan"), 0)],
)
def test_a_limit_that_allows_nothing_at_all_is_refused(name: str, value: float, least: int) -> None:
    assert refusal(name, value) == ("invalid_value", f"`{name}` must be {least} or more; None")


def test_a_limit_above_the_operators_is_refused_with_the_operators() -> None:
    operator = Limits(max_step_runs=50, max_ctx_bytes=5_000_000)
    assert operator.lower_to({"max_ctx_bytes": 5_000_000}).problems == ()
    code, message = refusal("max_ctx_bytes", 5_000_001, operator)
    assert code == "invalid_value"
    assert message == "a playbook may only lower a limit: `max_ctx_bytes` is 5000000; only the operator can raise it"


def test_an_operator_sets_limits_by_variables_higher_or_lower() -> None:
    environ = {"NOETL_LIMIT_MAX_STEP_RUNS": "5", "NOETL_LIMIT_Inline_Delay_S": "7", "NOETL_LIMIT_MAX_CTX_BYTES": ""}
    settings = Settings.from_environment({"HOME": "/home/ann", "NOETL_LIMIT_MAX_TEMPLATE_DEPTH": "200"} | environ)
    assert settings.limits == limit_settings(environ) | {"max_template_depth": "200"}
    assert operator_limits(settings.limits) == Limits(max_step_runs=5, inline_delay_s=7.0, max_template_depth=200)
    assert operator_limits({}) == DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("max_step_run", "5", "did you mean `max_step_runs`?"),
        ("max_step_runs", "many", "must be a whole number"),
        ("max_step_runs", "1.5", "must be a whole number"),
        ("max_step_runs", "0", "must be 1 or more"),
        ("inline_delay_s", "inf", "must be 0 or more"),
        ("inline_delay_s", "nan", "must be 0 or more"),
    ],
)
def test_an_invalid_setting_is_refused_by_its_variable(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        operator_limits({name: text})
    assert f"NOETL_LIMIT_{name.upper()}" in str(caught.value)
    assert message in str(caught.value)


def test_the_environment_and_the_limits_agree_on_the_variables_name() -> None:
    assert VARIABLE_PREFIX == LIMIT_PREFIX


def test_unbounded_limits_accept_any_value() -> None:
    assert UNBOUNDED.lower_to(dict.fromkeys(NAMES, 2**61)).problems == ()
