"""``kind: http`` sends what the playbook says: the URL and the body byte by byte, and no header that breaks either."""

from __future__ import annotations

import asyncio
import base64
import email.parser
import email.policy
import hashlib
import hmac
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.settings.egress import egress_rules
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.registry import kinds_of, load_tools
from raw_http import RawServer, answer, raw_server

Send = Callable[..., Awaitable[ToolResult]]
REPORT = (
    "/file/report%27s%20(1).csv?response-content-type=text%2Fcsv"
    "&response-content-disposition=attachment%3B%20filename%3D%22a%2Cb.csv%22"
)


def signed(target: str) -> str:
    """A target with a signature of its bytes, as object stores and CDNs make it."""
    return f"{target}&Signature={hmac.new(b'k', target.encode(), hashlib.sha256).hexdigest()}"


def verified(request: bytes) -> bytes:
    target = request.split(b" ", 2)[1].decode()
    if target == "/go":
        return answer(b"", b"Location: " + signed(REPORT).encode(), status=302)
    return answer(b"id,v\n1,2\n", status=200 if signed(target.rpartition("&Signature=")[0]) == target else 403)


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as server:
        server.answer = answer(b"done")
        yield server


@pytest.fixture
async def send(make_call: Any) -> AsyncIterator[Send]:
    tools: list[HttpTool] = []

    async def send(
        knobs: Any = None, credentials: Any = None, allow: str = "loopback", proxy: str | None = None, **inputs: Any
    ) -> ToolResult:
        tools.append(HttpTool(Egress(egress_rules(allow)), proxy=proxy))
        return await tools[-1].run(make_call(inputs, knobs=knobs, credentials=credentials))

    yield send
    for tool in tools:
        await tool.close()


async def refusal(sending: Awaitable[ToolResult]) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        await sending
    return failed.value


async def test_a_signed_url_goes_out_as_it_is_written_also_behind_a_redirect(server: RawServer, send: Send) -> None:
    server.answer = verified
    for target in (signed(REPORT), "/go"):
        assert (await send(url=server.url + target)).result["data"] == "id,v\n1,2\n"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("/a%2Fb%2fc;v=1,2/../d//e", None),
        ("/q?a=%2C&b=+&c=%20&d=%zz&e=a=b?/&&f", None),
        ("/{}|\\^[]`~!$'()*@:", None),
        ("/a b?c d=é", "/a%20b?c%20d=%C3%A9"),
        ('/<"x">#part', "/%3C%22x%22%3E"),
        ("", "/"),
        ("?a=1", "/?a=1"),
    ],
)
async def test_a_url_is_sent_as_it_is_written_but_for_what_no_request_may_hold(
    server: RawServer, send: Send, written: str, sent: str | None
) -> None:
    for location in (written or "/", server.url + written):
        there = location.encode()
        server.answer = lambda request, there=there: (
            answer(b"", b"Location: " + there, status=307) if b" /from" in request else answer(b"")
        )
        await send(url=server.url + written)
        if not location.startswith("?"):
            await send(url=server.url + "/from")
    expected = written if sent is None else sent
    assert set(server.targets) - {"/from"} == {expected}


async def test_a_redirect_of_bytes_that_are_no_text_is_followed_byte_by_byte(server: RawServer, send: Send) -> None:
    server.answer = lambda request: (
        answer(b"", b"Location: next?caf\xe9", status=302) if b"/a/from" in request else answer(b"")
    )
    await send(url=f"{server.url}/a/from?x=1")
    assert server.targets == ["/a/from?x=1", "/a/next?caf%E9"]


@pytest.mark.parametrize(
    ("url", "sent"), [("/x", "/x?a=b+c"), ("/x?s=%2F", "/x?s=%2F&a=b+c"), ("/x?s&", "/x?s&a=b+c"), ("?", "/?a=b+c")]
)
async def test_params_follow_a_query_that_stays_as_it_is(server: RawServer, send: Send, url: str, sent: str) -> None:
    await send(url=server.url + url, params={"a": "b c", "none": None})
    assert server.targets == [sent]


@pytest.mark.parametrize(
    "url", ["http://h/a\nb", "http://h/\x00", "http://h/a\r\nX: y", "http://h\t.x/", "http://[::1/"]
)
async def test_a_url_that_cannot_be_sent_is_refused(send: Send, url: str) -> None:
    assert (await refusal(send(url=url))).error.kind == "invalid_input"


FRAMING = ("Content-Length", "transfer-encoding", "Expect", "CONNECTION", "Upgrade")


@pytest.mark.parametrize("name", FRAMING)
async def test_headers_of_the_connection_are_refused_wherever_they_stand(send: Send, name: str) -> None:
    failed = await refusal(send(url="http://h/", headers={name: "2"}, json={"a": 1}))
    assert failed.error.kind == "invalid_input"
    assert f"a header of the connection, which http sets itself; remove {name}" in failed.error.message
    failed = await refusal(send(url="http://h/", auth={"header": {name: "2"}}))
    assert failed.error.kind == "credential"


