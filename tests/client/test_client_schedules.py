"""``kind: Schedule`` at the catalog: checked with it, and not registered while nothing starts by it (LANGUAGE §15)."""

from __future__ import annotations

import pytest
from client_stage import BY, ClientStage

from noetl_stream.errors import UsageError
from noetl_stream.testing.simulation.work import playbook, work

SCHEDULE = b"""
apiVersion: noetl.io/v2
kind: Schedule
metadata: { name: often, path: team/often }
spec: { playbook: simulation/flow, every: 15m }
"""


async def test_a_check_says_whether_the_playbook_is_registered(stage: ClientStage) -> None:
    checked = await stage.playbooks.check(SCHEDULE, "file.yaml")
    assert (checked.ok, checked.path) == (True, "team/often")
    assert [(one.severity, one.code) for one in checked.diagnostics] == [("warning", "unregistered_playbook")]
    flow = playbook("flow", [{"step": "start", "tool": work(1)}])
    await stage.playbooks.register(flow.encode(), "flow.yaml", BY)
    assert (await stage.playbooks.check(SCHEDULE, "file.yaml")).diagnostics == []


async def test_a_schedule_is_not_registered(stage: ClientStage) -> None:
    with pytest.raises(UsageError, match="does not start anything"):
        await stage.playbooks.register(SCHEDULE, "file.yaml", BY)
    assert (await stage.playbooks.page("", {}, 10, None)).items == []
