"""What a trigger makes of an event: a start with a workload and a key, or the reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from noetl_stream.errors import UsageError
from noetl_stream.model.aggregates import StreamFilter, StreamFormat, TriggerTerms, Verification
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.trigger import matching
from noetl_stream.playbook.trigger.matching import (
    EndedExecution,
    Ignored,
    Rules,
    Starts,
    concerns,
    describe_delivery,
    describe_message,
    digits_lost_in,
    execution_event,
    match,
    read_event,
    webhook_event,
)
from noetl_stream.playbook.trigger.trigger_document import EndedExecutions
from noetl_stream.trigger.signatures import WebhookDelivery
from noetl_stream.trigger.stream_messages import (
    MAX_MESSAGE_BYTES,
    TriggerMessage,
    is_subject_pattern,
    subject_matches,
)

JSON = {"content-type": "application/json"}
WEBHOOK = TriggerTerms(playbook="p", webhook=Verification(form="none"))


def rules(when: str | bool = True, workload: Any = None, key: str | None = None) -> Rules:
    return Rules("webhook", when, workload or {}, key)


def delivered(body: bytes = b'{"ref": "main", "n": 7}', query: str = "", **headers: str) -> Any:
    return webhook_event(WebhookDelivery(method="POST", headers=headers or JSON, body=body, query=query))


def test_a_workload_takes_native_values_from_the_event() -> None:
    wanted = rules(
        "{{ event.json.ref == 'main' }}", {"n": "{{ event.json.n }}", "at": "{{ event.method }}!"}, "{{ event.json.n }}"
    )
    assert match(wanted, delivered()) == Starts({"n": 7, "at": "POST!"}, "7")


def test_labels_take_values_from_the_event_within_their_bounds() -> None:
    wanted = Rules("webhook", True, {}, None, {"ref": "{{ event.json.ref }}", "team": "a"})
    assert match(wanted, delivered()) == Starts({}, "", {"ref": "main", "team": "a"})
    faulty = Rules("webhook", True, {}, None, {"all": "{{ event.json }}"})
    assert match(faulty, delivered()).reason == "`labels`: label `all` must be a text, a number, a boolean or null"


def test_a_value_from_outside_is_never_a_template() -> None:
    sent = delivered(b'{"name": "{{ event.headers }}"}')
    assert match(rules(workload={"name": "{{ event.json.name }}"}), sent) == Starts({"name": "{{ event.headers }}"}, "")


def test_the_raw_body_the_query_and_the_headers_are_data() -> None:
    workload = {"raw": "{{ event.body }}", "q": "{{ event.query.q }}", "type": "{{ event.headers['content-type'] }}"}
    found = match(rules(workload=workload), delivered(b"not json", "q=a%20b&q=c", **{"content-type": "text/plain"}))
    assert found == Starts({"raw": "not json", "q": "c", "type": "text/plain"}, "")


def test_a_form_is_read_by_field() -> None:
    sent = delivered(b"command=%2Fdeploy&text=", **{"content-type": "application/x-www-form-urlencoded; charset=utf-8"})
    assert match(rules(workload={"do": "{{ event.form.command }}"}), sent) == Starts({"do": "/deploy"}, "")
    assert match(rules("{{ event.form is defined }}"), delivered()) == Ignored(
        "`when` does not hold: {{ event.form is defined }}"
    )


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"a": NaN}'])
def test_a_body_that_is_no_json_is_absent(body: bytes) -> None:
    found = match(rules("{{ event.json is none }}", {"a": "{{ event.json | default('none') }}"}), delivered(body))
    assert found == Starts({"a": "none"}, "")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (rules("{{ event.json.ref == 'dev' }}"), "`when` does not hold: {{ event.json.ref == 'dev' }}"),
        (rules("{{ event.json.nope }}"), "cannot be evaluated"),
        (rules(workload={"a": "{{ event.json.n / 0 }}"}), "division by zero"),
        (rules(key="{{ event.json.nope | default('') }}"), "`key` must be text or a whole number"),
        (rules(key="{{ 'x' * 257 }}"), "of 1 to 256 characters"),
        (rules(key="{{ event.json }}"), "`key` must be text or a whole number"),
        (rules(workload={"a": "{{ range(99999) | list }}"}), "operations (limits.max_inline_operations)"),
    ],
)
def test_an_event_that_does_not_start_has_a_reason(wanted: Rules, words: str) -> None:
    found = match(wanted, delivered())
    assert isinstance(found, Ignored) and words in found.reason


def test_many_copies_of_a_long_text_are_not_even_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte 64 times held a server for a third of a second."""
    monkeypatch.setattr(matching, "_check_start", None)
    found = match(rules(workload={f"k{n}": "{{ event.body }}" for n in range(64)}), delivered(b"x" * 1024 * 1024))
    assert isinstance(found, Ignored) and "operations (limits.max_inline_operations)" in found.reason


