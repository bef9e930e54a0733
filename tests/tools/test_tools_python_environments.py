"""Environments of ``python`` tasks: made once from a lock, shown to the children of one playbook alone."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from noetl_stream.model.bundles import named_bundle, zip_of
from noetl_stream.settings.children import CONFINEMENTS, ChildSettings, Confinement, EnvironmentSettings
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import ToolCall, ToolFailure, WorkerUnfit
from noetl_stream.tools.python.environments import environment_store
from noetl_stream.tools.python.environments.entry import MODULES
from noetl_stream.tools.python.environments.environment_store import MakingEnvironment, failure_of
from noetl_stream.tools.python.environments.interpreters import Interpreter, interpreters_of
from noetl_stream.tools.python.environments.requirements import Requirements, requirements_of
from noetl_stream.tools.python.tool import PythonTool
from noetl_testkit.waiting import TIMEOUT_S
from wheels import wheel, wheel_of_installed

in_child = pytest.mark.asyncio(loop_scope="module")
SHOW = "import tiny\nreturn tiny.VERSION"
SHOP = """\
from noetl_stream_client import Context, Fatal


def doubled(n: int, context: Context) -> int:
    if n < 0:
        raise Fatal(context.step)
    return 2 * n
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels."""
    folder = tmp_path_factory.mktemp("index")
    folder.chmod(0o755)  # children have users of their own
    wheel(folder, "tiny", "1.0", {"tiny.py": "VERSION = '1.0'\n"})
    wheel(folder, "tiny", "2.0", {"tiny.py": "VERSION = '2.0'\n"}, requires=["base>=1"])
    wheel(folder, "base", "1.0", {"base.py": "", "base.pth": "import os; os.environ['BASE'] = 'began'\n"})
    wheel(folder, "large", "1.0", {"large.py": f"TEXT = '{'x' * 200_000}'\n"})
    wheel_of_installed(folder, "msgspec")
    return folder


def environments(folder: Path, index: Path, **settings: Any) -> EnvironmentSettings:
    given = {"interpreters": (sys.executable,), **settings}
    return EnvironmentSettings(folder=str(folder), index=str(index), **given)


def lock(index: Path, *pins: str) -> bytes:
    """The lock of these versions, as uv writes it."""
    lines = []
    for pin in pins:
        name, _, version = pin.partition("==")
        (file,) = index.glob(f"{name}-{version}-*.whl")
        lines.append(f"{pin} \\\n    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n")
    return "".join(lines).encode()


def call(data: bytes, *, heard: list[bytes] | None = None, shared: bool = False, **inputs: Any) -> ToolCall:
    """The call of a task of a playbook with this lock, of an environment that its code requires."""
    python = {"requires": ["tiny"], "python": inputs.pop("python", "")}
    wanted = requirements_of(python, inputs.get("code", ""), converts="function" in inputs or shared)
    assert wanted is not None
    bundle = zip_of({wanted.lock_name: data, "packages/shop.py": SHOP.encode()})
    name = str(named_bundle("team/shop", bundle))

    async def read() -> bytes:
        return bundle

    written = [] if heard is None else heard
    made = tool_call(inputs, trust_domain=name, knobs={"python": python, "python_shared": shared})
    return replace(made, bundle=name, read_bundle=read, write=lambda _, text: written.append(text))


async def run(tool: PythonTool, one: ToolCall) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        return (await tool.run(one)).result


async def failure(tool: PythonTool, one: ToolCall) -> Any:
    with pytest.raises(ToolFailure) as failed:
        await run(tool, one)
    return failed.value.error


@pytest_asyncio.fixture(loop_scope="module")
async def folder(tmp_path: Path) -> Path:
    return tmp_path / "environments"


@pytest_asyncio.fixture(loop_scope="module")
async def tool(folder: Path, index: Path) -> AsyncIterator[PythonTool]:
    tool = PythonTool(environments=environments(folder, index), max_children=2)
    yield tool
    await tool.close()


def all_in(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def made_in(folder: Path) -> list[str]:
    return [name for name in all_in(folder) if not name.startswith("making-")]


@in_child
async def test_each_lock_has_its_environment_which_is_made_once(tool: PythonTool, folder: Path, index: Path) -> None:
    old, new = lock(index, "tiny==1.0"), lock(index, "tiny==2.0", "base==1.0")
    found = await asyncio.gather(*(run(tool, call(one, code=SHOW)) for one in (old, new, old, new)))
    assert found == ["1.0", "2.0", "1.0", "2.0"] and len(made_in(folder)) == 2


@in_child
async def test_a_task_sees_its_environment_and_its_bundle_and_no_package_of_the_worker(
    tool: PythonTool, index: Path
) -> None:
    code = """
