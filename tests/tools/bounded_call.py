"""A program that runs a task, given as JSON on standard input, and prints how it ended and what memory it took."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from noetl_stream.settings.egress import egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.registry import GROUP, create_tools


def memory_bytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def measured_from_here() -> int:
    """Returns the memory of this process, and forgets how much it had."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_bytes("VmRSS")


async def run(given: dict[str, Any]) -> dict[str, Any]:
    [point] = [point for point in entry_points(group=GROUP) if point.name == given["kind"]]
    [tool] = create_tools({point.name: point.load()}, ToolSettings(egress_rules(given["egress"]))).values()
    call = tool_call(given["inputs"], knobs=given["knobs"], credentials=given["credentials"])
    first = tool_call(given["first"], credentials=given["credentials"]) if given["first"] else None
    if first is not None:  # which imports what the kind needs
        await tool.run(first)
    before = measured_from_here()
    try:
        result = (await asyncio.wait_for(tool.run(call), given["timeout_s"])).result
        end = f"{len(json.dumps(result))} bytes"
    except ToolFailure as failure:
        end = failure.error.kind
    except TimeoutError:
        end = "timeout of the task"
    grown = memory_bytes("VmHWM") - before
    await tool.close()
    return {"end": end, "grown_bytes": grown}


print(json.dumps(asyncio.run(run(json.load(sys.stdin)))))
