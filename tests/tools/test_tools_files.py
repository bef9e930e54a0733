"""``kind: files`` on an S3 server and on folders."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from cloud_emulators import BY_EMULATOR, CLOUDS, Cloud
from noetl_stream.errors import UsageError
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.sealing.data_references import Column
from noetl_stream.settings.egress import egress_rules
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_stream_files import operations, transfer
from noetl_stream_files.places import is_match
from noetl_stream_files.stores import Storage
from noetl_stream_files.tool import FilesTool
from object_storage import ACCESS_KEY, SECRET_KEY, ObjectStorage, object_storage
from own_certificate import write_certificate

CSV = b"id,name\n1,Ada\n"


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as running:
        yield running


class Runner:
    """Runs tasks against the bucket, each test below a prefix of its own, and on one folder."""

    def __init__(self, storage: ObjectStorage, name: str, folder: Path) -> None:
        self.bucket = f"s3://bucket/{name}"
        self.folder = folder
        self.objects = storage.folder / "bucket" / name
        self.data = FilesInMemory()
        self.beats: list[Any] = []
        self.credentials: dict[str, Any] = {
            "bucket": {"endpoint": storage.url, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        }
        self.tool = self.configured()

    def configured(self, allowed: str = "loopback", **own: Any) -> FilesTool:
        settings = {"folders": [str(self.folder)], **own}
        return FilesTool.configured(ToolSettings(egress=egress_rules(allowed), own={"files": settings}))

    async def __call__(self, *, run: str = "", previous: Any = None, **inputs: Any) -> Any:
        call = tool_call({"auth": "bucket", **inputs}, credentials=self.credentials, data=self.data)
        changes = {"idempotency_key": run or os.urandom(8).hex(), "beat": self.beats.append}
        async with asyncio.timeout(60):
            made = await self.tool.run(msgspec.structs.replace(call, previous_details=previous, **changes))
        return made.result

    async def failure(self, **inputs: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failed:
            await self(**inputs)
        return failed.value

    async def error(self, **inputs: Any) -> tuple[str, str]:
        error = (await self.failure(**inputs)).error
        return error.kind, error.message

    async def save(self, data: bytes = CSV, media_type: str = "text/csv") -> dict[str, Any]:
        async def pieces() -> AsyncIterator[bytes]:
            yield data

        return await self.data.save(pieces(), name="orders.csv", media_type=media_type)

    async def put(self, path: str, data: bytes = CSV) -> str:
        """Writes a file below the bucket or the folder, and returns its place."""
        place = path if "://" in path else f"{self.bucket}/{path}"
        await self(copy=await self.save(data), to=place)
        return place

    async def read(self, place: str) -> bytes:
        saved = (await self(copy=place, into="file"))["file"]
        reference = self.data.reference(saved)
        assert reference is not None
        return b"".join([part async for part in self.data.read(reference)])

    async def names(self, place: str, **inputs: Any) -> list[str]:
        return [one["path"].removeprefix(f"{place}/") for one in (await self(list=place, **inputs))["files"]]


@pytest.fixture
def files(storage: ObjectStorage, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Runner]:
    storage.refused = storage.never
    (tmp_path / "shared").mkdir()
    yield Runner(storage, request.node.name.partition("[")[0].removeprefix("test_")[:60], tmp_path / "shared")
    storage.refused = storage.never


@pytest.fixture(scope="module")
def cloud() -> Iterator[Callable[[str], Cloud]]:
    with ExitStack() as opened:
        yield cache(lambda name: opened.enter_context(CLOUDS[name]()))


@pytest.fixture(params=["s3", "file", *BY_EMULATOR])
def place(files: Runner, request: pytest.FixtureRequest) -> str:
    if request.param in CLOUDS:
        found: Cloud = request.getfixturevalue("cloud")(request.param)
        files.bucket = f"{found.scheme}{files.bucket.removeprefix('s3')}"
        files.credentials["bucket"] = found.credential
        return files.bucket
    return files.bucket if request.param == "s3" else f"file://{files.folder}"


async def test_a_stored_file_is_written_to_a_place_and_read_back(files: Runner, place: str) -> None:
    written = await files(copy=await files.save(), to=f"{place}/in/odd #?%20ä.csv")
    assert (written["name"], written["size"]) == ("odd #?%20ä.csv", len(CSV))
    assert written["path"] == f"{place}/in/odd #?%20ä.csv"
    assert await files(stat=written["path"]) == written
    assert await files.read(written["path"]) == CSV


async def test_the_media_type_goes_along(files: Runner) -> None:
    first = await files(copy=await files.save(), to=f"{files.bucket}/a.csv")
    second = await files(copy=first["path"], to=f"{files.bucket}/b.csv")
    third = await files(copy=second["path"], to=f"{files.bucket}/c", media_type="text/plain")
    saved = (await files(copy=second["path"], into="file"))["file"]
    assert [one["media_type"] for one in (first, second, third, saved)] == [
        "text/csv", "text/csv", "text/plain", "text/csv",
    ]  # fmt: skip


async def test_a_long_file_is_written_in_parts_and_read_in_pieces(
    files: Runner, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "WHOLE_BYTES", 5 << 20)
    long = os.urandom(12 << 20)
    assert await files.read(await files.put(f"{place}/long.bin", long)) == long
    copy = await files(copy=f"{place}/long.bin", to=f"{files.bucket}/copy.bin")
    assert await files.read(copy["path"]) == long


async def test_a_long_file_is_not_joined_over_one_that_came_meanwhile(
    files: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "WHOLE_BYTES", 5 << 20)
    target, source = f"{files.bucket}/claim", await files.save(os.urandom(12 << 20))
    read = files.data.read

    async def while_another_writes(reference: Any) -> AsyncIterator[bytes]:
        monkeypatch.setattr(files.data, "read", read)
        async for part in read(reference):
            yield part
        await files.put(target)

    monkeypatch.setattr(files.data, "read", while_another_writes)
    assert (await files.error(copy=source, to=target, **{"if": "absent"}))[0] == "conflict"
    assert await files.read(target) == CSV


async def test_a_storage_that_cannot_drop_the_parts_of_a_file_does_not_hide_the_conflict(
    files: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "WHOLE_BYTES", 5 << 20)
    target, source = f"{files.bucket}/claim", await files.save(os.urandom(12 << 20))
    read, writer = files.data.read, Storage.writer

    async def while_another_writes(reference: Any) -> AsyncIterator[bytes]:
        async for part in read(reference):
            yield part
        monkeypatch.setattr(files.data, "read", read)
        await files.put(target)

    @asynccontextmanager
    async def with_lost_parts(*given: Any) -> AsyncIterator[Any]:
        try:
            async with writer(*given) as opened:
                yield opened
        except Exception:
            raise FileNotFoundError("NoSuchUpload") from None

    monkeypatch.setattr(files.data, "read", while_another_writes)
    monkeypatch.setattr(Storage, "writer", with_lost_parts)
    assert (await files.error(copy=source, to=target, **{"if": "absent"}))[0] == "conflict"


async def test_a_task_that_is_cancelled_leaves_no_file(files: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "WHOLE_BYTES", 5 << 20)
    source, reached = await files.save(os.urandom(12 << 20)), asyncio.Event()
    read = files.data.read

    async def for_ever(reference: Any) -> AsyncIterator[bytes]:
        async for part in read(reference):
            yield part
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(files.data, "read", for_ever)
    task = asyncio.create_task(files(copy=source, to=f"{files.bucket}/long"))
    async with asyncio.timeout(60):
        await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await files.names(files.bucket) == []


class Recorder:
    """A server that has nothing, and remembers what was asked of it; also over TLS, with a certificate of its own."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.certificate, self._key = write_certificate(folder, 2, ca=False)
        self.url = ""
        self.tls_url = ""

    async def start(self, runner: web.AppRunner) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self._key)
        for given in (None, context):
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=given).start()
        plain, tls = (address[1] for address in runner.addresses)
        self.url, self.tls_url = f"http://127.0.0.1:{plain}", f"https://127.0.0.1:{tls}"

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.raw_path, request.headers.get("Authorization", "")))
        return web.Response(status=404)