def test_a_long_text_starts_an_execution() -> None:
    assert isinstance(match(rules(workload={"a": "{{ event.body }}"}), delivered(b"x" * 1_000_000)), Starts)


def test_a_workload_that_is_too_large_starts_nothing() -> None:
    low = DEFAULT_LIMITS.lower_to({"max_workload_bytes": 100}).limits
    found = match(rules(workload={"a": "{{ event.body }}"}), delivered(b"x" * 200), low)
    assert isinstance(found, Ignored) and "the limit is 100" in found.reason


@pytest.mark.parametrize(
    "wanted",
    [
        rules(workload={"a": "{{ event.json.a }}"}),
        rules(key="{{ event.json.a }}"),
        rules("{{ event.json[event.json.a].b }}"),
    ],
)
def test_an_event_that_cannot_be_stored_starts_nothing_and_its_reason_is_storable(wanted: Rules) -> None:
    found = match(wanted, delivered(b'{"a": "x\\u0000y"}'))
    assert isinstance(found, Ignored) and "\0" not in found.reason


@pytest.mark.parametrize("body", [b"text", "Ünal".encode(), b"\xff\xfe", b"a\0b", b""])
def test_an_event_is_described_so_that_it_can_be_read_again(body: bytes) -> None:
    delivery = WebhookDelivery(method="POST", headers={"x-a": "b"}, query="q=1", body=body)
    said = describe_delivery(delivery)
    assert "\0" not in str(said)
    assert read_event("webhook", said) == webhook_event(delivery)


ENDED = EndedExecution(execution_id="e1", path="shop/orders/eu", status="failed", labels={"team": "red", "n": 1})


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        (EndedExecutions(path="shop/orders/eu"), True),
        (EndedExecutions(path="shop/*"), True),
        (EndedExecutions(path="shop/orders/*"), True),
        (EndedExecutions(path="shop/orders"), False),
        (EndedExecutions(path="shop/order/*"), False),
        (EndedExecutions(path="sho/*"), False),
        (EndedExecutions(labels={"team": "red"}), True),
        (EndedExecutions(labels={"team": "red", "n": 1}), True),
        (EndedExecutions(labels={"team": "blue"}), False),
        (EndedExecutions(labels={"other": None}), False),
        (EndedExecutions(status=("failed", "cancelled")), True),
        (EndedExecutions(status=("completed",)), False),
        (EndedExecutions(path="shop/*", status=("completed",)), False),
    ],
)
def test_an_end_concerns_a_trigger_by_path_labels_and_status(wanted: EndedExecutions, is_wanted: bool) -> None:
    assert concerns(wanted, ENDED.path, ENDED.labels, ENDED.status) is is_wanted


def test_an_end_is_an_event_with_the_error_if_there_is_one() -> None:
    wanted = Rules("execution", "{{ event.error.kind == 'timeout' }}", {"id": "{{ event.execution_id }}"}, None)
    assert isinstance(match(wanted, execution_event(ENDED)), Ignored)
    timed_out = EndedExecution(
        execution_id="e2", path="a", status="failed", error={"kind": "timeout", "message": "late"}
    )
    assert match(wanted, execution_event(timed_out)) == Starts({"id": "e2"}, "")


def test_an_event_is_described_in_a_file() -> None:
    assert read_event("webhook", {"json": {"a": 1}, "headers": {"X-A": "b"}})["headers"] == {"x-a": "b"}
    assert read_event("webhook", {"body": "a=1"})["body"] == "a=1"
    assert read_event("execution", {"execution_id": "e", "path": "a", "status": "failed"})["labels"] == {}
    for source, wrong in (("webhook", {"jsn": 1}), ("webhook", []), ("execution", {"path": "a"})):
        with pytest.raises(UsageError, match=f"not an event of `{source}`"):
            read_event(source, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xef\xbb\xbf" + '{"a":"€é"}'.encode(), "application/json"),
        ('{"a":"€é"}'.encode("iso-8859-15"), "application/json; charset=ISO-8859-15"),
        ('{"a":"€é"}'.encode("utf-16"), "text/json"),
        ('{"a":"€é"}'.encode(), "application/json; charset=none-such"),
    ],
)
def test_a_body_in_a_charset_that_it_says_or_with_a_byte_order_mark_is_read(body: bytes, content_type: str) -> None:
    found = delivered(body, **{"content-type": content_type})
    assert (found["json"], found["body"]) == ({"a": "€é"}, '{"a":"€é"}')
    said = describe_delivery(
        WebhookDelivery(method="POST", headers={"content-type": content_type}, body=body, query="")
    )
    assert read_event("webhook", said) == found