@pytest.mark.parametrize("value", ["2", "{{ workload.length }}"])
def test_check_refuses_headers_of_the_connection_also_with_templates_for_values(value: str) -> None:
    task = {"kind": "http", "url": "http://h/", "headers": {"X": "{{ workload.x }}", "Content-Length": value}}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "p", "path": "p"}}
    inputs = {"workload": {"x": 1, "length": 2}, "workflow": [{"step": "s", "tool": task}]}
    [found] = check(json.dumps({**head, **inputs}), kinds_of(load_tools())).diagnostics
    assert found.code == "invalid_value"
    assert found.message == ("`headers`: a header of the connection, which http sets itself; remove Content-Length")


async def test_host_may_be_set_and_does_not_follow_to_another_origin(server: RawServer, send: Send) -> None:
    server.answer = answer(b"", b"Location: " + server.url.replace("127.0.0.1", "localhost").encode(), status=302)
    await refusal(send(url=server.url, headers={"Host": "shop.example"}))
    assert [b"host: shop.example" in request.lower() for request in server.seen[:2]] == [True, False]


async def test_a_multipart_body_has_fields_and_files(server: RawServer, send: Send) -> None:
    data = bytes(range(256))
    fields = {
        "name": 'Ä "quoted"',
        "count": 3,
        "tag": ["a", "b"],
        "none": None,
        'odd"\r\nname': {"content": "plain"},
        "file": {"content": base64.b64encode(data).decode(), "encoding": "base64", "filename": 'a"b.bin'},
        "note": {"content": "é", "filename": "n.txt", "content_type": "text/plain; charset=utf-8"},
    }
    for _ in range(2):
        await send(url=server.url, method="POST", multipart=fields)
    first, second = (request.partition(b"\r\n\r\n") for request in server.seen)
    assert first == second  # a redelivery sends the same bytes
    kind = next(line for line in first[0].split(b"\r\n") if line.lower().startswith(b"content-type:"))
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(kind + b"\r\n\r\n" + first[2])
    assert message.get_content_type() == "multipart/form-data"
    parts = [
        (part.get_param("name", header="content-disposition"), part.get_filename(), part.get_payload(decode=True))
        for part in message.iter_parts()
    ]
    assert parts == [
        ("name", None, 'Ä "quoted"'.encode()),
        ("count", None, b"3"),
        ("tag", None, b"a"),
        ("tag", None, b"b"),
        ("odd%22%0D%0Aname", None, b"plain"),
        ("file", "a%22b.bin", data),
        ("note", "n.txt", "é".encode()),
    ]


async def test_a_binary_body_is_what_its_base64_says(server: RawServer, send: Send) -> None:
    data = bytes(range(256))
    await send(url=server.url, method="PUT", body=base64.b64encode(data).decode(), encoding="base64")
    head, _, body = server.seen[0].partition(b"\r\n\r\n")
    assert body == data
    assert b"Content-Type: application/octet-stream" in head


