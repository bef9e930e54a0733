"""``kind: files`` on an SFTP server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncssh
import msgspec
import pytest

from noetl_stream.settings.egress import egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream_files import sftp, transfer
from noetl_stream_files.tool import FilesTool
from noetl_testkit.waiting import TIMEOUT_S

CSV = b"id,name\n1,Ada\n"
PASSWORD = "a password of tests"


class Login(asyncssh.SSHServer):
    """Lets in whoever has the password, or the key."""

    def __init__(self, key: asyncssh.SSHKey) -> None:
        self._key = key.export_public_key()

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == ("ada", PASSWORD)

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "ada" and key.export_public_key() == self._key


class PlainFiles(asyncssh.SFTPServer):
    """A server that cannot replace a file in one step."""

    def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        raise asyncssh.SFTPOpUnsupported("no such request")


class Stage:
    """A server with a folder, and tasks on it.

    Attributes:
        made: What serves its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: Callable[..., Any] = asyncssh.SFTPServer
        self.key, self.login = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        self.data = FilesInMemory()
        self.port = 0
        self.credential = {"username": "ada", "password": PASSWORD, "host_key": self.key.export_public_key().decode()}

    @property
    def place(self) -> str:
        return f"sftp://127.0.0.1:{self.port}"

    def serve(self, channel: Any) -> Any:
        return self.made(channel, chroot=os.fsencode(self.folder))

    async def __call__(self, *, allowed: str = "loopback", **inputs: Any) -> Any:
        settings = {"folders": [str(self.folder.parent)]}
        tool = FilesTool.configured(ToolSettings(egress=egress_rules(allowed), own={"files": settings}))
        call = tool_call({"auth": "server", **inputs}, credentials={"server": self.credential}, data=self.data)
        async with asyncio.timeout(TIMEOUT_S):
            made = await tool.run(msgspec.structs.replace(call, idempotency_key=os.urandom(8).hex()))
        return made.result

    async def error(self, **inputs: Any) -> tuple[str, str]:
        with pytest.raises(ToolFailure) as failed:
            await self(**inputs)
        return failed.value.error.kind, failed.value.error.message

    async def save(self, data: bytes = CSV) -> dict[str, Any]:
        async def pieces() -> AsyncIterator[bytes]:
            yield data

        return await self.data.save(pieces(), name="orders.csv", media_type="text/csv")

    async def read(self, place: str) -> bytes:
        reference = self.data.reference((await self(copy=place, into="file"))["file"])
        assert reference is not None
        return b"".join([part async for part in self.data.read(reference)])

    def names(self) -> list[str]:
        return sorted(str(one.relative_to(self.folder)) for one in self.folder.rglob("*") if one.is_file())


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Stage]:
    folder = tmp_path / "served"
    folder.mkdir()
    stage = Stage(folder)
    listening = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: Login(stage.login),
        server_host_keys=[stage.key],
        sftp_factory=stage.serve,
    )
    stage.port = listening.get_port()
    yield stage
    listening.close()
    await listening.wait_closed()


async def test_a_stored_file_is_written_to_a_server_and_read_back(server: Stage) -> None:
    written = await server(copy=await server.save(), to=f"{server.place}/in/2026/odd #?%20ä.csv")
    assert (written["name"], written["size"], written["media_type"]) == ("odd #?%20ä.csv", len(CSV), "")
    assert await server(stat=written["path"]) == written
    assert await server.read(written["path"]) == CSV
    assert server.names() == ["in/2026/odd #?%20ä.csv"]


async def test_a_large_file_passes_through_in_pieces(server: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "WHOLE_BYTES", 1_000)
    data = os.urandom(3_000_000)
    written = await server(copy=await server.save(data), to=f"{server.place}/large")
    assert await server.read(written["path"]) == data
    assert server.names() == ["large"]


async def test_files_are_listed_by_path_without_links_and_what_is_not_finished(server: Stage) -> None:
    for name in ("b.csv", "a/z.csv", "a/y.txt", f".c.csv{sftp._UNFINISHED}"):  # noqa: SLF001
        (server.folder / name).parent.mkdir(exist_ok=True)
        (server.folder / name).write_bytes(CSV)
    (server.folder / "link.csv").symlink_to(server.folder / "b.csv")
    first = await server(list=server.place, pattern="*.csv", limit=1)
    second = await server(list=server.place, pattern="*.csv", after=first["next"])
    found = [one["path"].removeprefix(f"{server.place}/") for one in (*first["files"], *second["files"])]
    assert (found, second["next"]) == (["a/z.csv", "b.csv"], None)
    assert (await server(list=f"{server.place}/none"))["files"] == []


async def test_files_are_moved_deleted_and_synchronized_with_a_folder(server: Stage) -> None:
    local = f"file://{server.folder.parent}/kept"
    (server.folder / "a.csv").write_bytes(CSV)
    await server(move=f"{server.place}/a.csv", to=f"{server.place}/in/b.csv")
    assert (await server(sync=f"{server.place}/in", to=local))["copied"]["count"] == 1
    assert (await server(sync=f"{server.place}/in", to=local))["copied"]["count"] == 0
    assert (server.folder.parent / "kept" / "b.csv").read_bytes() == CSV
    assert await server(delete=[f"{server.place}/in/b.csv", f"{server.place}/none"]) == {"deleted": 2}
    assert server.names() == []
    assert (await server.error(stat=f"{server.place}/in/b.csv"))[0] == "not_found"


