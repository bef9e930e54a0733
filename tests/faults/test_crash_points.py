"""At each crash point a real process is killed: what it was doing is done, and once in the books (PROTOCOL §2, §3)."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from crash_points import IN_THE_GATE, POINTS, Call
from fault_books import problems
from fault_stack import FaultStack, Role, ended, running_stack
from fault_work import CANCELLED, JOBS, Job, named

from homes import copy_home, folder_for_home

pytestmark = [pytest.mark.xdist_group("own_stacks"), pytest.mark.verify]

PROGRAM = Path(__file__).parent / "crashing_program.py"
PATIENCE_S = 300.0
"""Then something is stuck: a point takes six seconds on two cores."""

LOG_SHOWN = 3_000
"""Characters of the log of a process that does not come to its point."""


class Crashes:
    """Kills processes of a stack at crash points."""

    def __init__(self, stack: FaultStack, armed: Path) -> None:
        self.jobs: dict[str, Job] = {}
        self.repeatable: set[str] = set()
        self._stack = stack
        self._armed = armed

    async def crash_at(self, point: str) -> None:
        """Brings the role to the point, where it is killed, while it runs a job."""
        call = POINTS[point]
        (role,) = self._stack.of_kind(call.role)
        await self._run(JOBS["chain"], f"before {point}", ends=True)
        role.forget_deaths()
        if call.reached == "start":  # the next process shall come to the point, not this one
            role.send(signal.SIGKILL)
            await role.died(PATIENCE_S)
            role.forget_deaths()
        self._armed.write_text(point)
        running = asyncio.create_task(self._reach(call, role, point))
        try:
            death = await role.died(PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"{point} is not reached: {self._stack.log(role.name)[-LOG_SHOWN:]}") from None
        assert (point, self._armed.exists(), death) == (point, False, -signal.SIGKILL)
        await running

    async def _reach(self, call: Call, role: Role, point: str) -> None:
        if call.reached == "stop":
            role.send(signal.SIGTERM)
        if call.reached == "cancelled":
            execution_id = await self._run(CANCELLED, point, ends=False)
            await self._stack.cancel(execution_id, f"cancel {point}".replace(" ", "-"))
            return
        job = named(JOBS["chain"], point) if call.reached == "new" else JOBS.get(call.reached, JOBS["chain"])
        execution_id = await self._run(job, point, ends=False)
        if call.role == "worker":
            self.repeatable.add(execution_id)

    async def _run(self, job: Job, key: str, *, ends: bool) -> str:
        async with asyncio.timeout(PATIENCE_S):
            execution_id = await self._stack.submit(job, key.replace(" ", "-"))
        self.jobs[execution_id] = job
        if ends:
            assert await ended(self._stack, [execution_id], PATIENCE_S) == []
        return execution_id


async def check_crashes(points: Sequence[str], used_home: Path) -> None:
    with folder_for_home("faults") as folder:
        home, armed = copy_home(used_home, folder / "home"), folder / "armed"
        program = (sys.executable, str(PROGRAM), str(armed))
        async with running_stack(home, {"server": 1, "worker": 1, "gateway": 1}, program=program) as stack:
            crashes = Crashes(stack, armed)
            for point in sorted(points, key=lambda one: ["worker", "server", "gateway"].index(POINTS[one].role)):
                await crashes.crash_at(point)
            assert await ended(stack, list(crashes.jobs), PATIENCE_S) == []
            steady = {one: job for one, job in crashes.jobs.items() if one not in crashes.repeatable}
            touched = {one: job for one, job in crashes.jobs.items() if one in crashes.repeatable}
            assert await problems(stack, steady, lambda times: False) == []
            of_worker = sum(POINTS[point].role == "worker" for point in points)
            assert await problems(stack, touched, lambda times: len(times) <= 1 + of_worker) == []


async def test_a_process_that_is_killed_at_a_point_of_each_kind_loses_and_doubles_nothing(used_home: Path) -> None:
    await check_crashes(IN_THE_GATE, used_home)


async def test_a_process_that_is_killed_at_any_point_loses_and_doubles_nothing(used_home: Path) -> None:
    await check_crashes(list(POINTS), used_home)
