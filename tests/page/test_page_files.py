"""The files of the page as a gateway serves them: to anybody, from memory, under a strict policy."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from gateway_stage import GatewayStage

from noetl_stream.settings.gateway_settings import GatewayLimits

PAGE = Path(__file__).resolve().parents[2] / "src" / "noetl_stream" / "gateway" / "page"
FIRST_LOAD_BYTES = 250 * 1024
OPENED_LATER = "Editor-"
"""Loaded by who opens the editor."""

WHEEL_BYTES = 1024 * 1024


@pytest_asyncio.fixture(loop_scope="session")
async def client() -> AsyncIterator[ClientSession]:
    """Somebody without a token."""
    async with GatewayStage(GatewayLimits(), signed_in=False).open() as stage:
        yield stage.client


async def test_every_address_of_the_page_has_the_same_file_under_a_strict_policy(client: ClientSession) -> None:
    for path in ("/", "/executions/01a2/events?q=1", "/playbooks/team%2Freport", "/system/dead-letters"):
        async with client.get(path) as answered:
            assert (answered.status, await answered.text()) == (200, (PAGE / "index.html").read_text())
            policy = answered.headers["Content-Security-Policy"].split("; ")
            assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= set(
                policy
            )
            assert "unsafe" not in answered.headers["Content-Security-Policy"]
            assert answered.headers["X-Content-Type-Options"] == "nosniff"
            assert answered.headers["Referrer-Policy"] == "no-referrer"
            assert answered.headers["Cache-Control"] == "no-cache"


async def test_an_address_that_nothing_has_gives_people_the_page_and_programs_a_problem(
    client: ClientSession,
) -> None:
    for path in ("/nothing/like/this", "/api/v1/nothing"):
        async with client.get(path, headers={"Accept": "text/html,*/*;q=0.8"}) as answered:
            assert (answered.status, await answered.text()) == (404, (PAGE / "index.html").read_text())
            assert "default-src 'none'" in answered.headers["Content-Security-Policy"]
        for send, accepted in ((client.get, "*/*"), (client.get, "application/json"), (client.post, "text/html")):
            async with send(path, headers={"Accept": accepted}) as answered:
                assert (answered.status, answered.content_type) == (404, "application/problem+json")


async def test_assets_are_kept_for_good_and_the_rest_is_asked_for_again(client: ClientSession) -> None:
    (style,) = (PAGE / "assets").glob("*.css")
    async with client.get(f"/assets/{style.name}") as answered:
        assert (answered.status, answered.content_type) == (200, "text/css")
        assert await answered.read() == style.read_bytes()
        assert "immutable" in answered.headers["Cache-Control"]
    async with client.get("/") as answered:
        etag = answered.headers["ETag"]
    async with client.get("/", headers={"If-None-Match": etag}) as answered:
        assert (answered.status, await answered.read()) == (304, b"")


async def test_files_are_compressed_for_whoever_takes_that(client: ClientSession) -> None:
    async with client.get("/", headers={"Accept-Encoding": "br, gzip"}) as answered:
        assert answered.headers["Content-Encoding"] == "gzip"
    async with client.get("/", headers={"Accept-Encoding": "identity"}) as answered:
        assert "Content-Encoding" not in answered.headers


async def test_the_page_is_only_read(client: ClientSession) -> None:
    async with client.head("/") as answered:
        assert (answered.status, await answered.read()) == (200, b"")
    async with client.post("/", data=b"x") as answered:
        assert (answered.status, answered.content_type) == (405, "application/problem+json")


@pytest.mark.parametrize(
    "path", ["/api/v1/nonsense", "/nonsense", "/assets/nonsense.js", "/assets/..%2Findex.html", "/executionsx"]
)
async def test_unknown_addresses_are_still_problems(client: ClientSession, path: str) -> None:
    async with client.get(path) as answered:
        assert (answered.status, answered.content_type) == (404, "application/problem+json")


async def test_the_page_is_not_served_under_a_foreign_name(client: ClientSession) -> None:
    async with client.get("/", headers={"Host": "rebound.example"}) as answered:
        assert answered.status == 403


def test_the_first_load_and_the_wheel_stay_small() -> None:
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    first = [path for path in files if not path.name.startswith(OPENED_LATER)]
    assert len(first) == len(files) - 1
    assert sum(len(gzip.compress(path.read_bytes())) for path in first) <= FIRST_LOAD_BYTES
    assert sum(path.stat().st_size for path in files) <= WHEEL_BYTES


def test_the_page_fetches_nothing_from_elsewhere_and_has_nothing_inline() -> None:
    index = (PAGE / "index.html").read_text()
    assert all(url.startswith("/assets/") for url in re.findall(r'(?:src|href)="([^"]*)"', index))
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", index) == []
