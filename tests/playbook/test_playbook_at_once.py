"""One run of ``check`` shows all problems: a mistake hides none of the others (LANGUAGE §3 *Diagnostics*)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import MAX_DIAGNOSTICS, Problems
from noetl_stream.playbook.yaml.source import read_source

KeyPath = tuple[str | int, ...]

EVERYTHING = Path(__file__).parent / "accepted" / "everything.yaml"
MISTAKES = 12
FREE = {
    "labels",
    "annotations",
    "attributes",
    "workload",
    "result",
    "headers",
    "params",
    "args",
    "data",
    "set_ctx",
    "set_iter",
    "set_vars",
}
"""Mappings whose keys the author chooses; also those of `set_shared` itself."""


def document() -> Any:
    source = read_source(EVERYTHING.read_bytes(), Problems(""))
    assert source is not None
    return source.root.plain()


def keys(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of all keys of a value."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(value, dict):
            yield (*path, key)
        yield from keys(part, (*path, key))


def misspelt(value: Any, wrong: Collection[KeyPath], path: KeyPath = ()) -> Any:
    """The value with the first letters of the keys at ``wrong`` doubled."""
    if isinstance(value, dict):
        return {
            (key[:1] + key if (*path, key) in wrong else key): misspelt(part, wrong, (*path, key))
            for key, part in value.items()
        }
    return (
        [misspelt(part, wrong, (*path, index)) for index, part in enumerate(value)]
        if isinstance(value, list)
        else value
    )


def pointer(path: KeyPath, wrong: Collection[KeyPath]) -> str:
    """Where the key at ``path`` stands in the misspelt document."""
    written = (
        f"{str(key)[:1]}{key}" if isinstance(key, str) and path[: index + 1] in wrong else str(key)
        for index, key in enumerate(path)
    )
    return "".join(f"/{key}" for key in written)


def errors(value: Any) -> set[str]:
    return {one.pointer for one in check(json.dumps(value), KINDS).diagnostics if one.severity == "error"}


LANGUAGE = [
    path
    for path in keys(document())
    if not FREE & {*path[:-1]} and path[-2:] != ("else", "then") and path[-2:-1] != ("set_shared",)
]
"""The keys that are words of the language; without its `then`, an `else` is reported itself."""


@pytest.mark.parametrize("seed", range(15))
def test_any_misspelt_keys_are_all_reported_at_once(seed: int) -> None:
    wrong = set(Random(seed).sample(LANGUAGE, MISTAKES))
    found = errors(misspelt(document(), wrong))
    assert [path for path in wrong if pointer(path, wrong) not in found] == []


def test_the_list_ends_at_its_limit() -> None:
    value = document()
    value["workflow"] = [{"step": f"s{n}", "tol": {"knd": "noop"}} for n in range(MAX_DIAGNOSTICS)]
    found = check(json.dumps(value), KINDS).diagnostics
    assert (len(found), found[-1].code) == (MAX_DIAGNOSTICS + 1, "too_many_problems")


def test_keys_without_end_cost_a_bounded_time() -> None:
    value = document()
    value["workflow"][0] |= {f"tooll{n}": 1 for n in range(3_000)}
    assert check(json.dumps(value), KINDS).diagnostics[-1].code == "too_many_problems"