@pytest.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[Recorder]:
    made = Recorder(tmp_path)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await made.start(runner)
    yield made
    await runner.cleanup()


async def test_tls_goes_through_the_guard_with_the_authorities_of_the_operator(
    files: Runner, recorder: Recorder
) -> None:
    asked: dict[str, Any] = {"stat": "s3://b1/x", "auth": {"endpoint": recorder.tls_url}}
    error = (await files.failure(**asked)).error
    assert (error.message, error.retryable) == ("s3://b1/x: the certificate of the storage is refused", False)
    files.tool = FilesTool(ToolSettings(egress=egress_rules("loopback"), http_ca=recorder.certificate))
    assert await files.error(**asked) == ("not_found", "s3://b1/x is not there")
    assert [path for _, path, _ in recorder.seen] == ["/b1/x"]


async def test_a_table_is_a_parquet_file(files: Runner) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"PAR1"

    table = await files.data.save(pieces(), columns=[Column("id", "BIGINT")], rows=1)
    assert (await files(copy=table, to=f"{files.bucket}/t"))["media_type"] == "application/vnd.apache.parquet"


@pytest.mark.parametrize(
    ("place", "auth", "path", "signature"),
    [
        ("gs://b1/a/x%20y", {"token": "of-the-task"}, "/b1/a%2Fx%2520y", "Bearer of-the-task"),
        ("gs://b1/a", {}, "/b1/a", ""),
        ("az://b1/a/x", {"account_name": "acc", "account_key": "b2YgdGhlIHRhc2s="}, "/b1/a/x", "SharedKey acc:"),
        ("az://b1/a/x", {"account_name": "acc", "sas_token": "?sv=1&sig=two"}, "/b1/a/x?sv=1&sig=two", ""),
        ("az://b1/a/x", {"account_name": "acc"}, "/b1/a/x", ""),
    ],
)
async def test_each_cloud_is_asked_in_its_words_and_with_the_credential_of_the_task(
    files: Runner, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, place: str, auth: Any, path: str, signature: str
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_TOKEN", "GOOGLE_BEARER_TOKEN"):
        monkeypatch.setenv(name, "b2YgdGhlIHdvcmtlcg==")
    assert await files.error(stat=place, auth={**auth, "endpoint": recorder.url}) == (
        "not_found", f"{place} is not there",
    )  # fmt: skip
    ((method, asked, authorization),) = recorder.seen
    assert (method, asked) == ("HEAD", path)
    assert authorization.startswith(signature)
    assert bool(authorization) is bool(signature)


async def test_a_list_has_pages_in_the_order_of_paths(files: Runner, place: str) -> None:
    for name in ("c.csv", "a.csv", "b/x.csv", "b.txt", "d.csv"):
        await files.put(f"{place}/{name}")
    first = await files(list=place, pattern="*.csv", limit=2)
    second = await files(list=place, pattern="*.csv", limit=2, after=first["next"])
    assert [one["path"].removeprefix(f"{place}/") for one in (*first["files"], *second["files"])] == [
        "a.csv", "b/x.csv", "c.csv", "d.csv",
    ]  # fmt: skip
    assert second["next"] is None
    assert await files.names(f"{place}/none") == []


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.csv", "2026/11/a.csv", True),
        ("*.csv", "a.csv.gz", False),
        ("*/a.csv", "2026/a.csv", True),
        ("*/a.csv", "2026/11/a.csv", False),
        ("2026/**/*.csv", "2026/a.csv", True),
        ("2026/**/*.csv", "2026/11/30/a.csv", True),
        ("2026/**", "2025/a.csv", False),
        ("**", "2025/a.csv", True),
        ("**/**/**/**/**/b", "a/" * 200 + "c", False),
        ("*a*a*a*a*a*a*a*a*a*a*b", "a" * 500, False),
    ],
)
def test_a_pattern_is_about_names_and_folders(pattern: str, path: str, matches: bool) -> None:
    assert is_match(pattern, path) is matches


