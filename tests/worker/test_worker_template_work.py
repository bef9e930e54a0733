"""Heavy templates of one command hold up no other: the worker evaluates them in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from worker_stage import Stage

from noetl_stream.concurrency import Capacity
from noetl_stream.model.events import TaskProcessed
from noetl_stream.template import Budget, ExpressionError, Scope, compile_template
from noetl_stream.worker.command.attempt import render_inputs


class Watched(Mapping[str, Any]):
    """Namespaces that remember which threads have read them."""

    def __init__(self, **namespaces: Any) -> None:
        self.threads: set[int] = set()
        self._namespaces = namespaces

    def __getitem__(self, name: str) -> Any:
        self.threads.add(threading.get_ident())
        return self._namespaces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._namespaces)

    def __len__(self) -> int:
        return len(self._namespaces)


async def rendered_in(text: str, turns: Capacity | None = None) -> tuple[Any, set[int]]:
    """The value of a template, and the threads that evaluated it."""
    namespaces = Watched(ctx={"n": 20_000})
    template = compile_template({"value": text}, namespaces=frozenset({"ctx"}), bindings={})
    inputs = await render_inputs(template, Scope(namespaces, budget=Budget(10_000)), turns or Capacity(1), "test")
    return inputs["value"], namespaces.threads


async def test_cheap_inputs_are_rendered_in_the_loop() -> None:
    assert await rendered_in("{{ ctx.n + 1 }}") == (20_001, {threading.get_ident()})


async def test_heavy_inputs_are_rendered_in_a_thread() -> None:
    value, threads = await rendered_in("{{ range(ctx.n) | sum }}")
    assert value == 199_990_000
    assert len(threads - {threading.get_ident()}) == 1


async def test_heavy_inputs_wait_for_their_turn_and_cheap_ones_do_not() -> None:
    turns = Capacity(1)
    async with turns.place(namespace="loud"):
        heavy = asyncio.create_task(rendered_in("{{ range(ctx.n) | sum }}", turns))
        await asyncio.sleep(0)
        assert (turns.waiting, heavy.done()) == (1, False)
        assert (await rendered_in("{{ ctx.n + 1 }}", turns))[0] == 20_001
    assert (await heavy)[0] == 199_990_000


async def test_the_limits_of_a_rendering_hold_there_too() -> None:
    with pytest.raises(ExpressionError, match=r"limits\.max_template_operations"):
        await rendered_in("{{ ([range(ctx.n)] * 1000) | map('sum') | sum }}")


async def test_a_task_with_heavy_inputs_and_policy_runs_as_any_other(stage: Stage) -> None:
    await stage.start()
    plan = stage.plan("""
- step: start
  tool:
  - name: act
    kind: puppet
    args: {sum: "{{ range(20000) | sum }}"}
    spec: {policy: {rules: [{when: "{{ range(20000) | sum > 0 }}", then: {do: continue, set_ctx: {n: 2}}}]}}
""")
    await stage.issue(stage.command(plan))
    await stage.soon(lambda: any(isinstance(fact, TaskProcessed) for fact in stage.facts))
    (processed,) = [fact for fact in stage.facts if isinstance(fact, TaskProcessed)]
    assert processed.set_ctx == {"n": 2} and processed.outcome.status == "ok"