async def test_arrivals_are_distinguished_by_a_marker_on_the_server(server: Stage) -> None:
    state = f"{server.place}/state.json"
    (server.folder / "in").mkdir()
    (server.folder / "in" / "a.csv").write_bytes(CSV)
    first = await server(list=f"{server.place}/in", arrived=state)
    await server(mark=state, marker=first["marker"])
    assert [one["name"] for one in first["files"]] == ["a.csv"]
    assert (await server(list=f"{server.place}/in", arrived=state))["files"] == []
    (server.folder / "in" / "a.csv").write_bytes(CSV * 2)
    assert len((await server(list=f"{server.place}/in", arrived=state))["files"]) == 1


async def test_a_condition_holds_when_the_file_is_renamed(server: Stage) -> None:
    file, goal = await server.save(), f"{server.place}/a.csv"
    await server(copy=file, to=goal, **{"if": "absent"})
    assert (await server.error(copy=file, to=goal, **{"if": "absent"}))[0] == "conflict"
    etag = (await server(stat=goal))["etag"]
    await server(copy=await server.save(CSV * 2), to=goal, **{"if": etag})
    assert (await server.error(copy=file, to=goal, **{"if": etag}))[0] == "conflict"
    assert (server.names(), await server.read(goal)) == (["a.csv"], CSV * 2)


async def test_of_two_that_write_an_absent_file_one_wins(server: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(*_given: Any) -> str:
        return "create"

    monkeypatch.setattr(transfer, "_mode", create)  # as if another wrote right after the comparison
    (server.folder / "a.csv").write_bytes(b"first")
    assert (await server.error(copy=await server.save(), to=f"{server.place}/a.csv"))[0] == "conflict"
    assert (server.folder / "a.csv").read_bytes() == b"first"


async def test_a_server_that_cannot_replace_a_file_in_one_step_is_not_asked_to(server: Stage) -> None:
    server.made = PlainFiles
    file, goal = await server.save(), f"{server.place}/a.csv"
    await server(copy=file, to=goal)
    assert await server.error(copy=file, to=goal) == ("invalid_input", f"{goal}: its storage cannot do that")
    assert server.names() == ["a.csv"]


async def test_a_key_logs_in(server: Stage) -> None:
    secret = server.login.export_private_key("openssh").decode()
    host_key = f"# of the server\n[127.0.0.1]:{server.port} {server.credential['host_key']}"
    server.credential = {"username": "ada", "private_key": secret, "host_key": host_key}
    assert (await server(list=server.place))["files"] == []


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"host_key": None}, "credential", "sftp:// needs username and host_key"),
        ({"username": None}, "credential", "sftp:// needs username and host_key"),
        ({"password": None}, "credential", "sftp:// needs private_key or password"),
        ({"host_key": "ssh-ed25519 AAAA"}, "credential", "its private_key or host_key cannot be read"),
        ({"host_key": "# none"}, "credential", "host_key is empty"),
        ({"private_key": "-----BEGIN"}, "credential", "its private_key or host_key cannot be read"),
        ({"password": "wrong"}, "refused", "the login is refused"),
        ({"token": "x"}, "credential", "must be a mapping of host_key, passphrase, password, private_key, username"),
    ],
)
async def test_a_credential_that_does_not_fit_is_named_without_its_value(
    server: Stage, changed: dict[str, Any], kind: str, words: str
) -> None:
    given = {**server.credential, **changed}
    server.credential = {name: value for name, value in given.items() if value is not None}
    found, message = await server.error(list=server.place)
    assert (found, words in message) == (kind, True), message
    assert PASSWORD not in message


async def test_a_server_with_another_key_gets_no_password(server: Stage) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    server.credential["host_key"] = other.export_public_key().decode()
    kind, message = await server.error(list=server.place)
    assert (kind, message) == ("credential", f"credential 'server': host_key is not that of {server.place}")


async def test_only_addresses_that_the_operator_allows_are_reached(server: Stage) -> None:
    assert (await server.error(allowed="none", list=server.place))[0] == "forbidden_address"


async def test_a_server_that_does_not_answer_is_a_connection_error(server: Stage) -> None:
    assert (await server.error(list="sftp://127.0.0.1:1"))[0] == "connection"


@pytest.mark.parametrize("place", ["sftp://", "sftp://ada@host/x", "sftp://host:0/x", "sftp://a b/x", "sftp://[::1]/x"])
async def test_an_invalid_place_is_refused(server: Stage, place: str) -> None:
    assert (await server.error(list=place))[0] == "invalid_input"


async def test_a_worker_without_the_library_says_what_to_install(
    server: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sftp, "asyncssh", None)
    kind, message = await server.error(list=server.place)
    assert (kind, "install noetl-stream-files[sftp] there" in message) == ("not_installed", True)