async def test_a_write_under_a_condition_loses_to_another_writer(files: Runner) -> None:
    place = f"{files.bucket}/claim"
    won = await files(copy=await files.save(), to=place, **{"if": "absent"})
    assert (await files.error(copy=await files.save(b"other"), to=place, **{"if": "absent"}))[0] == "conflict"
    replaced = await files(copy=await files.save(b"newer"), to=place, **{"if": won["etag"]})
    assert await files.error(copy=await files.save(b"late"), to=place, **{"if": won["etag"]}) == (
        "conflict", f"{place} was written by another: the condition does not hold",
    )  # fmt: skip
    assert await files(stat=place) == replaced


async def test_of_writers_at_the_same_time_one_wins(files: Runner) -> None:
    place = f"{files.bucket}/claim"
    sources = [await files.save(f"writer {number}".encode()) for number in range(6)]
    writing = [files(copy=source, to=place, **{"if": "absent"}) for source in sources]
    ended = await asyncio.gather(*writing, return_exceptions=True)
    lost = [one for one in ended if isinstance(one, ToolFailure)]
    assert [one.error.kind for one in lost] == ["conflict"] * 5


async def test_a_write_that_is_delivered_again_finds_what_it_has_written(files: Runner) -> None:
    inputs: dict[str, Any] = {"copy": await files.save(), "to": f"{files.bucket}/a", "if": "absent"}
    assert await files(run="one", **inputs) == await files(run="one", **inputs)
    assert (await files.error(run="two", **inputs))[0] == "conflict"


