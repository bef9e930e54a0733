from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any

import pytest
from server_stage import Stage

from noetl_stream.server import plan_cache as plans
from noetl_stream.testing.simulation.time import SimulatedLoop
from noetl_stream.worker import plan_client as asked_plans


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """All tests here run in simulated time."""
    return {"simulated": SimulatedLoop}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A broker, a store and a clock in memory; servers, workers and clients are started by the test.

    After no commit of any test may an execution wait for nothing (PROTOCOL §1: every waiting state names a row).
    """
    made = Stage()
    yield made
    await made.close()
    assert not made.store.stuck


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """The servers and workers of these tests share plans: to compile the same few playbooks again and again for each of
    them took half of the time of the stories. A text is compiled anew for other kinds and other limits.
    """

    def once(compile: Callable[..., Any]) -> Callable[..., Any]:
        known = cache(lambda text, kinds, options: compile(text, dict(kinds), **dict(options)))
        return lambda text, kinds, **options: known(text, tuple(kinds.items()), tuple(options.items()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "check", once(plans.check))
        patch.setattr(asked_plans, "compile_playbook", once(asked_plans.compile_playbook))
        yield
