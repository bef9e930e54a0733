"""``kind: http`` with files: a response as a file, and a file as the body of a request."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

import pytest
from aiohttp import web
from http_stage import BODY, CHECKSUM, Client, Server, once, served

from noetl_stream.model.outcome import Dataset
from noetl_stream.sealing.data_references import PARQUET, Column, DataReference
from noetl_stream.settings.egress import egress_rules
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http import download
from noetl_stream.tools.http.tool import HttpTool


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as made:
        yield made


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr(download, "_FIRST_PAUSE_S", 0.0)
    tool = HttpTool(Egress(egress_rules("loopback")))
    yield Client(tool)
    await tool.close()


async def test_a_response_is_stored_as_a_file(server: Server, client: Client) -> None:
    server.answer(content_type="text/csv")
    found = await client.send(url=f"{server.url}/data/orders.csv?key=1", into="file")
    assert set(found) == {"status", "headers", "file"}
    about = {name: found["file"][name] for name in ("name", "media_type", "size", "checksum")}
    assert about == {"name": "orders.csv", "media_type": "text/csv", "size": len(BODY), "checksum": CHECKSUM}
    assert await client.content(found["file"]) == BODY
    assert server.seen[0].headers["Accept-Encoding"] == "identity"
    assert client.files.datasets == [Dataset(server.url, "/data/orders.csv")]


@pytest.mark.parametrize(
    ("given", "path", "name"),
    [
        ('attachment; filename="a b.csv"', "x", "a b.csv"),
        ("attachment; filename*=UTF-8''na%C3%AFve.csv", "x", "naïve.csv"),
        ('attachment; filename="../../etc/passwd"', "x", "passwd"),
        ('attachment; filename="C:\\\\Temp\\\\x.csv"', "x", "x.csv"),
        ("attachment", "a%20b.csv", "a b.csv"),
        ('attachment; filename=".."', "x", "download"),
        (None, "", "download"),
    ],
)
async def test_a_file_has_the_name_that_the_server_gives_without_folders(
    server: Server, client: Client, given: str | None, path: str, name: str
) -> None:
    server.answer(headers={} if given is None else {"Content-Disposition": given})
    assert (await client.send(url=f"{server.url}/{path}", into="file"))["file"]["name"] == name


async def test_an_error_status_is_read_as_without_a_file(server: Server, client: Client) -> None:
    server.answer(b'{"why": "gone"}', status=410, content_type="application/json")
    with pytest.raises(ToolFailure) as failed:
        await client.send(url=server.url, into="file")
    assert failed.value.error.kind == "http_status"
    assert failed.value.result["data"] == {"why": "gone"}


@pytest.mark.parametrize("version", [{"ETag": '"1"'}, {"Last-Modified": "Mon, 30 Nov 2026 10:00:00 GMT"}])
async def test_a_broken_response_is_resumed(server: Server, client: Client, version: dict[str, str]) -> None:
    server.break_off(at=70_000, times=3, headers={"Accept-Ranges": "bytes", **version})
    found = await client.send(url=server.url, into="file", checksum=CHECKSUM)
    assert await client.content(found["file"]) == BODY
    assert len(server.seen) == 4
    assert server.seen[-1].headers["If-Range"] == next(iter(version.values()))


@pytest.mark.parametrize("headers", [{}, {"Accept-Ranges": "bytes"}, {"Accept-Ranges": "bytes", "ETag": 'W/"1"'}])
async def test_a_broken_response_that_cannot_be_resumed_is_an_error(
    server: Server, client: Client, headers: dict[str, str]
) -> None:
    server.break_off(at=70_000, times=1, headers=headers)
    with pytest.raises(ToolFailure, match=r"the response broke off: .* of \d+ bytes\)\.$") as failed:
        await client.send(url=server.url, into="file")
    assert (failed.value.error.kind, failed.value.error.retryable) == ("connection", True)
    assert len(server.seen) == 1


async def test_a_response_that_breaks_off_for_ever_is_an_error(server: Server, client: Client) -> None:
    server.break_off(at=10, times=100, headers={"Accept-Ranges": "bytes", "ETag": '"1"'})
    with pytest.raises(ToolFailure) as failed:
        await client.send(url=server.url, into="file")
    assert failed.value.error.kind == "connection"
    assert len(server.seen) == 1 + download.RESUMES


async def test_a_file_that_changes_meanwhile_is_an_error(server: Server, client: Client) -> None:
    server.break_off(at=70_000, times=1, headers={"Accept-Ranges": "bytes", "ETag": '"1"'}, changed=b"another")
    with pytest.raises(ToolFailure, match=r"the file changed after .* bytes, when it was resumed"):
        await client.send(url=server.url, into="file")


async def test_a_wrong_checksum_is_an_error_that_keeps_the_file(server: Server, client: Client) -> None:
    server.answer()
    with pytest.raises(ToolFailure) as failed:
        await client.send(url=f"{server.url}/orders.csv", into="file", checksum=f"sha256:{'0' * 64}")
    assert failed.value.error.kind == "checksum_mismatch"
    assert f"{len(BODY):,} bytes with the checksum {CHECKSUM}" in failed.value.error.message
    assert failed.value.result["file"]["checksum"] == CHECKSUM


async def test_a_truncated_gzip_is_an_error(server: Server, client: Client) -> None:
    server.answer(gzip.compress(BODY)[:-20], headers={"Content-Encoding": "gzip"})
    with pytest.raises(ToolFailure, match="its gzip data ends too early"):
        await client.send(url=server.url, into="file")


async def test_a_bound_of_bytes_holds_for_files_where_it_is_set(server: Server, client: Client) -> None:
    server.answer()
    with pytest.raises(ToolFailure) as failed:
        await client.send(knobs={"max_response_bytes": 1_000}, url=server.url, into="file")
    assert failed.value.error.kind == "output_too_large"


async def test_a_file_is_sent_as_the_body(server: Server, client: Client) -> None:
    server.answer(content_type="text/csv")
    file = (await client.send(url=server.url, into="file"))["file"]
    server.answer(b"")
    await client.send(method="PUT", url=server.url, body=file)
    assert client.files.datasets[-1] == Dataset(server.url, "/", written=True)
    assert server.bodies[-1] == BODY
    assert server.seen[-1].headers["Content-Length"] == str(len(BODY))
    assert server.seen[-1].headers["Content-Type"] == "text/csv"


async def test_a_file_is_sent_again_after_a_redirect(server: Server, client: Client) -> None:
    server.answer()
    file = (await client.send(url=server.url, into="file"))["file"]

    async def redirect_once(request: web.Request) -> web.StreamResponse:
        elsewhere = {"Location": "/elsewhere"}
        return web.Response(status=307, headers=elsewhere) if request.path == "/" else web.Response()

    server.handler = redirect_once
    await client.send(method="PUT", url=server.url, body=file)
    assert server.bodies[1:] == [BODY, BODY]


def parts_in(server: Server) -> list[tuple[str, str | None, str, bytes]]:
    """Returns the name, the name of the file, the media type and the content of each part of the last body."""
    head = f"Content-Type: {server.seen[-1].headers['Content-Type']}\r\n\r\n".encode()
    message = message_from_bytes(head + server.bodies[-1], policy=HTTP)
    return [
        (
            str(part.get_param("name", header="content-disposition")),
            part.get_filename(),
            part.get_content_type(),
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    ]


async def test_files_are_parts_of_a_multipart_body(server: Server, client: Client) -> None:
    server.answer(content_type="text/csv")
    file = (await client.send(url=f"{server.url}/orders.csv", into="file"))["file"]
    table = await client.files.save(once(b"PAR1"), columns=[Column("id", "BIGINT")], rows=1, media_type=PARQUET)

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307 if request.path == "/" else 200, headers={"Location": "/elsewhere"})

    server.handler = handler
    renamed = {"file": file, "filename": 'a "b".csv', "content_type": "text/plain"}
    body = {"title": "orders", "plain": file, "more": [renamed, {"content": "x", "filename": "x.txt"}], "table": table}
    await client.send(method="POST", url=server.url, multipart=body)
    assert parts_in(server) == [
        ("title", None, "text/plain", b"orders"),
        ("plain", "orders.csv", "text/csv", BODY),
        ("more", "a %22b%22.csv", "text/plain", BODY),
        ("more", "x.txt", "application/octet-stream", b"x"),
        ("table", "table.parquet", PARQUET, b"PAR1"),
    ]
    assert server.bodies[-1] == server.bodies[-2]
    assert int(server.seen[-1].headers["Content-Length"]) == len(server.bodies[-1])
    await client.send(method="POST", url=f"{server.url}/again", multipart=body)
    assert server.bodies[-1] == server.bodies[-2]  # so the server knows a redelivery by its bytes, too


async def test_a_file_that_is_lost_while_it_is_sent_is_named(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer()
    file = (await client.send(url=server.url, into="file"))["file"]

    async def lost(_reference: DataReference) -> AsyncIterator[bytes]:
        yield b"id"
        raise ToolFailure.of("result_lost", "the file is lost")

    monkeypatch.setattr(client.files, "read", lost)
    for body in ({"body": file}, {"multipart": {"file": file}}):
        with pytest.raises(ToolFailure, match="the file is lost"):
            await client.send(method="POST", url=server.url, **body)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"into": "rows"}, "into: input should be 'file' or 'table'"),
        ({"into": "table", "checksum": CHECKSUM}, "`checksum` is of the file of `into: file`; add it"),
        ({"into": "file", "stream": {}}, "`stream` reads messages, and `into: file` stores the body as it is"),
        ({"checksum": CHECKSUM}, "`checksum` is of the file of `into: file`; add it"),
        (
            {"multipart": {"x": {"file": {"key": "a/1"}}}},
            "multipart.x.file: it is not a file or a table of this execution",
        ),
        ({"multipart": {"x": {"filename": "a"}}}, "a file needs either `content` or `file`"),
        ({"multipart": {"x": {"file": 1, "encoding": "base64"}}}, "`encoding` goes with `content`"),
        ({"into": "file", "checksum": "abc"}, "checksum: string should match pattern"),
    ],
)
async def test_wrong_inputs_are_named(client: Client, inputs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolFailure) as failed:
        await client.send(url="http://127.0.0.1:1", **inputs)
    assert reason in failed.value.error.message