async def test_a_file_in_a_folder_is_made_once(files: Runner) -> None:
    place = f"file://{files.folder}/claim"
    written = await files(copy=await files.save(), to=place, **{"if": "absent"})
    assert (await files.error(copy=await files.save(), to=place, **{"if": "absent"}))[0] == "conflict"
    await files(copy=await files.save(b"newer"), to=place, **{"if": written["etag"]})
    assert (await files.error(copy=await files.save(), to=place, **{"if": written["etag"]}))[0] == "conflict"


async def test_a_move_leaves_one_file(files: Runner, place: str) -> None:
    moved = await files(move=await files.put(f"{place}/in/a.csv"), to=f"{files.bucket}/done/a.csv")
    assert await files.read(moved["path"]) == CSV
    assert await files.names(f"{place}/in") == []


async def test_a_move_that_is_delivered_again_has_been_made(files: Runner, place: str) -> None:
    source, target = await files.put(f"{place}/a.csv"), f"{place}/b.csv"
    moved = await files(run="one", move=source, to=target)
    assert await files(run="one", move=source, to=target, previous=files.beats[-1]) == moved
    assert (await files.error(run="two", move=f"{place}/none", to=f"{place}/b.csv"))[0] == "not_found"


async def test_a_move_onto_itself_by_another_name_keeps_the_file(files: Runner, storage: ObjectStorage) -> None:
    await files.put(f"file://{files.folder}/in/a")
    (files.folder / "also").symlink_to(files.folder / "in")
    same = {"move": f"file://{files.folder}/in/a", "to": f"file://{files.folder}/also/a"}
    assert await files.error(**same) == ("invalid_input", "to: is the same file")
    files.credentials["again"] = {**files.credentials["bucket"], "region": "eu-central-1"}
    place = await files.put("a")
    assert await files.error(move=place, to=place, to_auth="again") == ("invalid_input", "to: is the same file")
    assert await files.read(place) == await files.read(f"file://{files.folder}/in/a") == CSV


async def test_deleting_what_is_absent_is_no_error_unless_asked(files: Runner, place: str) -> None:
    both = [await files.put(f"{place}/a"), f"{place}/none"]
    assert await files.error(delete=both, missing="fail") == ("not_found", f"{place}/none is not there")
    assert await files(delete=both) == {"deleted": 2}
    assert await files(delete=both[0]) == {"deleted": 1}
    assert await files.names(place) == []


async def test_sync_copies_what_is_missing_or_changed_and_deletes_when_asked(files: Runner, place: str) -> None:
    for name in ("a.csv", "b/c.csv", "notes.txt"):
        await files.put(f"{place}/from/{name}")
    start, goal = f"{place}/from", f"{files.bucket}/to"
    nothing = {"count": 0, "paths": []}
    first = await files(sync=start, to=goal, pattern="*.csv")
    assert first == {
        "copied": {"count": 2, "bytes": 2 * len(CSV), "paths": ["a.csv", "b/c.csv"]},
        "skipped": {"count": 0},
        "deleted": nothing,
    }
    await files.put(f"{place}/from/a.csv", b"changed")
    await files.put(f"{goal}/gone.csv")
    second = await files(sync=start, to=goal, pattern="*.csv")
    assert (second["copied"]["paths"], second["skipped"], second["deleted"]) == (["a.csv"], {"count": 1}, nothing)
    third = await files(sync=start, to=goal, pattern="*.csv", extra="delete")
    assert (third["copied"]["count"], third["deleted"]) == (0, {"count": 1, "paths": ["gone.csv"]})
    assert await files.names(goal) == ["a.csv", "b/c.csv"]


