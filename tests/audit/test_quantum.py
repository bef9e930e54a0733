"""The playbook of the audit that needs the plugin, where the plugin is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_stream_quantum.tool import QuantumTool

SOURCE = (Path(__file__).parent / "c13_kind_quantum.yaml").read_text()


async def test_the_kind_is_accepted_and_its_run_says_which_backends_there_are() -> None:
    checked = check(SOURCE, kinds_of(load_tools()))
    assert checked.diagnostics == ()
    assert checked.require_plan().steps["start"].tasks[0].kind == "quantum"
    with pytest.raises(ToolFailure, match="no backend 'ibm_torino' on this worker; it has aer"):
        await QuantumTool().run(tool_call({"backend": "ibm_torino", "circuit": "bell", "shots": 100}))