import importlib.util, os, shop, sys
known = [name for name in ("tiny", "msgspec", "pydantic", "pip", "pytest") if importlib.util.find_spec(name)]
return [known, shop.doubled(4, None), os.environ.get("BASE"), sys.executable.startswith(sys.prefix)]
"""
    pinned = lock(index, "tiny==2.0", "base==1.0")
    assert await run(tool, call(pinned, code=code)) == [["tiny"], 8, "began", True]
    error = await failure(tool, call(pinned, code="import polars"))
    assert "No module named 'polars'; name its package in `requires`" in error.message


@in_child
async def test_a_function_has_its_inputs_converted_by_its_environment(tool: PythonTool, index: Path) -> None:
    pinned = lock(index, "tiny==1.0", wheel_of_installed(index, "msgspec"))
    assert await run(tool, call(pinned, function="shop:doubled", args={"n": 21})) == 42
    program = "async def main():\n    import tiny\n    return tiny.VERSION"
    shared = (run(tool, call(pinned, code=program, shared=True)) for _ in range(2))
    assert await asyncio.gather(*shared) == ["1.0", "1.0"]
    error = await failure(tool, call(pinned, function="shop:doubled", args={"n": -1}))
    assert (error.retryable, "Fatal: step" in error.message) == (False, True)
    error = await failure(tool, call(pinned, function="shop:doubled", args={"n": "21"}))
    assert error.kind == "invalid_input" and "args.n" in error.message


@in_child
async def test_an_environment_is_used_by_workers_that_come_later_and_by_others(folder: Path, index: Path) -> None:
    pinned, heard = lock(index, "tiny==1.0"), list[list[bytes]]()
    for _ in range(2):
        tool = PythonTool(environments=environments(folder, index), max_children=1)
        heard.append([])
        try:
            assert await run(tool, call(pinned, heard=heard[-1], code=SHOW)) == "1.0"
        finally:
            await tool.close()
    said = [b"".join(one) for one in heard]
    assert b"tiny" in said[0] and said[1] == b"", "the log of the first says what was installed"


@in_child
@pytest.mark.parametrize("least", CONFINEMENTS)
async def test_no_task_can_change_an_environment(least: Confinement, folder: Path, index: Path) -> None:
    code = """
import pathlib, tiny
try:
    return pathlib.Path(tiny.__file__).write_text("")
except OSError as error:
    return type(error).__name__