async def test_a_place_that_is_away_is_an_error_to_retry_and_sync_goes_on(
    files: Runner, storage: ObjectStorage
) -> None:
    for name in "abcd":
        (files.folder / name).write_bytes(CSV)
    storage.refused = lambda method, path: method == "PUT" and path.endswith("/d")
    failed = await files.failure(sync=f"file://{files.folder}", to=files.bucket)
    assert (failed.error.kind, failed.error.retryable, failed.error.code) == ("connection", True, "503")
    assert failed.error.message == f"{files.bucket}/d: the storage answers 503"
    storage.refused = storage.never
    done = await files(sync=f"file://{files.folder}", to=files.bucket)
    assert done["copied"]["count"] + failed.result["copied"]["count"] == 4


async def test_a_file_that_is_deleted_while_sync_runs_is_an_error_that_names_it(
    files: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.put("from/a.csv")
    listed = operations.files_below

    async def then_deleted(storage: Any, place: Any, *rest: Any) -> AsyncIterator[Any]:
        async for batch in listed(storage, place, *rest):
            yield batch
        if place.path.endswith("/from"):
            await files(delete=f"{place}/a.csv")

    monkeypatch.setattr(operations, "files_below", then_deleted)
    assert await files.error(sync=f"{files.bucket}/from", to=f"{files.bucket}/to") == (
        "not_found", f"{files.bucket}/from/a.csv is not there",
    )  # fmt: skip


@pytest.mark.verify
async def test_ten_thousand_files_are_listed_and_synchronized(files: Runner) -> None:
    for name, count in (("from", 10_000), ("to", 9_000)):
        (files.folder / name).mkdir()
        for number in range(count):
            (files.folder / name / f"{number:05}").touch()
    start, goal = f"file://{files.folder}/from", f"file://{files.folder}/to"
    page = await files(list=start, limit=10_000)
    assert (len(page["files"]), page["next"]) == (10_000, None)
    done = await files(sync=start, to=goal)
    assert (done["copied"]["count"], done["skipped"]["count"]) == (1_000, 9_000)
    assert len(await files.names(goal, limit=10_000)) == 10_000
    files.tool = files.configured(max_files=9_999)
    assert await files.error(sync=start, to=goal) == (
        "limit_exceeded",
        f"{goal} has over 9,999 files (NOETL_TOOL_FILES, max_files); name a place below it",
    )


async def test_each_arrival_is_listed_once(files: Runner, place: str) -> None:
    start, state = f"{place}/in", f"{place}/state.json"
    await files.put(f"{start}/b.csv")
    await files.put(f"{start}/a.csv")
    first = await files(list=start, arrived=state, limit=1)
    assert (len(first["files"]), first["more"]) == (1, True)
    await files(mark=state, marker=first["marker"])
    second = await files(list=start, arrived=state)
    assert {one["name"] for one in (*first["files"], *second["files"])} == {"a.csv", "b.csv"}
    await files(mark=state, marker=second["marker"])
    assert (await files(list=start, arrived=state))["files"] == []
    await files.put(f"{start}/a.csv", b"written again")
    assert [one["name"] for one in (await files(list=start, arrived=state))["files"]] == ["a.csv"]


async def test_a_file_that_becomes_visible_late_is_listed(files: Runner) -> None:
    start, state = f"file://{files.folder}", f"{files.bucket}/state.json"
    await files.put(f"{start}/first")
    await files(mark=state, marker=(await files(list=start, arrived=state))["marker"])
    await files.put(f"{start}/late")
    written = (files.folder / "first").stat().st_mtime
    os.utime(files.folder / "late", (written - 60, written - 60))
    assert (await files(list=start, arrived=state, late_s=30))["files"] == []
    assert [one["name"] for one in (await files(list=start, arrived=state))["files"]] == ["late"]


async def test_a_marker_begins_at_a_time(files: Runner, place: str) -> None:
    await files.put(f"{place}/in/a")
    for name, since in (("past", "2000-01-01T00:00:00Z"), ("future", "2100-01-01T00:00:00+01:00")):
        await files(mark=f"{place}/{name}", marker={"since": since})
        found = await files(list=f"{place}/in", arrived=f"{place}/{name}")
        assert len(found["files"]) == (name == "past")


async def test_of_two_that_move_a_marker_one_wins(files: Runner) -> None:
    state = f"{files.bucket}/state.json"
    await files.put("in/a")
    first = await files(list=f"{files.bucket}/in", arrived=state)
    await files.put("in/b")
    lists = [first, await files(list=f"{files.bucket}/in", arrived=state)]
    marked = await files(run="first", mark=state, marker=lists[0]["marker"])
    assert await files(run="first", mark=state, marker=lists[0]["marker"]) == marked, "delivered again"
    assert (await files.error(mark=state, marker=lists[1]["marker"]))[0] == "conflict"


async def test_a_mark_that_is_delivered_again_after_the_next_one_has_been_written(files: Runner, place: str) -> None:
    start, state = f"{place}/in", f"{place}/state.json"
    await files.put(f"{start}/a")
    first = await files(list=start, arrived=state)
    await files(run="first", mark=state, marker=first["marker"])
    await files.put(f"{start}/b")
    second = await files(list=start, arrived=state)
    marked = await files(run="second", mark=state, marker=second["marker"])
    assert await files(run="first", mark=state, marker=first["marker"]) == marked
    assert (await files(list=start, arrived=state))["files"] == []


async def test_a_marker_has_a_credential_of_its_own(files: Runner) -> None:
    files.credentials["other"] = {**files.credentials["bucket"], "secret_access_key": "wrong"}
    await files.put("in/a")
    start, state = f"{files.bucket}/in", f"{files.bucket}/state.json"
    kind, message = await files.error(list=start, arrived=state, marker_auth="other")
    assert (kind, message.partition(": ")[0]) == ("refused", state)
    kind, message = await files.error(auth="other", list=start, arrived=state, marker_auth="bucket")
    assert (kind, message.partition(": ")[0]) == ("refused", start)


@pytest.mark.parametrize("text", [b"{}x", b"[" * 100_000, b"null", b'{"since": "monday"}', b"{}" + b" " * (1 << 20)])
async def test_a_file_that_is_no_marker_is_refused(files: Runner, text: bytes) -> None:
    state = await files.put("state.json", text)
    assert await files.error(list=f"{files.bucket}/in", arrived=state) == (
        "refused", f"{state} is not a marker of `list`",
    )  # fmt: skip


async def test_only_folders_of_the_operator_are_reached(files: Runner, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "secret").write_bytes(b"x")
    (files.folder / "link").symlink_to(tmp_path / "hidden" / "secret")
    (files.folder / "beside").symlink_to(tmp_path / "hidden")
    for path in (f"{tmp_path}/hidden/secret", f"{files.folder}/link", f"{files.folder}/beside/secret", "/etc/passwd"):
        kind, message = await files.error(stat=f"file://{path}")
        assert (kind, message) == (
            "not_allowed",
            f"file://{path} is below no folder that the worker's operator allows (NOETL_TOOL_FILES, folders)",
        )
    assert await files.names(f"file://{files.folder}") == []
    files.tool = FilesTool()
    assert (await files.error(stat=f"file://{files.folder}/link"))[0] == "not_allowed"


async def test_addresses_are_those_that_the_worker_allows(files: Runner) -> None:
    files.tool = files.configured("none")
    kind, message = await files.error(list=files.bucket)
    assert (kind, message) == (
        "forbidden_address",
        "s3://bucket: 127.0.0.1 is not public; the worker's operator can allow it with NOETL_EGRESS_ALLOW",
    )


async def test_an_address_that_changed_after_the_check_is_not_connected_to(
    files: Runner, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that has another address a moment later."""

    async def passes(*_: Any) -> None:
        pass

    for name in ("NO_PROXY", "no_proxy", "AWS_PROXY_EXCLUDES"):
        monkeypatch.setenv(name, "127.0.0.1")
    files.tool = files.configured("none")
    monkeypatch.setattr("noetl_stream.tools.egress.Egress.check_host", passes)
    before = len(storage.requests)
    assert (await files.error(list=files.bucket))[0] == "refused"
    assert len(storage.requests) == before


async def test_the_credentials_of_the_worker_itself_are_not_used(
    files: Runner, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await files.put("a")
    for name, value in storage.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-worker")
    assert (await files(stat=place))["size"] == len(CSV)
    assert (await files.error(stat=place, auth={"endpoint": storage.url}))[0] == "refused"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert (await files(stat=place))["size"] == len(CSV)


async def test_an_error_of_the_storage_shows_no_secret(files: Runner) -> None:
    files.credentials["bucket"]["secret_access_key"] = "another-secret-key-9876543210"
    failed = await files.failure(list=files.bucket)
    assert (failed.error.kind, failed.error.code) == ("refused", "SignatureDoesNotMatch")
    assert failed.error.message == f"{files.bucket}: access is refused (403 SignatureDoesNotMatch)"


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ({}, "invalid_input", "needs exactly one operation: `list`, `stat`, `copy`"),
        ({"list": "s3://b1", "stat": "s3://b1/x"}, "invalid_input", "needs exactly one operation"),
        ({"list": "bucket/x"}, "invalid_input", "list: must begin with s3://, gs://, az://, sftp:// or file://"),
        ({"list": "ftp://host/x"}, "invalid_input", "list: must begin with s3://, gs://, az://, sftp:// or file://"),
        ({"list": "s3://key:secret@b1/x"}, "invalid_input", "must not contain a user or password"),
        ({"list": "file://host/x"}, "invalid_input", "must be file:/// and an absolute path"),
        ({"list": "s3://b1/a/../b"}, "invalid_input", "no `.` or `..`"),
        ({"stat": "s3://b1"}, "invalid_input", "stat: must name one file, not a folder or a bucket"),
        ({"copy": "s3://b1/x"}, "invalid_input", "`copy` needs either `to` or `into: file`"),
        ({"copy": "s3://b1/x", "to": "s3://b1/y/"}, "invalid_input", "to: must name one file"),
        ({"copy": {"file": 1}, "to": "s3://b1/y"}, "invalid_input", "neither a place nor a file or table"),
        ({"move": "s3://b1/x"}, "invalid_input", "`move` needs `to`"),
        ({"list": "s3://b1", "if": "absent"}, "invalid_input", "`if` does not go with `list`"),
        ({"delete": []}, "invalid_input", "delete: names no file"),
        ({"sync": "s3://bucket/a", "to": "s3://bucket/a/b"}, "invalid_input", "lies in the place that `sync` reads"),
        ({"list": "s3://b1", "auth": {"user": "x"}}, "credential", "must be a mapping of access_key_id, endpoint"),
        ({"list": "s3://b1", "auth": {"access_key_id": "x"}}, "credential", "belong together"),
        ({"list": "s3://b1", "auth": {"endpoint": "ftp://x"}}, "credential", "endpoint must be http:// or https://"),
        ({"mark": "s3://b1/x", "marker": {"since": "2026-11-30T12:00:00"}}, "invalid_input", "marker: is not the"),
        ({"list": "az://b1", "auth": {}}, "credential", "az:// needs account_name"),
        ({"list": "gs://b1", "auth": {"service_account_key": "{"}}, "credential", "cannot be used for gs://b1"),
        ({"stat": "s3://b1/x", "auth": "none"}, "credential", "no credential 'none'"),
    ],
)
async def test_an_impossible_action_is_an_error_with_the_reason(
    files: Runner, inputs: Any, kind: str, message: str
) -> None:
    found = await files.error(**inputs)
    assert found[0] == kind
    assert message in found[1]


def test_check_knows_what_goes_with_an_operation() -> None:
    playbook = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: files, path: tests/files }
workflow:
  - step: start
    tool:
      - { name: a, kind: files, list: "s3://bucket/{{ workload.folder }}", patern: "*.csv" }
      - { name: b, kind: files, sync: "s3://bucket/a" }
      - { name: c, kind: files, stat: bucket/a }
      - { name: d, kind: files, copy: "{{ a.file }}", to: "s3://bucket/{{ a.name }}", if: absent, auth: bucket }
"""
    found = [(one.line, one.message) for one in check(playbook, kinds=kinds_of(load_tools())).diagnostics]
    assert [line for line, _ in found] == [8, 9, 10], found
    without = kinds_of({kind: tool for kind, tool in load_tools().items() if kind != "files"})
    assert check(playbook, kinds=without).diagnostics[0].hint == "install the plugin `noetl-stream-files`"


@pytest.mark.parametrize("own", [{"folders": ["relative"]}, {"folder": "/"}, {"max_files": 0}])
def test_a_wrong_setting_keeps_the_worker_from_starting(own: Any) -> None:
    with pytest.raises(UsageError, match="NOETL_TOOL_FILES: "):
        FilesTool.configured(ToolSettings(own={"files": own}))
