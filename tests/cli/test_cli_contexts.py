"""Gateways by name, and which of all that can be said says where a command works."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from noetl_stream.cli.base.session import (
    Context,
    Contexts,
    GatewayAddress,
    Target,
    gateway_of,
    read_contexts,
    write_contexts,
)
from noetl_stream.cli.context import context
from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.local.gateway_address import announce_gateway
from noetl_stream.local.home import write_private
from noetl_stream.settings.sources.environment import Settings

SECRET = "noetl_0123456789abcdef_secret"


class Person:
    """Somebody with a configuration folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "noetl-stream" / "contexts.yaml"

    def settings(self, **variables: str) -> Settings:
        return Settings.from_environment({"XDG_CONFIG_HOME": str(self.folder), **variables})

    def run(self, *words: str, given: str | bytes = "") -> Result:
        return CliRunner().invoke(context, words, input=given, env={"XDG_CONFIG_HOME": str(self.folder)})

    def shown(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json").output)


@pytest.fixture
def ann(tmp_path: Path) -> Person:
    return Person(tmp_path / "config")


def test_contexts_are_added_used_shown_and_removed(ann: Person) -> None:
    assert ann.run("add", "one", "--url", "https://one.example", "--token-stdin", given=SECRET + "\n").exit_code == 0
    assert ann.run("add", "two", "--url", "http://two", "--token-variable", "TWO", "--use").exit_code == 0
    assert stat.S_IMODE(ann.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(ann.file.parent.stat().st_mode) == 0o700
    listed = ann.shown("list")
    assert [(one["name"], one["current"], one["token"]) for one in listed] == [
        ("one", False, "in the file"),
        ("two", True, "$TWO"),
        ("direct", False, "none"),
    ]
    assert ann.run("list", "-o", "name").output == "one\ntwo\ndirect\n"
    assert ann.run("use", "one").exit_code == 0
    assert SECRET not in ann.run("list").output + ann.run("show").output + ann.run("show", "one").output
    assert ann.shown("show")["name"] == "one"
    assert ann.run("remove", "one").exit_code == 0
    assert ann.shown("show") == {"name": "direct", "url": None}
    for name in ("one", "direct"):
        with pytest.raises(UsageError, match=f"context '{name}' not found"):
            raise_from(ann.run("remove", name))


@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        (("direct", "--url", "http://x"), "", "is not a valid context name"),
        (("a b", "--url", "http://x"), "", "is not a valid context name"),
        (("a", "--url", "x.example"), "", "is not the URL of a gateway"),
        (("a", "--url", "http://u:p@x"), "", "contains a password"),
        (("a", "--url", "http://x", "--token-stdin", "--token-file", "f"), SECRET, "cannot be combined"),
        (("a", "--url", "http://x", "--token-stdin"), "", "standard input is empty"),
        (("a", "--url", "http://x", "--token-stdin"), b"caf\xe9", "stdin:1: byte 0xe9 is not UTF-8"),
    ],
)
def test_an_invalid_context_is_refused(ann: Person, words: tuple[str, ...], given: str | bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        raise_from(ann.run("add", *words, given=given))
    assert not ann.file.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("contexts: {a: {url: http://x, colour: red}}", "not a valid list of contexts"),
        ("- a", "not a valid list of contexts"),
        ("contexts: {a: ", "not a valid list of contexts"),
        ("contexts: {a: {url: 7}}", "url of a is not the URL"),
    ],
)
def test_a_file_with_other_contents_is_named(ann: Person, content: str, message: str) -> None:
    ann.file.parent.mkdir(parents=True)
    ann.file.write_text(content)
    with pytest.raises(UsageError, match=message) as refused:
        read_contexts(ann.file)
    assert str(ann.file) in str(refused.value)


def test_a_file_that_is_not_utf_8_is_named_with_the_line(ann: Person) -> None:
    ann.file.parent.mkdir(parents=True)
    ann.file.write_bytes("current: a\ncontexts: {café: {url: http://x}}".encode("latin-1"))
    with pytest.raises(UsageError, match=f"{ann.file}:2: byte 0xe9 is not UTF-8"):
        read_contexts(ann.file)