"""
    children = ChildSettings(confinement=least)
    tool = PythonTool(children, environments=environments(folder, index), max_children=1)
    try:
        assert await run(tool, call(lock(index, "tiny==1.0"), code=code)) in ("PermissionError", "OSError")
    except WorkerUnfit:
        pytest.skip(f"this machine has no confinement {least}")
    finally:
        await tool.close()


@in_child
async def test_other_tasks_continue_and_the_wait_is_reported_while_an_environment_is_made(
    tool: PythonTool, index: Path
) -> None:
    waits: list[str] = []

    @contextmanager
    def queued(what: str) -> Iterator[None]:
        waits.append(what)
        yield

    one = replace(call(lock(index, "tiny==2.0", "base==1.0"), code=SHOW), queued=queued)
    assert await asyncio.gather(run(tool, one), run(tool, tool_call({"code": "return 1"}))) == ["2.0", 1]
    assert waits[0] == "its environment, for which 2 packages are installed"
    await run(tool, replace(call(lock(index, "tiny==1.0"), code=SHOW), queued=queued))
    assert waits[-1] == "its environment, for which 1 package is installed"


@in_child
async def test_two_workers_make_one_environment_at_once_and_have_one(folder: Path, index: Path) -> None:
    tools = [PythonTool(environments=environments(folder, index), max_children=1) for _ in range(2)]
    try:
        pinned = lock(index, "tiny==1.0")
        assert await asyncio.gather(*(run(tool, call(pinned, code=SHOW)) for tool in tools)) == ["1.0", "1.0"]
        assert len(made_in(folder)) == 1
    finally:
        for tool in tools:
            await tool.close()
    assert all_in(folder) == made_in(folder), "nothing is left half-made"


@pytest.mark.verify
@in_child
async def test_the_longest_unused_environment_makes_room_and_used_ones_stay(folder: Path, index: Path) -> None:
    most = 450_000  # two of three
    tool = PythonTool(environments=environments(folder, index, max_bytes=most * 2), max_children=1)
    first, second = lock(index, "tiny==1.0", "large==1.0"), lock(index, "base==1.0", "large==1.0", "tiny==1.0")
    third = lock(index, "tiny==2.0", "base==1.0", "large==1.0")
    try:
        for pinned in (first, second, first):
            await run(tool, call(pinned, code=SHOW))
        before = made_in(folder)
        await run(tool, call(third, code=SHOW))
        assert len(before) == 2 and len(made_in(folder)) == 2 and len({*before} & {*made_in(folder)}) == 1
    finally:
        await tool.close()
    small = PythonTool(environments=environments(folder / "small", index, max_bytes=1_000), max_children=1)
    try:
        error = await failure(small, call(first, code=SHOW))
    finally:
        await small.close()
    assert "the operator allows 1,000 for all (NOETL_PYTHON_ENVIRONMENTS_MAX_BYTES)" in error.message


@in_child
async def test_a_worker_that_is_killed_while_it_installs_leaves_nothing(folder: Path, index: Path) -> None:
    program = f"""
import asyncio, os, sys
sys.path[:0] = {sys.path!r}
from noetl_stream.tools.python.environments import environment_store as store
async def killed(*_): os.kill(os.getpid(), 9)
store.Environments._complete = killed
from test_tools_python_environments import *
asyncio.run(PythonTool(environments=environments(Path({str(folder)!r}), Path({str(index)!r}))).run(
    call(lock(Path({str(index)!r}), "tiny==1.0"), code=SHOW)))
