"""Results by task and step name, the `.data` rule, payloads and references (LANGUAGE §2, §10)."""

from __future__ import annotations

from typing import Any

import pytest
from template_rendering import FAILED, LISTED, LOADED, decided, failure, referenced, rendered, scope

from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.outcome import Outcome, Payload
from noetl_stream.template import ABSENT, ReferenceNeeded, ResultView, Scope, compile_template, render
from noetl_stream.template.runtime.scope import LazyResult, event_view, outcome_view

OWN = Outcome("ok", payload_of({"outcome": "mine", "results": "mine too", "data": 1}))
LARGE = Outcome("ok", referenced())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ load }}", {"data": {"rows": [1, 2, 3]}, "status": 200}),
        ("{{ load.status }}", 200),
        ("{{ load.data }}", {"rows": [1, 2, 3]}),
        ("{{ load['data'].rows[0] }}", 1),
        ("{{ results.list.data }}", [10, 20]),
        ("{{ results.list.data[1] }}", 20),
        ("{{ results.list[1] }}", 20),
        ("{{ load.outcome.status }}", "ok"),
        ("{{ load.outcome.result.status }}", 200),
        ("{{ load.outcome.meta.attempt }}", 2),
        ("{{ load.outcome.error is defined }}", False),
        ("{{ steps.load.results.first }}", [10, 20]),
        ("{{ steps.load.results.first.data[0] }}", 10),
        ("{{ steps.load.results.first.outcome.status }}", "ok"),
        ("{{ load.items() | length }}", 2),
    ],
)
def test_a_result_name_gives_the_result_its_data_its_outcome_and_earlier_results(text: str, value: Any) -> None:
    assert rendered(text) == value


def test_the_results_own_keys_win() -> None:
    steps = {"load": ResultView(OWN, {"first": LISTED})}
    assert rendered("{{ load.outcome }} {{ load.results }} {{ load.data }}", steps=steps) == "mine mine too 1"


def test_a_scalar_or_null_result_is_its_own_data() -> None:
    assert rendered("{{ load.data }}", steps={"load": ResultView(Outcome("ok", payload_of(5)))}) == 5
    assert rendered("{{ load.data }}", steps={"load": ResultView(Outcome("ok"))}) is None


def test_the_data_rule_holds_directly_on_a_result_name_only() -> None:
    event = event_view("step.done", "load", payload_of({"rows": [1]}))
    assert "`event.result.data` is undefined" in failure("{{ event.result.data }}", event=event).message
    previous = ResultView(Outcome("ok", payload_of({"rows": [1]})))
    assert "`_prev.data` is undefined" in failure("{{ _prev.data }}", _prev=previous).message
    assert (
        "`outcome.result.data` is undefined"
        in failure("{{ outcome.result.data }}", outcome=outcome_view(LISTED, None)).message
    )
    assert "`data` is undefined" in failure("{% set r = results.list %}{{ r.data }}").message


@pytest.mark.parametrize("previous", [ResultView(LISTED), LISTED.result, LazyResult(LISTED.result), [10, 20]])
def test_prev_takes_a_view_a_payload_or_a_value(previous: Any) -> None:
    assert rendered("{{ _prev }}", _prev=previous) == [10, 20]
    assert rendered("{{ _prev[1] }}", _prev=previous) == 20


def test_a_failed_task_has_no_result_but_an_outcome() -> None:
    assert rendered("{{ results.failed }}") is None
    assert decided("{{ results.failed is defined }}") is False
    assert rendered("{{ results.failed.data.rows }}") is None
    assert rendered("{{ results.failed.outcome.error.kind }}") == "http_status"
    assert rendered("{{ results.failed.outcome.http.status }}") == 503


def test_the_helper_of_a_result_can_be_named() -> None:
    results = {"q": ResultView(Outcome("ok", helper={"depth": 3}), helper="quantum")}
    assert rendered("{{ results.q.outcome.quantum.depth }}", results=results) == 3
    assert rendered("{{ results.q.outcome.quantum.width is defined }}", results=results) is False


def test_entire_namespaces_and_envelopes_are_plain() -> None:
    assert rendered("{{ steps }}") == {"load": {"data": {"rows": [1, 2, 3]}, "status": 200}, "later": None}
    assert rendered("{{ results | tojson }}") == (
        '{"fetch": {"data": {"rows": [1, 2, 3]}, "status": 200}, "list": [10, 20], "failed": null}'
    )
    assert rendered("{{ outcome.result == event.result }}", event=event_view("e", "s", LOADED.result)) is True
    outcome = rendered("{{ load.outcome }}")
    assert outcome["result"] == {"data": {"rows": [1, 2, 3]}, "status": 200}
    assert outcome["error"] is None
    assert rendered("{% for name in steps %}{{ name }} {% endfor %}") == "load later "
    assert rendered("{{ (outcome.error or {}).kind | default('fine') }}") == "fine"


