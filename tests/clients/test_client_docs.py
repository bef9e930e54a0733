"""What the page about Python says is true: each block is checked by mypy, and run as a cell of a notebook."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from gateway_stage import TOKEN, GatewayStage
from nbclient import NotebookClient

from noetl_testkit.waiting import TIMEOUT_S
from wheel_building import ROOT

PAGE = (ROOT / "docs" / "how-to" / "use-python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWING = [
    'shown = client.start("team/refund", {"amount": 1})\nwhile shown.get().status != "waiting":\n    pass\nshown',
    'assert shown.patch({"decision": "approved"}) and shown.result(60)',
    "import threading\n[one.join() for one in threading.enumerate() if one.name.startswith('display of')]\nNone",
]
"""Cells that show an execution which waits, let it go on, and wait for what shows it."""
SHOWN = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)


def test_the_blocks_of_the_page_are_typed(tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    file.write_text("\n".join(BLOCKS))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout


async def test_the_blocks_of_the_page_do_what_it_says_in_a_notebook(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_URL", stage.url)
    monkeypatch.setenv("NOETL_TOKEN", TOKEN)
    cells = [block.replace("asyncio.run(main())", "await main()") for block in BLOCKS]
    cells[-1:-1] = SHOWING
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    await NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3").async_execute()
    for cell in notebook.cells:
        told = "".join(one.get("text", "") for one in cell.outputs).splitlines()
        expected = SHOWN.findall(cell.source)
        assert len(told) == len(expected), cell.source
        for line, shown in zip(told, expected, strict=True):
            pattern = ".*".join(map(re.escape, shown.split("…")))
            assert re.fullmatch(pattern, line), line
    (shown,) = notebook.cells[-len(SHOWING) - 1].outputs
    assert re.fullmatch("<ExecutionHandle .* of team/refund>", shown["data"]["text/plain"])
    html = shown["data"]["text/html"]
    assert "<svg" in html and ">completed</b>" in html and "waiting" not in html, "the cell has followed the execution"