"""
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=False, cwd=folder.parent)
    assert ended.returncode == -9 and made_in(folder) == []
    assert len(all_in(folder)) == 1, "it had begun"
    tool = PythonTool(environments=environments(folder, index), max_children=1)
    try:
        assert await run(tool, call(lock(index, "tiny==1.0"), code=SHOW)) == "1.0"
    finally:
        await tool.close()
    assert all_in(folder) == made_in(folder)


@in_child
async def test_each_failure_says_what_to_do(folder: Path, index: Path, tmp_path: Path) -> None:
    pinned = lock(index, "tiny==1.0")
    built = tmp_path / "built"
    built.mkdir(mode=0o755)
    (built / "built-1.0.tar.gz").write_bytes(b"")
    of_sdist = f"built==1.0 --hash=sha256:{hashlib.sha256(b'').hexdigest()}".encode()
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("tiny<1\n")
    cases: list[tuple[dict[str, Any], bytes, str, str]] = [
        ({"index": str(built)}, of_sdist, "", "NOETL_PYTHON_SDISTS=on"),
        ({"constraints": str(constraints)}, pinned, "", "tiny<1"),
        ({"interpreters": ("/absent/python",)}, pinned, "", "it has none; NOETL_PYTHON_INTERPRETERS"),
        ({"folder": "/proc/self/environ/below"}, pinned, "", "environments cannot be kept in /proc"),
        ({}, pinned.replace(b"sha256:", b"sha256:0000")[:-5] + b"\n", "", "deploy again"),
        ({}, b"absent==1.0 --hash=sha256:" + b"0" * 64, "", "absent"),
        ({}, pinned, "==3.29.*", "no Python of this worker is ==3.29.*: it has 3."),
        ({"folder": ""}, pinned, "", "NOETL_PYTHON_ENVIRONMENTS"),
    ]
    for changed, data, python, words in cases:
        settings = replace(environments(folder, index), **changed)
        tool = PythonTool(environments=settings, max_children=1)
        try:
            error = await failure(tool, call(data, code=SHOW, python=python))
        finally:
            await tool.close()
        assert (error.kind, error.retryable) == ("environment", False), error
        assert words in error.message


@in_child
async def test_an_unreachable_index_is_reported_with_the_missing_packages(
    folder: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(environment_store.VARIABLES, b"UV_HTTP_RETRIES", b"0")
    away = "http://127.0.0.1:9/simple"
    settings = ToolSettings(python_environments=replace(environments(folder, index), index=away))
    tool = PythonTool.configured(settings)
    try:
        error = await failure(tool, call(lock(index, "tiny==1.0"), code=SHOW))
    finally:
        await tool.close()
    assert (error.code, error.retryable) == ("index_away", True), error.message
    assert f"the index {away} does not give tiny==1.0; see that it runs" in error.message
    assert "NOETL_PYTHON_INDEX" in error.message and all_in(folder) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", str(place)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode != 0:
        pytest.skip("NO DISK: only root mounts a small one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@in_child
async def test_a_full_disk_frees_unused_environments_and_otherwise_is_reported(
    small_disk: Path, index: Path, tmp_path: Path
) -> None:
    folder, pinned = small_disk / "environments", lock(index, "tiny==1.0", "large==1.0")
    tool = PythonTool(environments=environments(folder, index), max_children=1)
    try:
        assert await run(tool, call(pinned, code=SHOW)) == "1.0"
        (first,) = made_in(folder)
        (small_disk / "others").write_bytes(b"x" * free_bytes(small_disk))
        error = await failure(tool, call(lock(index, "tiny==2.0", "base==1.0", "large==1.0"), code=SHOW))
        assert (error.code, error.retryable) == ("disk_full", True)
        assert "no space is left" in error.message and "NOETL_PYTHON_ENVIRONMENTS" in error.message
        assert await run(tool, call(pinned, code=SHOW)) == "1.0" and made_in(folder) == [first]
    finally:
        await tool.close()
    assert all_in(folder) == [first], "nothing is left half-made"
    later = PythonTool(environments=environments(folder, index), max_children=1)
    try:
        assert await run(later, call(lock(index, "tiny==2.0", "base==1.0"), code=SHOW)) == "2.0"
        assert first not in made_in(folder), "it has made room"
    finally:
        await later.close()


def free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Failed to install: big_one-1.0-py3-none-any.whl\n  cause: No space left on device (os error 28)",
            "in /e for",
        ),
        ("Failed to fetch: http://127.0.0.1:9/simple/big-one/\n  cause: error sending request for url", "not give"),
        (
            "Request failed after 3 retries\n  cause: HTTP status server error (503) for url (/simple/big.one/)",
            "not give",
        ),
    ],
)
def test_a_passing_failure_is_reported_with_the_package_and_its_requirer(said: str, words: str) -> None:
    wanted, pins = Requirements(("many>=1",)), b"# many>=1\nbig-one==1.0 \\\n    --hash=sha256:00\none==1.0\n"
    making = MakingEnvironment("name", Interpreter("", "", ""), wanted, pins)
    error = failure_of(f"error: {said}", making, EnvironmentSettings(folder="/e")).error
    assert error.retryable and f"{words} big-one==1.0 (the task requires many>=1); " in error.message


@in_child
async def test_uv_reaches_the_index_by_the_guard_where_tasks_use_the_network_of_the_machine(
    folder: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is the operator's choice, wherever it is; a server that it names for its files is not."""
    monkeypatch.setitem(environment_store.VARIABLES, b"UV_HTTP_RETRIES", b"0")
    pinned = lock(index, "tiny==1.0")
    file = index / "tiny-1.0-py3-none-any.whl"
    async with Index(file) as here, Index(file) as elsewhere:
        for files, is_made in ((here, True), (elsewhere, False)):
            here.files = files.url
            made = replace(environments(folder / str(is_made), index), index=here.url)
            tool = PythonTool.configured(ToolSettings(python_environments=made))
            try:
                if is_made:
                    assert await run(tool, call(pinned, code=SHOW)) == "1.0"
                else:
                    assert (await failure(tool, call(pinned, code=SHOW))).code == "index_away"
            finally:
                await tool.close()
        assert (here.given, elsewhere.given) == (1, 0)