def test_the_event_of_an_arc() -> None:
    event = event_view("loop.done", "load", error=None, loop={"count": 3, "ok": 2, "failed": 1, "skipped": 0})
    assert rendered("{{ event.name }} {{ event.step }} {{ event.status }} {{ event.loop.failed }}", event=event) == (
        "loop.done load success 1"
    )
    failed = event_view("step.failed", "load", error=FAILED.error)
    assert rendered("{{ event.status }} {{ event.error.kind }}", event=failed) == "error http_status"


def test_a_payload_is_decoded_once_and_only_when_it_is_read() -> None:
    broken = Payload(value=b"{not json")  # type: ignore[arg-type]
    assert rendered("{{ load.x | default(1) if false else 2 }}", steps={"load": ResultView(Outcome("ok", broken))}) == 2
    view = ResultView(LOADED)
    assert view.value({}) is view.value({})


@pytest.mark.parametrize(
    "text",
    [
        "{{ load }}",
        "{{ load.data.rows }}",
        "{{ load.rows | default(1) }}",
        "{{ load is defined }}",
        "{{ load.outcome.status }}",
        "{{ steps }}",
        "a {{ load.rows }}",
        "{{ load.rows | length }}",
        "{% for row in load.rows %}{% endfor %}",
    ],
)
def test_reading_a_reference_asks_for_it(text: str) -> None:
    template = compile_template(text, namespaces=frozenset({"steps"}), bindings={"load": ("steps", "load")})
    with pytest.raises(ReferenceNeeded) as needed:
        render(template, Scope({"steps": {"load": ResultView(LARGE)}}))
    assert needed.value.reference.key == "k"


@pytest.mark.parametrize(
    "source",
    [
        {"a": "{{ load.a }}", "b": ["{{ load }}", 1, "{{ other | length }}"]},
        "{{ load }}, {{ other }}",
        "{{ [load, other] }}",
        "{{ {'a': load, 'b': {'c': other}} }}",
        "{{ load.rows + other.rows }}",
        "{{ steps }}",
    ],
)
def test_all_references_that_a_rendering_needs_are_asked_for_at_once(source: Any) -> None:
    assert asked_for(source) == ["k", "other"]


@pytest.mark.parametrize(
    "source",
    [
        "{{ load.a or other.a }}",
        "{{ load.a and other.a }}",
        "{{ other.a if load.a else 1 }}",
        "{{ load.a | default(other.a) }}",
        {"a": "{{ load.a }}", "b": "{{ 1 / 0 }}", "c": "{{ other.a }}"},
    ],
)
def test_a_reference_that_may_not_be_needed_is_not_asked_for(source: Any) -> None:
    assert asked_for(source) == ["k"]


def asked_for(source: Any) -> list[str]:
    bindings = {"load": ("steps", "load"), "other": ("steps", "other")}
    template = compile_template(source, namespaces=frozenset({"steps"}), bindings=bindings)
    steps = {"load": ResultView(LARGE), "other": ResultView(Outcome("ok", referenced("other")))}
    with pytest.raises(ReferenceNeeded) as needed:
        render(template, Scope({"steps": steps}))
    return [one.reference.key for one in needed.value.all if isinstance(one, ReferenceNeeded)]


def test_a_reference_that_is_not_read_is_not_asked_for() -> None:
    steps = {"load": ResultView(LARGE), "other": ResultView(LISTED)}
    assert rendered("{{ steps.other.data if true else load.rows }}", steps=steps) == [10, 20]
    assert rendered("{{ outcome.status }}", outcome=outcome_view(LARGE, None)) == "ok"
    assert rendered("{{ event.name }}", event=event_view("step.done", "load", referenced())) == "step.done"


def test_a_loaded_reference_is_read_from_the_scope() -> None:
    views = {"steps": {"load": ResultView(LARGE)}, "event": event_view("step.done", "load", referenced())}
    loaded = Scope(views, {"k": {"rows": [1, 2]}})
    assert rendered("{{ load.rows | length }}", loaded) == 2
    assert rendered("{{ load.data.rows }}", loaded) == [1, 2]
    assert rendered("{{ load.outcome.status }}", loaded) == "ok"
    assert rendered("{{ event.result.rows[0] }}", loaded) == 1
    assert rendered("{{ event }}", loaded)["result"] == {"rows": [1, 2]}


def test_data_that_looks_like_a_reference_is_data() -> None:
    lookalike = {"store": "nats", "key": "k", "size": 1, "checksum": "sha256:0"}
    steps = {"load": ResultView(Outcome("ok", payload_of(lookalike)))}
    assert rendered("{{ load }}", steps=steps) == lookalike


def test_payloads_may_be_in_any_namespace() -> None:
    assert rendered("{{ args.rows[0] }}", args={"rows": LISTED.result}) == 10
    assert rendered("{{ args }}", args={"rows": LISTED.result}) == {"rows": [10, 20]}


def test_absent_is_one_value() -> None:
    assert scope().namespaces["steps"]["later"] is ABSENT
    assert type(ABSENT)() == ABSENT
    assert {ABSENT: 1}[None] == 1  # type: ignore[index]