async def test_a_received_body_can_be_sent_unchanged_by_another_request(server: RawServer, send: Send) -> None:
    """A result has ``data`` and ``encoding`` as ``body`` and ``encoding`` take them."""
    server.answer = answer(b"\x89PNG\xff", b"Content-Type: image/png")
    received = (await send(url=server.url)).result
    await send(url=server.url, method="POST", body=received["data"], encoding=received["encoding"])
    assert server.seen[1].endswith(b"\r\n\r\n\x89PNG\xff")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"body": "not base64", "encoding": "base64"}, "body: is not base64"),
        ({"body": {"a": 1}, "encoding": "base64"}, "`encoding: base64` needs `body`"),
        ({"body": "x", "encoding": "hex"}, "encoding: input should be 'base64'"),
        ({"multipart": {"f": {"content": "é", "encoding": "base64"}}}, "multipart.f.content: is not base64"),
        ({"multipart": {"f": {"content": "x", "content_type": "a\r\nb"}}}, "multipart.f.content_type: contains a line"),
        ({"multipart": {"a": "b"}, "json": 1}, "more than one body: json, multipart; keep one"),
    ],
)
async def test_bodies_that_cannot_be_made_are_refused(send: Send, inputs: dict[str, Any], message: str) -> None:
    failed = await refusal(send(url="http://h/", method="POST", **inputs))
    assert failed.error.kind == "invalid_input"
    assert message in failed.error.message


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority of its own, and what it signed: ``server`` and ``client``, keys and certificates."""
    folder = tmp_path_factory.mktemp("authority")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=own", "-days", "30")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "30", "-extfile", "names")  # fmt: skip
    return folder


@pytest.fixture
async def guarded(authority: Path) -> AsyncIterator[str]:
    """The URL of a server that asks for a certificate of the authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority / "ca.pem")
    context.load_cert_chain(authority / "server.pem", authority / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    server = RawServer()
    server.answer = answer(b"welcome")
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    async with listening:
        yield f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def texts(authority: Path) -> dict[str, str]:
    files = {"certificate": "client.pem", "key": "client.key", "ca": "ca.pem"}
    return {entry: (authority / name).read_text() for entry, name in files.items()}


async def test_a_credential_has_a_certificate_and_the_authority_to_trust(
    guarded: str, authority: Path, send: Send
) -> None:
    bank = {**texts(authority), "token": "t"}
    assert (await send(url=guarded, auth="bank", credentials={"bank": bank})).result["data"] == "welcome"
    for missing in ("ca", "certificate"):
        known = {
            key: value for key, value in bank.items() if key != missing and (missing, key) != ("certificate", "key")
        }
        assert (await refusal(send(url=guarded, auth="bank", credentials={"bank": known}))).error.kind == "connection"


async def test_the_operator_can_trust_an_authority_for_all_tasks(guarded: str, authority: Path, make_call: Any) -> None:
    tool = HttpTool(Egress(egress_rules("loopback")), ca_file=authority / "ca.pem")
    own = {key: value for key, value in texts(authority).items() if key != "ca"}
    done = await tool.run(make_call({"url": guarded, "auth": "bank"}, credentials={"bank": own}))
    await tool.close()
    assert done.result["data"] == "welcome"


@pytest.mark.parametrize(
    "broken", [{"key": "s3cret"}, {"ca": "s3cret"}, {"certificate": ""}, {"key": None}, {"certificate": 1}]
)
async def test_an_invalid_certificate_is_refused_without_being_shown(
    authority: Path, send: Send, broken: dict[str, Any]
) -> None:
    bank = {key: value for key, value in {**texts(authority), **broken}.items() if value is not None}
    failed = await refusal(send(url="https://127.0.0.1:1/", auth="bank", credentials={"bank": bank}))
    assert failed.error.kind == "credential"
    assert "s3cret" not in failed.error.message


async def test_a_certificate_is_not_shown_to_another_origin(guarded: str, authority: Path, make_call: Any) -> None:
    """A redirect leads to a server that asks for the certificate of the credential, and gets none."""
    tool = HttpTool(Egress(egress_rules("loopback")), ca_file=authority / "ca.pem")
    async with raw_server() as server:
        server.answer = answer(b"", b"Location: " + guarded.encode(), status=302)
        call = make_call({"url": server.url, "auth": "bank"}, credentials={"bank": texts(authority)})
        assert (await refusal(tool.run(call))).error.kind == "connection"
    await tool.close()


# Proxies.


async def test_a_request_goes_through_the_proxy_that_the_task_names(server: RawServer, send: Send) -> None:
    await send(url="http://api.invalid/a%2Fb?c=%2C", knobs={"proxy": server.url})
    assert server.targets == ["http://api.invalid/a%2Fb?c=%2C"]


async def test_the_operators_proxy_leads_to_the_internet_and_not_inside(server: RawServer, send: Send) -> None:
    """It is reached though tasks may not reach it; what is allowed inside is reached without it."""
    proxy = server.url.replace("http://", "http://ann:pw@")
    await send(url="http://api.invalid/x", proxy=proxy, allow="none")
    assert server.targets == ["http://api.invalid/x"]
    assert b"Proxy-Authorization: Basic YW5uOnB3" in server.seen[0]
    await send(url=f"{server.url}/inside", proxy="http://127.0.0.1:1")
    assert server.targets[1] == "/inside"


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "[::1]", "localhost", "10.0.0.1"])
async def test_no_proxy_leads_to_where_a_task_may_not_connect(server: RawServer, send: Send, host: str) -> None:
    port = urlsplit(server.url).port
    failed = await refusal(send(url=f"http://{host}:1/", knobs={"proxy": server.url}, allow=f"127.0.0.1:{port}"))
    assert failed.error.kind == "forbidden_address"
    failed = await refusal(send(url=f"http://{host}:1/", proxy=server.url, allow="none"))
    assert failed.error.kind == "forbidden_address"
    assert not server.seen


async def test_a_proxy_must_be_one_that_tasks_may_reach(server: RawServer, send: Send) -> None:
    failed = await refusal(send(url="http://api.invalid/", knobs={"proxy": server.url}, allow="none"))
    assert failed.error.kind == "forbidden_address"


async def test_a_redirect_through_a_proxy_leads_to_public_addresses_only(server: RawServer, send: Send) -> None:
    server.answer = answer(b"", b"Location: http://127.0.0.1:1/", status=302)
    failed = await refusal(send(url="http://api.invalid/", knobs={"proxy": server.url}))
    assert failed.error.kind == "forbidden_address"


async def test_a_proxy_that_refuses_the_way_is_a_connection_error(server: RawServer, send: Send) -> None:
    server.answer = answer(b"", status=407)
    failed = await refusal(send(url="https://api.invalid/?key=s3cret", knobs={"proxy": server.url}))
    assert failed.error.kind == "connection"
    assert failed.error.message == "GET https://api.invalid/: the proxy answered 407 X"


@pytest.mark.parametrize("proxy", ["socks5://h:1", "h:3128", "http://ann:pw@h:1", "http://h:1/path"])
async def test_an_invalid_proxy_is_refused(send: Send, proxy: str) -> None:
    assert (await refusal(send(url="http://h/", knobs={"proxy": proxy}))).error.kind == "invalid_input"
