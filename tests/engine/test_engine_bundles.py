"""The bundle that a playbook names, in the commands of its steps with Python tasks."""

from __future__ import annotations

import pytest
from engine_scenarios import started

from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT, NamespaceShare, StepCommand
from noetl_stream.protocol.subjects import bundle_owner
from noetl_testkit.keys import CAPABILITIES
from noetl_testkit.scenario.scenario import Scenario

NAME = f"team/shop@{'0' * 64}"


def owed(tool: str, root: str) -> tuple[Scenario, StepCommand]:
    scenario = started(f"- step: go\n  tool: {tool}\n", root)
    return scenario, scenario.command(scenario.owed("go"))


@pytest.mark.parametrize("tool", ["{kind: python, function: 'shop:total'}", "{kind: python, code: return 1}"])
def test_a_command_with_python_names_the_bundle_and_carries_its_key(tool: str) -> None:
    _, command = owed(tool, f"bundle: {NAME}\n")
    assert (command.bundle, command.format) == (NAME, AGGREGATES_FORMAT)
    issued = codec.decode_as(StepCommand, CAPABILITIES.encode(command, NamespaceShare()))
    assert set(issued.object_keys) == {command.execution_id, bundle_owner(NAME)}


def test_only_playbooks_with_bundles_are_kept_from_older_servers() -> None:
    scenario, command = owed("{kind: noop}", f"bundle: {NAME}\n")
    plain, _ = owed("{kind: noop}", "")
    assert command.bundle == "" and bundle_owner(NAME) not in command.object_keys
    assert (scenario.plan.newer, plain.plan.newer) == ("has a bundle", "")
    assert owed("{kind: noop}", "")[1].format == FORMAT