def test_files_of_the_public_index_belong_to_it_wherever_they_are() -> None:
    public, own = EnvironmentSettings(), EnvironmentSettings(index="http://[fd00::1]:8080/simple")
    assert public.index_addresses == ("pypi.org:443", "files.pythonhosted.org:443")
    assert (own.index_addresses, replace(own, index="/wheels").index_addresses) == (("[fd00::1]:8080",), ())


class Index:
    """An index of one package on this machine, whose page names a server for the file. ``given``: how often this one
    has given the file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.url = self.files = ""
        self.given = 0

    async def __aenter__(self) -> Index:
        app = web.Application()
        app.router.add_get("/{package}/", self._page)
        app.router.add_get(f"/files/{self._file.name}", self._give)
        self._server = TestServer(app)
        await self._server.start_server()
        self.url = str(self._server.make_url("")).rstrip("/")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    async def _page(self, _request: web.Request) -> web.Response:
        link = f'<a href="{self.files}/files/{self._file.name}">{self._file.name}</a>'
        return web.Response(text=f"<!DOCTYPE html><html><body>{link}</body></html>", content_type="text/html")

    async def _give(self, _request: web.Request) -> web.Response:
        self.given += 1
        return web.Response(body=self._file.read_bytes())


@in_child
async def test_a_playbook_without_a_lock_is_refused_with_the_command_that_makes_one(tool: PythonTool) -> None:
    made = tool_call({"code": SHOW}, knobs={"python": {"requires": ["tiny"]}})
    error = await failure(tool, made)
    assert error.message == (
        "the playbook has no lock of tiny: `noetl-stream deploy` and `run FILE` lock what tasks require"
    )


@pytest.mark.parametrize("python", [f"3.{minor}" for minor in range(11, 15)])
def test_the_template_needs_the_standard_library_alone(python: str, tmp_path: Path) -> None:
    candidates = [sys.executable, *map(str, Path.home().glob(f".pyenv/versions/{python}.*/bin/python"))]
    found = [one for one in interpreters_of(candidates) if one.version.startswith(f"{python}.")]
    if not found:
        pytest.skip(f"no Python {python} here")
    import noetl_stream

    for module in MODULES:
        parts = module.split(".")
        target = tmp_path.joinpath("noetl_stream", *parts).with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(noetl_stream.__file__).parent.joinpath(*parts).with_suffix(".py").read_bytes())
    names = [f"noetl_stream.{module}" for module in MODULES if not module.endswith("event_loop")]
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; [__import__(name) for name in {names!r}]"
    ended = subprocess.run([found[0].path, "-I", "-S", "-c", program], check=False, env={"PATH": os.defpath})
    assert ended.returncode == 0
