"""What the client in TypeScript does: the same scenarios, in Node; what it is made from; what its page says."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from broken_line import BrokenLine
from client_scenarios import BREAKS, OVER_BREAKS, SCENARIOS
from gateway_stage import TOKEN, GatewayStage

from cli_program import environment
from wheel_building import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from typescript_code import typescript_code

CLIENT = ROOT / "clients" / "typescript"
COMPILER = ROOT / "web" / "node_modules" / ".bin" / "tsc"
DRIVER = Path(__file__).with_name("scenarios.mjs")
PAGE = ROOT / "docs" / "how-to" / "use-typescript.md"

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not COMPILER.exists(),
    reason="NO NODE: the client in TypeScript is not tested. Install Node 20.19 or newer, and run `npm ci` in web/",
)


def test_the_generated_modules_are_what_the_script_writes() -> None:
    stale = [str(file.relative_to(ROOT)) for file, text in typescript_code().items() if file.read_text() != text]
    assert stale == [], "run `python scripts/typescript_code.py`"


def test_the_client_has_the_version_of_the_program_and_no_dependencies() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    assert f'version = "{package["version"]}"' in (ROOT / "pyproject.toml").read_text()
    assert "dependencies" not in package


async def node(*words: object, given: str = "", cwd: Path = ROOT, **settings: str) -> str:
    """What a program in Node prints; ``settings`` are environment variables."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *map(str, words), cwd=cwd, env=environment(**settings), stdin=pipe, stdout=pipe, stderr=pipe
    )
    told, errors = await process.communicate(given.encode())
    assert process.returncode == 0, f"{told.decode()}{errors.decode()}"
    return told.decode()


@pytest.fixture
async def installed(tmp_path: Path) -> Path:
    """A folder where a program in Node finds the package as it is published."""
    package = tmp_path / "node_modules" / "noetl-stream-client"
    await node(COMPILER, "--project", CLIENT, "--outDir", package / "dist")
    shutil.copy(CLIENT / "package.json", package)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return tmp_path


@needs_node
@pytest.mark.parametrize("breaks", [(), BREAKS * 100], ids=["as it is", "over a line that breaks"])
async def test_the_client_in_typescript_does_what_the_scenarios_say(
    stage: GatewayStage, installed: Path, breaks: tuple[int, ...]
) -> None:
    index = installed / "node_modules" / "noetl-stream-client" / "dist" / "index.js"
    scenarios = OVER_BREAKS if breaks else SCENARIOS
    async with BrokenLine(stage.url, breaks).open() as line:
        given = json.dumps({"url": line.url, "token": TOKEN, "scenarios": scenarios})
        outcomes = json.loads(await node("node", DRIVER, index, given=given))
    assert outcomes == {one["name"]: None for one in scenarios}


@needs_node
async def test_the_blocks_of_the_page_are_typed_and_do_what_it_says(stage: GatewayStage, installed: Path) -> None:
    blocks = "".join(re.findall(r"^```ts\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    (installed / "page.ts").write_text(blocks)
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom,dom.asynciterable"]
    await node(COMPILER, *options, installed / "page.ts", cwd=installed)
    told = await node("node", installed / "page.js", NOETL_URL=stage.url, NOETL_TOKEN=TOKEN)
    assert told.splitlines() == re.findall(r"console\.log\(.*\) // (.*)$", blocks, re.MULTILINE)


@needs_node
async def test_a_client_without_an_address_fails_at_once_outside_a_page(installed: Path) -> None:
    program = (
        "import { Client } from 'noetl-stream-client'\ntry { new Client('') } catch (error) { console.log(error.name) }"
    )
    (installed / "program.js").write_text(program)
    assert await node("node", installed / "program.js") == "ConfigurationError\n"