def test_a_token_is_read_from_where_it_is_kept(ann: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(SECRET + "\n")
    monkeypatch.setenv("SHOP_TOKEN", SECRET)
    for kept in ({"token": SECRET}, {"token_file": str(tmp_path / "token")}, {"token_variable": "SHOP_TOKEN"}):
        assert Context("http://x", **kept).read_token() == SECRET
        assert SECRET not in Context("http://x", **kept).token_source
    with pytest.raises(UsageError, match="absent"):
        Context("http://x", token_file=str(tmp_path / "absent")).read_token()
    (tmp_path / "token").write_bytes(b"caf\xe9")
    with pytest.raises(UsageError, match="token:1: byte 0xe9 is not UTF-8"):
        Context("http://x", token_file=str(tmp_path / "token")).read_token()
    with pytest.raises(UsageError, match="OTHER_TOKEN, which is not set"):
        Context("http://x", token_variable="OTHER_TOKEN").read_token()


HERE = Target()
BY_URL, BY_CONTEXT, BY_HOME = Target(url="http://url"), Target(context="two"), Target(home=Path("/home"))
URL, CONTEXT = {"NOETL_URL": "http://variable"}, {"NOETL_CONTEXT": "two"}
STACK = {"NOETL_NATS_URL": "nats://x", "NOETL_POSTGRES_DSN": "postgresql://x"}


@pytest.mark.parametrize(
    ("target", "variables", "current", "found"),
    [
        (BY_URL, URL | CONTEXT | STACK, "one", "http://url"),
        (BY_CONTEXT, URL | STACK, "one", "http://two"),
        (BY_HOME, URL | CONTEXT, "one", None),
        (replace(BY_HOME, url="http://url"), CONTEXT, "one", "http://url"),
        (Target(context="direct"), URL, "one", None),
        (HERE, URL | CONTEXT | STACK, "one", "http://variable"),
        (HERE, CONTEXT | STACK, "one", "http://two"),
        (HERE, {"NOETL_CONTEXT": "direct"}, "one", None),
        (HERE, STACK, "one", None),
        (HERE, {"NOETL_HOME": "/elsewhere"}, "one", None),
        (HERE, {}, "one", "http://one"),
        (HERE, {}, "direct", None),
        (HERE, {}, None, None),
    ],
)
def test_options_come_before_variables_and_those_before_the_file(
    ann: Person, target: Target, variables: dict[str, str], current: str | None, found: str | None
) -> None:
    write_contexts(ann.file, Contexts(current, {name: Context(f"http://{name}") for name in ("one", "two")}))
    gateway = gateway_of(target, ann.settings(**variables))
    assert (gateway and gateway.url) == found


def test_a_token_of_the_environment_comes_before_the_contexts(ann: Person) -> None:
    write_contexts(ann.file, Contexts("one", {"one": Context("http://one", token="kept")}))
    assert gateway_of(HERE, ann.settings()) == GatewayAddress("http://one", "kept", "context one")
    given = gateway_of(HERE, ann.settings(NOETL_TOKEN="given"))
    assert given is not None and given.token == "given"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose stack has run a gateway."""
    write_private(tmp_path / "gateway.token", "local-token\n")
    return tmp_path


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "http://localhost:8080"])
def test_a_gateway_of_the_home_gets_its_token_at_its_ip_address(ann: Person, home: Path, url: str) -> None:
    with announce_gateway(home, "http://127.0.0.1:8080"):
        found = gateway_of(Target(home=home, url=url), ann.settings(NOETL_HOME=str(home)))
        given = gateway_of(Target(url=url), ann.settings(NOETL_HOME=str(home), NOETL_TOKEN="given"))
    assert found is not None and given is not None
    assert (found.url.rstrip("/"), found.token) == ("http://127.0.0.1:8080", "local-token")
    assert (given.url, given.token) == (url, "given")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8081",
        "http://127.0.0.2:8080",
        "http://[::1]:8080",
        "https://127.0.0.1:8080",
        "http://127.0.0.1.example:8080",
        "http://gateway:8080",
    ],
)
def test_no_other_address_gets_the_token_of_the_home(ann: Person, home: Path, url: str) -> None:
    with announce_gateway(home, "http://127.0.0.1:8080"):
        assert gateway_of(Target(url=url), ann.settings(NOETL_HOME=str(home))) == GatewayAddress(
            url, None, f"--url {url}"
        )


def test_another_program_at_the_address_of_a_gateway_gets_no_token(ann: Person, home: Path) -> None:
    with announce_gateway(home, "http://127.0.0.1:8080"):
        pass
    found = gateway_of(Target(url="http://127.0.0.1:8080"), ann.settings(NOETL_HOME=str(home)))
    assert found is not None and found.token is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_token_that_others_may_read_or_write_is_refused(ann: Person, home: Path, mode: int) -> None:
    (home / "gateway.token").chmod(mode)
    with announce_gateway(home, "http://127.0.0.1:8080"), pytest.raises(LocalStackError, match=r"gateway\.token"):
        gateway_of(Target(url="http://127.0.0.1:8080"), ann.settings(NOETL_HOME=str(home)))


@pytest.mark.parametrize("target", [replace(BY_HOME, context="two"), replace(BY_URL, context="two")])
def test_two_options_that_say_where_are_a_usage_error(ann: Person, target: Target) -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        gateway_of(target, ann.settings())


@pytest.mark.parametrize("address", ["ftp://x", "noetl.example.com", "http://ann:hidden@x", "http://"])
def test_an_invalid_gateway_address_is_refused(ann: Person, address: str) -> None:
    with pytest.raises(UsageError, match="--url") as refused:
        gateway_of(Target(url=address), ann.settings())
    assert "hidden" not in str(refused.value)


def raise_from(result: Result) -> None:
    assert result.exception is not None
    raise result.exception
