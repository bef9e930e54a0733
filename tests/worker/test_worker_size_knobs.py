"""A playbook may raise the size of what its tasks receive up to what the worker's operator allows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from worker_stage import FreeInputs, Puppet, Stage

from noetl_stream.errors import UsageError
from noetl_stream.model.events import TaskProcessed
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.tools import DEFAULT_MAX_RESULT_BYTES, MAX_RESULT_BYTES_VARIABLE
from noetl_stream.tools.inputs import bounded_knobs
from noetl_stream.tools.registry import load_tools


class SizedKnobs(BaseModel):
    model_config = ConfigDict(extra="forbid")

    max_result_bytes: int = 5_000
    max_rows: int = 1_000_000


class Sized(Puppet):
    spec = KindSpec("sized", inputs=FreeInputs, knobs=SizedKnobs)


async def knobs_of(stage: Stage, spec: str) -> Any:
    """The knobs with which the tool was called, or the error of the task."""
    tool = stage.tools["sized"] = Sized()
    await stage.start(max_result_bytes=2_000)
    await stage.issue(stage.command(stage.plan(f"- step: start\n  tool: [{{name: fetch, kind: sized, spec: {spec}}}]")))
    await stage.soon(lambda: stage.names[-1:] in (["step.done"], ["step.failed"]))
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    return processed.outcome.error or dict(tool.calls[0].knobs)


async def test_a_task_gets_what_it_asks_for_up_to_the_bound(stage: Stage) -> None:
    assert await knobs_of(stage, "{max_result_bytes: 2000}") == {"max_result_bytes": 2_000}


async def test_a_default_above_the_bound_is_lowered_to_it(stage: Stage) -> None:
    assert await knobs_of(stage, "{max_rows: 3000}") == {"max_rows": 3_000, "max_result_bytes": 2_000}


async def test_a_task_that_asks_for_more_is_refused_with_the_name_of_the_setting(stage: Stage) -> None:
    error = await knobs_of(stage, "{max_result_bytes: 2001}")
    assert (error.kind, error.retryable) == ("not_allowed", False)
    assert error.message == (
        "max_result_bytes: 2001 is more than the worker's operator allows (NOETL_MAX_RESULT_BYTES: 2,000 bytes)"
    )


@pytest.mark.parametrize("kind", ["duckdb", "http", "nats", "postgres", "python", "shell"])
def test_every_kind_that_receives_something_has_such_a_knob(kind: str) -> None:
    knobs = load_tools()[kind].spec.knobs
    lowered = bounded_knobs(knobs, {}, 1_024)
    assert set(lowered.values()) == {1_024}
    assert bounded_knobs(knobs, {}, DEFAULT_MAX_RESULT_BYTES) == {}


@pytest.mark.parametrize("value", ["0", "2GB", "1e9", "99999999999"])
def test_a_wrong_bound_is_refused_with_its_name(value: str) -> None:
    with pytest.raises(UsageError, match=MAX_RESULT_BYTES_VARIABLE):
        Settings.from_environment({MAX_RESULT_BYTES_VARIABLE: value})


def test_the_bound_reaches_the_settings_of_tools() -> None:
    settings = Settings.from_environment({MAX_RESULT_BYTES_VARIABLE: "4096"})
    assert settings.tools("nats://127.0.0.1:1", embedded=False).max_result_bytes == 4_096
