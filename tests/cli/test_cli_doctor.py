"""``noetl-stream doctor`` on a stack that is up, through its gateway, and where nothing answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_stack import gateway_of

from noetl_stream.sealing.keys import new_key
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")


@pytest.mark.parametrize("through", ["nothing", "a gateway"])
def test_a_stack_that_is_up_is_examined(shared_home: Path, through: str) -> None:
    target = {"NOETL_HOME": str(shared_home)}
    if through == "a gateway":
        target |= {"NOETL_URL": gateway_of(shared_home)}

    ended = noetl("doctor", "-o", "json", **target)

    found = {check["check"]: check for check in json.loads(ended.stdout)}
    assert {"ok"} == {found[name]["verdict"] for name in STORES}, found
    assert ended.returncode == any(check["verdict"] == "wrong" for check in found.values())
    assert (found["versions"]["verdict"], found["versions"]["says"][:7]) == ("ok", "all are")
    assert found["partitions"]["says"] == "32 partitions on 1 server"
    assert "identity 'gateway'" in found["nats"]["says"]


STORES = (
    "postgres",
    "nats",
    "schema",
    "streams",
    "replicas",
    "durability",
    "storage",
    "power-loss",
    "clocks",
    "permissions",
)


def test_where_nothing_answers_each_store_is_wrong_and_the_rest_is_skipped() -> None:
    ended = noetl(
        "doctor",
        NOETL_NATS_URL="nats://127.0.0.1:9",
        NOETL_POSTGRES_DSN="postgresql://nobody@127.0.0.1:9/nothing",
        NOETL_ACCESS_KEY=new_key(),
    )

    lines = [line for line in ended.stdout.splitlines() if not line.startswith(" ")]
    assert ended.returncode == 1 and ended.stderr == ""
    assert [line.split()[:2] for line in lines[:2]] == [["wrong", "postgres"], ["wrong", "nats"]]
    assert all("cannot reach" in line for line in lines[:2])
    assert [line.partition(": ")[2] for line in lines[2:]] == [
        "it needs `postgres`, which is wrong", "it needs `nats`, which is wrong"
    ]  # fmt: skip
    assert all(line.startswith("skipped  ") and line.count(", ") > 3 for line in lines[2:])
