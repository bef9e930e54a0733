"""The settings on the page about editors are what the editors read, and start the server that there is."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from noetl_stream.cli.main import noetl_stream

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "set-up-an-editor.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)
PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def lua_value(text: str) -> object:
    """A table of Lua that holds only strings and tables, as JSON would have it."""
    plain = re.sub(r"(\w+)\s*=", r'"\1":', text)
    keyed = re.sub(r"\{([^{}:]*)\}", r"[\1]", plain)
    return json.loads(re.sub(r",(\s*[}\]])", r"\1", keyed))


def check_starts(command: list[str]) -> None:
    """The command is the program's own, with options that it has."""
    assert command[0] == "noetl-stream"
    found = noetl_stream.get_command(click.Context(noetl_stream), command[1])
    assert found is not None
    found.make_context(command[1], command[2:])


def test_every_block_is_looked_at() -> None:
    assert {kind for kind, _ in BLOCKS} == {"bash", "json", "lua", "toml", "sh"}


def test_the_extra_exists() -> None:
    [line] = blocks("bash")
    extra = re.search(r"\[(\w+)\]", line)
    assert extra is not None and extra[1] in PROJECT["optional-dependencies"]


def test_vs_code_starts_the_server_for_yaml() -> None:
    settings = json.loads(blocks("json")[0])
    check_starts([settings["glspc.server.command"], *settings["glspc.server.commandArguments"]])
    assert settings["glspc.server.languageId"] == ["yaml"]


def test_jetbrains_starts_the_server_for_yaml() -> None:
    template = json.loads(blocks("json")[1])
    check_starts(shlex.split(template["programArgs"]["default"]))
    [mapping] = template["fileTypeMappings"]
    assert mapping["languageId"] == "yaml" and "*.yaml" in mapping["fileType"]["patterns"]


def test_helix_starts_the_server_for_yaml() -> None:
    [text] = blocks("toml")
    languages = tomllib.loads(text)
    server = languages["language-server"]["noetl"]
    check_starts([server["command"], *server["args"]])
    [yaml] = languages["language"]
    assert yaml["name"] == "yaml" and "noetl" in yaml["language-servers"]


def test_neovim_starts_the_server_for_yaml() -> None:
    [text] = blocks("lua")
    found = re.fullmatch(r'vim\.lsp\.config\("(\w+)", (\{.*\})\)\nvim\.lsp\.enable\("(\w+)"\)\n', text, re.S)
    assert found is not None and found[1] == found[3]
    settings = lua_value(found[2])
    assert isinstance(settings, dict) and settings["filetypes"] == ["yaml"]
    check_starts(settings["cmd"])


@pytest.mark.parametrize("command", [line for text in blocks("sh") for line in text.splitlines()])
def test_a_command_of_the_page_is_one(command: str) -> None:
    words = shlex.split(command)
    assert words[:3] == ["noetl-stream", "playbook", "schema"] and words[3] == "-o"
    assert f"`# yaml-language-server: $schema={words[4]}`" in PAGE


def test_the_options_that_the_text_names_exist() -> None:
    check_starts(["noetl-stream", "lsp", "--kinds", "snowflake"])
    assert "`playbook schema --form store`" in PAGE and "`--form entry`" in PAGE
