"""Which gateway a client uses: what the command line would, by the same arguments, environment and file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.cli.base.session import Context, Contexts, Target, read_contexts, write_contexts
from noetl_stream.cli.base.session import gateway_of as chosen_by_cli
from noetl_stream.errors import UsageError
from noetl_stream.local.gateway_address import announce_gateway
from noetl_stream.local.home import write_private
from noetl_stream.settings.sources.environment import Settings
from noetl_stream_client import ConfigurationError, gateways
from noetl_stream_client.gateways import gateway_of

FILE = """\
current: team
contexts:
  team:
    url: https://team.example.com/noetl/
    token: 'secret: #1'
  by-file:
    url: http://127.0.0.1:8080
    token_file: TOKEN_FILE
  by-variable:
    url: http://[::1]:8080
    token_variable: OF_TEAM
  open:
    url: "https://open.example.com"
"""

CASES: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({"url": "https://a.example.com/"}, {}),
    ({"url": "https://a.example.com"}, {"NOETL_TOKEN": "t", "NOETL_URL": "https://b.example.com"}),
    ({}, {"NOETL_URL": "https://b.example.com", "NOETL_CONTEXT": "open"}),
    ({}, {"NOETL_CONTEXT": "open", "NOETL_TOKEN": "t"}),
    ({}, {"NOETL_CONTEXT": "by-file"}),
    ({"context": "by-file"}, {"NOETL_URL": "https://b.example.com"}),
    ({"context": "by-variable"}, {"OF_TEAM": "of the team"}),
    ({"context": "by-variable"}, {}),
    ({"context": "none"}, {}),
    ({"context": "open", "url": "https://a.example.com"}, {}),
    ({"context": "direct"}, {}),
    ({}, {"NOETL_HOME": "/elsewhere"}),
    ({}, {"NOETL_NATS_URL": "nats://127.0.0.1:4222"}),
    ({}, {"NOETL_NATS_URL": "nats://127.0.0.1:4222", "NOETL_CONTEXT": "team"}),
    ({"url": "ftp://a.example.com"}, {}),
    ({"url": "https://"}, {}),
    ({"url": "https://user:password@a.example.com"}, {}),
    ({}, {"NOETL_URL": "https://b.example.com", "NOETL_TOKEN_FILE": "TOKEN_FILE"}),
    ({}, {"NOETL_URL": "https://b.example.com", "NOETL_TOKEN_FILE": "TOKEN_FILE", "NOETL_TOKEN": "t"}),
    ({}, {"NOETL_URL": "https://b.example.com", "NOETL_TOKEN_FILE": "/nowhere"}),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user with contexts."""
    file = tmp_path / ".config" / "noetl-stream" / "contexts.yaml"
    file.parent.mkdir(parents=True)
    (tmp_path / "token").write_text("of a file\n")
    file.write_text(FILE.replace("TOKEN_FILE", str(tmp_path / "token")))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def by_client(given: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, str | None, str] | None:
    """The gateway; ``None``: the embedded stack."""
    try:
        found = gateway_of(**given, environ=environ)  # type: ignore[arg-type]
    except ConfigurationError as error:
        if error.message == "no gateway is named":
            return None
        raise
    return found.url, found.token, found.name


def by_cli(given: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, str | None, str] | None:
    found = chosen_by_cli(Target(**given), Settings.from_environment(environ))  # type: ignore[arg-type]
    return None if found is None else (found.url.rstrip("/"), found.token, found.name.removeprefix("--"))


@pytest.mark.parametrize(("given", "environ"), CASES)
def test_a_client_uses_the_gateway_that_the_command_line_would(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], environ: dict[str, str]
) -> None:
    filled = {name: text.replace("TOKEN_FILE", str(folder / "token")) for name, text in environ.items()}
    for name in ("NOETL_URL", "NOETL_TOKEN", "NOETL_HOME", "NOETL_NATS_URL", "NOETL_CONTEXT", "OF_TEAM"):
        monkeypatch.delenv(name, raising=False)
    for name, text in filled.items():
        monkeypatch.setenv(name, text)
    environment = {"HOME": str(folder), **filled}
    try:
        expected = by_cli(given, environment)
    except UsageError:
        with pytest.raises(ConfigurationError):
            by_client(given, environment)
        return
    assert by_client(given, environment) == expected


def test_a_stack_that_runs_here_is_used_with_the_token_of_its_home(folder: Path) -> None:
    home = folder / ".noetl"
    home.mkdir()
    write_private(home / "gateway.token", "of the home\n")
    with pytest.raises(ConfigurationError, match=r"no gateway is named .*Client\.local\(\)"):
        gateway_of(environ={"NOETL_CONTEXT": "direct"})
    with announce_gateway(home, "http://127.0.0.1:8081"):
        found = gateway_of(environ={"NOETL_CONTEXT": "direct"})
        assert (found.url, found.token) == ("http://127.0.0.1:8081", "of the home")
        by_name = gateway_of("http://localhost:8081", environ={})
        assert (by_name.url, by_name.token) == ("http://127.0.0.1:8081", "of the home")
        assert gateway_of("http://127.0.0.1:8082", environ={}).token is None
    assert gateway_of("http://127.0.0.1:8081", environ={}).token is None, "another program may listen there now"


def test_the_token_of_a_home_that_others_can_read_is_refused(folder: Path) -> None:
    home = folder / ".noetl"
    home.mkdir()
    (home / "gateway.token").write_text("of the home\n")
    (home / "gateway.token").chmod(0o644)
    with (
        announce_gateway(home, "http://127.0.0.1:8081"),
        pytest.raises(ConfigurationError, match=r"can be read by other users \(chmod 600"),
    ):
        gateway_of("http://127.0.0.1:8081", environ={})


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True).filter(lambda name: name != "direct")
texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)


@given(st.dictionaries(names, st.tuples(texts, st.booleans()), max_size=4), st.booleans())
def test_files_written_by_the_command_line_are_read(
    tmp_path_factory: pytest.TempPathFactory, named: dict[str, tuple[str, bool]], has_current: bool
) -> None:
    file = tmp_path_factory.mktemp("contexts") / "contexts.yaml"
    contexts = {
        name: Context("https://a.example.com", **{"token" if is_token else "token_file": text})
        for name, (text, is_token) in named.items()
    }
    write_contexts(file, Contexts(next(iter(contexts), None) if has_current else None, contexts))
    written, found = read_contexts(file), gateways.read_contexts(file)
    assert found.pop("", {}).get("current") == written.current
    assert found.keys() == written.named.keys()
    for name, context in written.named.items():
        assert (found[name].get("token"), found[name].get("token_file")) == (context.token, context.token_file)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("current: a\ncontexts: {a: {url: 'https://a'}}\n", 2),
        ("contexts:\n  a:\n    url: [1]\n", 3),
        ("contexts:\n  a:\n    url: https://a\n    password: b\n", 4),
        ("contexts:\n  - a\n", 2),
        ("now: a\n", 1),
    ],
)
def test_a_file_that_is_no_list_of_contexts_is_refused_with_the_line(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "contexts.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=f"contexts.yaml, line {line}: not a line of a list of contexts"):
        gateways.read_contexts(file)
