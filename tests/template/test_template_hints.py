"""What the error of a missing key suggests (LANGUAGE §2)."""

from __future__ import annotations

from typing import Any

import pytest
from template_rendering import failure

from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.outcome import Outcome
from noetl_stream.template import ResultView
from noetl_stream.template.failures import MESSAGE_CHARS
from noetl_stream.template.runtime.attribute_access import KEYS_SHOWN
from noetl_stream.template.runtime.scope import Carried, outcome_view

ANSWER = {"status": 200, "headers": {}, "data": {"rows": [1], "paging": {"hasMore": False}}}
GOT = Outcome("ok", payload_of(ANSWER))
SCOPE: dict[str, Any] = {"outcome": outcome_view(GOT, "http"), "steps": {"load": ResultView(GOT)}}
THERE = "it has `status`, `headers`, `data`"


def hint(text: str, **namespaces: Any) -> str:
    return failure(text, **namespaces).hint or ""


def test_a_ctx_key_that_nothing_has_set_gets_a_default_or_a_wait() -> None:
    text = "write `ctx.approved | default(…)`, or let a guard wait for it with `next.spec.wait` or `admit.wait`"
    assert hint("{{ ctx.approved == true }}") == f"nothing has set it: {text}"


def test_a_misspelt_ctx_key_gets_that_and_a_did_you_mean() -> None:
    assert hint("{{ ctx.totl }}").startswith("did you mean `ctx.total`? If not, nothing has set it: write `ctx.totl |")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("{{ outcome.result.paging.hasMore }}", f"{THERE}; did you mean `outcome.result.data.paging`?"),
        ("{{ outcome.data.rows }}", "did you mean `outcome.result.data`?"),
        ("{{ steps.load.paging }}", f"{THERE}; did you mean `steps.load.data.paging`?"),
        ("{{ steps.load.outcome.data }}", "did you mean `steps.load.outcome.result.data`?"),
        ("{{ steps.load.other }}", THERE),
        ("{{ steps.load.data.paging.hasmore }}", "did you mean `steps.load.data.paging.hasMore`?"),
        ("{{ outcome.result.headers.date }}", "it is empty"),
        ("{{ outcome.result.data.rows.data }}", "write `outcome.result.data.rows`"),
    ],
)
def test_a_missing_key_of_a_result_gets_the_keys_that_are_there(text: str, meant: str) -> None:
    assert hint(text, **SCOPE).endswith(meant)


def test_a_namespace_of_which_a_part_is_there_is_not_called_empty() -> None:
    assert hint("{{ workload.ulr }}", workload=Carried({}, ["url"])) == "did you mean `workload.url`?"
    assert hint("{{ workload.other }}", workload=Carried({}, ["url"])) == "it has `url`"
    assert hint("{{ workload.other }}", workload=Carried({}, [])) == ""


def test_more_keys_than_are_shown_are_counted() -> None:
    many = {f"name_{number}": number for number in range(KEYS_SHOWN + 5)}
    assert hint("{{ workload.other }}", workload=many).endswith("`name_7` and 5 more")


def test_the_longest_hint_is_shown_whole() -> None:
    many = {f"{'n' * 30}_{number}": {"other": 1} for number in range(200)}
    found = hint("{{ workload.other }}", workload=many)
    assert found.endswith(f"did you mean `workload.{'n' * 30}_0.other`?")
    assert len(found) <= MESSAGE_CHARS


@pytest.mark.parametrize("secret", ["sk-live-0123456789abcdef0123456789abcdef", "ann@example.com", "a b", "", "1"])
def test_a_key_that_is_no_name_is_not_shown(secret: str) -> None:
    assert hint("{{ workload.other }}", workload={secret: 1}) == ""
    assert hint("{{ workload.other }}", workload={secret: 1, "name": 2}) == "it has `name` and 1 more"