def test_a_form_is_read_in_its_charset() -> None:
    kind = {"content-type": "application/x-www-form-urlencoded; charset=ISO-8859-15"}
    assert delivered(b"price=5%A4", **kind)["form"] == {"price": "5€"}


@pytest.mark.parametrize(
    ("terms", "given", "pointers"),
    [
        (WEBHOOK, {"body": '{"n":12345678901234567.89}'}, ["/event/json/n"]),
        (
            TriggerTerms(playbook="p", nats=StreamFilter(stream="S")),
            {"body": "[0.12345678901234567890]"},
            ["/event/data/0"],
        ),
        (
            TriggerTerms(playbook="p", nats=StreamFilter(stream="S", format="text")),
            {"body": "0.12345678901234567890"},
            [],
        ),
        (WEBHOOK, {"body": "no JSON 12345678901234567.89"}, []),
        (WEBHOOK, {"base64": "AA=="}, []),
    ],
)
def test_the_digits_that_an_event_loses_are_found(
    terms: TriggerTerms, given: dict[str, Any], pointers: list[str]
) -> None:
    assert digits_lost_in(terms, given) == pointers


def message(body: bytes, **more: Any) -> TriggerMessage:
    given = {"stream": "ORDERS", "sequence": 7, "subject": "orders.paid", "at_ms": 0, "size": len(body), **more}
    return TriggerMessage(body=body, **given)


def read(form: StreamFormat, one: TriggerMessage) -> Mapping[str, Any]:
    return read_event("nats", describe_message(one), form)


def test_a_message_is_an_event_with_its_place_and_its_data_as_the_trigger_says() -> None:
    one = message(b'{"n": 1}', headers={"Kind": "a"})
    found = read("json", one)
    assert dict(found) == {
        "subject": "orders.paid",
        "data": {"n": 1},
        "headers": {"Kind": "a"},
        "stream": "ORDERS",
        "sequence": 7,
        "time": "1970-01-01T00:00:00.000+00:00",
    }
    assert (read("text", one)["data"], read("bytes", one)["data"]) == ('{"n": 1}', "eyJuIjogMX0=")
    assert read("bytes", message(b"\xff\0"))["data"] == "/wA="
    marked = message(b'\xef\xbb\xbf{"n": 1}')
    assert (read("json", marked)["data"], read("text", marked)["data"]) == ({"n": 1}, '{"n": 1}')
    rules = Rules("nats", "{{ event.data.n == 1 }}", {"of": "{{ event.subject }}"}, None)
    assert match(rules, found) == Starts({"of": "orders.paid"}, "")


@pytest.mark.parametrize(
    ("form", "one", "reason"),
    [
        ("json", message(b"text"), "its data is not JSON"),
        ("json", message(b""), "its data is not JSON"),
        ("text", message(b"\xff"), "its data is not UTF-8"),
        ("bytes", message(b"", size=MAX_MESSAGE_BYTES + 1), "at most 262,144 are taken"),
    ],
)
def test_a_message_that_is_not_what_the_trigger_says_is_refused_with_the_reason(
    form: StreamFormat, one: TriggerMessage, reason: str
) -> None:
    said = describe_message(one)
    assert "\0" not in str(said)
    with pytest.raises(UsageError, match=reason):
        read_event("nats", said, form)


def test_a_message_is_described_in_a_file() -> None:
    assert read_event("nats", {"subject": "a", "json": {"n": 1}})["data"] == {"n": 1}
    for wrong in ({"json": 1}, {"subject": "a", "data": 1}, {"subject": "a", "base64": "a"}):
        with pytest.raises(UsageError):
            read_event("nats", wrong)


@pytest.mark.parametrize(
    ("pattern", "subject", "is_one"),
    [
        (">", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
    ],
)
def test_patterns_of_subjects_are_those_of_nats(pattern: str, subject: str, is_one: bool) -> None:
    assert is_subject_pattern(pattern)
    assert subject_matches(pattern, subject) is is_one
