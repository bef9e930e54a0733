"""Documents of ``kind: Trigger``: what is read, refused, and in their JSON Schema (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noetl_stream.model.aggregates import EmittedEvents, EndedExecutions, EventSource, StreamFilter, Verification
from noetl_stream.playbook.compile.compiler import check, check_document
from noetl_stream.playbook.diagnostics import Diagnostic, Problems
from noetl_stream.playbook.model.sections import Section, keys_of
from noetl_stream.playbook.trigger.notification import NotifyNats, NotifySection, NotifyWebhook, notify_playbook
from noetl_stream.playbook.trigger.trigger_document import (
    EndSource,
    StreamSource,
    TriggerDocument,
    TriggerRoot,
    TriggerSources,
    TriggerSpec,
    WebhookSource,
    trigger_schema,
)
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.tools.registry import kinds_of, load_tools
from noetl_stream.trigger.events import EVENTS

HEAD = "apiVersion: noetl.io/v2\nkind: Trigger\nmetadata: { name: pushes, path: /shop/pushes, version: '2' }\nspec:\n"
PUSHES = "playbook: shop/build\non: { webhook: { verify: github, credential: hook } }"
FAILED = "playbook: ops/report\non: { execution: { path: shop/*, status: [ failed ] } }"
ALL = """on: { webhook: { verify: github, credential: hook } }
when: "{{ event.headers['x-github-event'] == 'push' and event.json.ref == 'refs/heads/main' }}"
playbook: /shop/build
version: '1.0'
workload: { commit: "{{ event.json.after }}", full: true }
key: "{{ event.json.after }}\""""
SCHEMA = Draft202012Validator(trigger_schema())
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "triggers.md").read_text(encoding="utf-8")


def text_of(spec: str) -> str:
    return HEAD + "".join(f"  {line}\n" for line in spec.splitlines())


def plain(text: str) -> Any:
    source = read_source(text, Problems("file"))
    assert source is not None
    return source.root.plain()


def nats(keys: str) -> str:
    return f"playbook: a\non: {{ nats: {{ {keys} }} }}"


def webhook(keys: str) -> str:
    return f"playbook: a\non: {{ webhook: {{ {keys} }} }}"


def notify(way: str) -> str:
    return f"on: {{ execution: {{ path: shop/* }} }}\nnotify: {{ {way} }}"


def read(spec: str) -> TriggerDocument:
    found = check_document(text_of(spec), {})
    assert found.trigger is not None and found.document is found.trigger, found.diagnostics
    return found.trigger


def found_in(spec: str) -> list[Diagnostic]:
    return list(check_document(text_of(spec), {}, file="t.yaml").diagnostics)


def test_every_key_of_a_trigger_is_read() -> None:
    one = read(ALL)
    terms = one.terms
    assert (one.name, one.path, one.version, terms.source) == ("pushes", "shop/pushes", "2", "webhook")
    assert (terms.playbook, terms.version) == ("shop/build", "1.0")
    assert terms.webhook == Verification(form="github", credential="hook")
    assert (terms.workload["full"], terms.key) == (True, "{{ event.json.after }}")
    assert str(terms.when).startswith("{{ event.headers")


def test_without_when_and_workload_every_event_starts_with_nothing() -> None:
    one = read(PUSHES).terms
    assert (one.when, one.workload, one.key) == (True, {}, None)


SALES = """on: { execution: { path: etl/sales, status: [ failed, cancelled ] } }
notify: { webhook: { url: "http://127.0.0.1:18999/alert", credential: alerting } }
workload: { text: "etl/sales {{ event.status }}: {{ event.error.message }}", execution: "{{ event.execution_id }}" }"""
BUILD = """on: { execution: { path: ci/build, status: [ completed ] } }
playbook: ci/deploy
workload: { execution: "{{ event.execution_id }}", commit: "{{ event.result.commit }}" }"""


def reads(on: str, expression: str) -> str:
    return f"playbook: a\non: {{ {on} }}\nworkload: {{ x: '{{{{ {expression} }}}}' }}"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SALES, ""),
        (BUILD, ""),
        (BUILD.replace("result.commit", "error.kind"), "`event.error` is always null"),
        (SALES.replace("error.message", "result.rows"), "`event.result` is always null"),
        (BUILD.replace("result.commit", "workload.ref.commit"), ""),
        (BUILD.replace("result.commit", "ctx.order.id"), "`event.ctx` has no `order`: `with` does not name it"),
        (BUILD.replace("path:", "with: [ order ], path:").replace("result.commit", "ctx.order.id"), ""),
        (BUILD.replace("result.commit", "status.code"), "`event.status` is not a mapping and has no `code`"),
        (BUILD.replace("result.commit", "labels.team.lead"), ""),
        (reads("execution: { path: a }", "event.error.kind"), ""),
        (reads("execution: { path: a }", 'event["error"]["reason"]'), "`event.error` has no `reason`"),
        (reads("execution: { path: a }", "event.error.kind.name"), "`event.error.kind` is not a mapping"),
        (reads("event: { name: a }", "event.data.order.id"), ""),
        (reads("event: { name: a }", "event.status"), "an event of `event` has no `status`"),
        (reads("event: { name: a }", "event.on.first"), "`event.on` is not a mapping"),
        (reads("nats: { stream: A }", "event.data.order.id"), ""),
        (reads("nats: { stream: A, format: text }", "event.data.order"), "`event.data` is not a mapping"),
        (reads("nats: { stream: A, format: bytes }", "event.data.order"), "`event.data` is not a mapping"),
        (reads("nats: { stream: A }", "event.headers.trace"), ""),
        (reads("nats: { stream: A }", "event.sequence.first"), "`event.sequence` is not a mapping"),
        (reads("webhook: { verify: none }", "event.json.a.b"), ""),
        (reads("webhook: { verify: none }", "event.form.a.b"), "`event.form.a` is not a mapping"),
        (reads("webhook: { verify: none }", 'event.headers["X-Kind"]'), "names of headers are lower-case"),
        (reads("webhook: { verify: none }", "event.headers.authorization"), "is left out of it"),
        (reads("webhook: { verify: token, credential: h, header: X-Key }", 'event.headers["x-key"]'), "is left out of"),
        (reads("webhook: { verify: none }", 'event.headers["x-key"]'), ""),
        (reads("webhook: { verify: none }", "event.path"), "an event of `webhook` has no `path`"),
    ],
)
def test_a_template_that_reads_what_no_event_has_is_refused(spec: str, words: str) -> None:
    errors = [one for one in found_in(spec) if one.severity == "error"]
    assert [one.code for one in errors] == ["unknown_name"] * bool(words)
    assert not words or words in errors[0].message


ENDS_OF_A = "execution: { path: a }"
ENDED_BADLY = "execution: { path: a, status: [ failed, cancelled ] }"


@pytest.mark.parametrize(
    ("spec", "severity", "words"),
    [
        (reads(ENDS_OF_A, "event.status + 1"), "error", "for any event: can only concatenate"),
        (reads(ENDS_OF_A, "event.started | date_add(1, event.status)"), "error", "for any event"),
        (reads("nats: { stream: A }", "event.subject.upper() + event.sequence"), "error", "for any event"),
        (reads("webhook: { verify: none }", 'event.time | date_format("%" ~ "Q")'), "error", "does not know `%Q`"),
        (
            reads(ENDS_OF_A, "event.error.message"),
            "warning",
            "for an end with status `completed`: `event.error.message`",
        ),
        (reads(ENDS_OF_A, 'event.due | date_trunc("day")'), "warning", "that has null as `version`, `url`, `due`"),
        (reads("event: { name: a }", "event.name + 1"), "error", "for any event"),
        (reads("event: { name: a }", 'event.due | date_trunc("day")'), "warning", "that has null as `version`, `url`"),
        (reads("event: { name: a }", "event.data.n + 1"), "", ""),
        (reads(ENDED_BADLY, "event.error.message"), "", ""),
        (reads(ENDS_OF_A, 'event.error.message if event.error else "well"'), "", ""),
        (reads(ENDS_OF_A, 'event.error.message | default("")'), "", ""),
        (f"{reads(ENDS_OF_A, 'event.error.message')}\nwhen: \"{{{{ event.status == 'failed' }}}}\"", "", ""),
        (reads(ENDS_OF_A, "event.result.rows + 1"), "", ""),
        (reads(ENDS_OF_A, 'event.started | date_format("%Y-%m-%d")'), "", ""),
        (reads("nats: { stream: A }", 'event.subject.split(".")[1]'), "", ""),
        (reads("nats: { stream: A }", 'event.subject.index("x")'), "", ""),
        (reads("webhook: { verify: none }", 'event.body.split(",")[1]'), "", ""),
        (reads("webhook: { verify: none }", 'event.body | date_format("%Y")'), "", ""),
        (reads("execution: { path: shop/* }", 'event.path.split("/")[2]'), "", ""),
        (reads(ENDS_OF_A, "event.omitted[0]"), "", ""),
        (reads(ENDED_BADLY, 'event.error.message.split(":")[1]'), "", ""),
        (reads(ENDS_OF_A, 'event.error.message.split(":")[1]'), "warning", "status `completed`: `event.error.message`"),
        (reads(ENDS_OF_A, "event.execution_id ~ event.error.message"), "warning", "`event.error.message`"),
        (
            f"{reads(ENDS_OF_A, 'event.error.kind')}\nwhen: \"{{{{ not event.error or event.error.kind == 'x' }}}}\"",
            "warning",
            "completed",
        ),
    ],
)
def test_a_template_is_tried_for_each_sort_of_event_that_may_come(spec: str, severity: str, words: str) -> None:
    found = [one for one in found_in(spec) if one.code == "cannot_render"]
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all(words in one.message for one in found)


@pytest.mark.parametrize(
    ("spec", "severity", "hint"),
    [
        (FAILED + "\nwhen: \"{{ event.status == 'error' }}\"", "error", "`failed`"),
        (FAILED + "\nwhen: \"{{ event.status in ['failed', 'cancelled'] }}\"", "warning", "`failed`"),
        (FAILED.replace("shop/*", "shop/a") + "\nwhen: \"{{ event.path == 'shop/b' }}\"", "warning", "`shop/a`"),
        (PUSHES + "\nwhen: \"{{ event.method == 'GET' }}\"", "error", "`POST`"),
    ],
)
def test_a_comparison_that_never_holds_is_refused_or_warned_of_if_only_the_source_rules_it_out(
    spec: str, severity: str, hint: str
) -> None:
    [found] = found_in(spec)
    assert (found.severity, found.code) == (severity, "impossible_comparison")
    assert hint in (found.hint or "")


@pytest.mark.parametrize("source", EVENTS)
def test_the_reference_lists_what_events_have(source: EventSource) -> None:
    section = PAGE.partition(f"### `{source}`")[2].partition("\n### ")[0]
    table = section.partition("| `event` has | |\n| --- | --- |\n")[2].partition("\n\n")[0]
    listed = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(EVENTS[source].__struct_fields__)


def test_a_plain_signature_says_where_and_how_it_is_written() -> None:
    keys = "verify: hmac, credential: h, header: X-Sig, prefix: v1=, algorithm: sha512, encoding: base64"
    assert read(webhook(f"{keys}, timestamp_header: X-Time, tolerance: 1m")).terms.webhook == Verification(
        form="hmac",
        credential="h",
        header="x-sig",
        algorithm="sha512",
        encoding="base64",
        prefix="v1=",
        timestamp_header="x-time",
        tolerance_s=60,
    )
    assert read(webhook("verify: none")).terms.webhook == Verification(form="none")


def test_ends_of_executions_are_chosen_by_path_labels_and_status() -> None:
    ended = "path: /shop/*, labels: { team: red }, status: [ failed, failed, cancelled ]"
    one = read(f"playbook: a\non: {{ execution: {{ {ended} }} }}").terms
    assert one.source == "execution"
    assert one.execution == EndedExecutions(path="shop/*", labels={"team": "red"}, status=("failed", "cancelled"))


def test_events_of_playbooks_are_chosen_by_name_path_and_labels() -> None:
    one = read("playbook: a\non: { event: { name: shipped, path: /shop/*, labels: { team: red } } }").terms
    assert one.source == "event"
    assert one.event == EmittedEvents(name="shipped", path="shop/*", labels={"team": "red"})
    assert read("playbook: a\non: { event: { name: shipped } }").terms.event == EmittedEvents(name="shipped")


def test_messages_of_a_stream_are_chosen_by_subject_and_time() -> None:
    assert read(nats("stream: ORDERS")).terms.nats == StreamFilter(stream="ORDERS")
    one = read(nats("stream: O-1, subject: a.*.b.>, from: 2026-11-05T09:00:00+01:00, format: bytes")).terms
    assert one.source == "nats"
    assert one.nats == StreamFilter(stream="O-1", subject="a.*.b.>", from_ms=1_793_865_600_000, format="bytes")
    assert read(nats("stream: ORDERS, from: all")).terms.nats == StreamFilter(stream="ORDERS", from_ms=0)
    assert read(nats("stream: ORDERS, from: new")).terms.nats == StreamFilter(stream="ORDERS")


@pytest.mark.parametrize(
    ("spec", "place", "code", "words"),
    [
        (nats("subject: a"), (6, 15), "missing_key", "needs `stream`"),
        (FAILED.replace("[ failed ]", "failure"), (6, 44), "wrong_type", "write status: [ failed ]"),
        (reads(ENDS_OF_A, "event.started | date_add(1)"), (7, 38), "template_syntax", "takes (amount, unit, zone)"),
        (reads(ENDS_OF_A, "workload.x"), (7, 22), "namespace_not_here", "a trigger reads `event` alone"),
        (nats("stream: a.b"), (6, 25), "invalid_value", "not the name of a stream"),
        (nats("stream: EVENTS"), (6, 25), "invalid_value", "the engine's own"),
        (nats("stream: OBJ_noetl-results"), (6, 25), "invalid_value", "the engine's own"),
        (nats("stream: A, subject: 'a..b'"), (6, 37), "invalid_value", "not a subject pattern"),
        (nats("stream: A, subject: 'a.>.b'"), (6, 37), "invalid_value", "not a subject pattern"),
        (nats("stream: A, subject: 'a b'"), (6, 37), "invalid_value", "not a subject pattern"),
        (nats("stream: A, subject: 'a.b*'"), (6, 37), "invalid_value", "not a subject pattern"),
        (nats("stream: A, from: yesterday"), (6, 34), "invalid_value", "write new, all, or a time"),
        (nats("stream: A, from: 2026-11-05T09:00"), (6, 34), "invalid_value", "with its offset"),
        (nats("stream: A, format: jsn"), (6, 36), "invalid_value", "did you mean `json`?"),
        (nats("stream: A, subjet: a"), (6, 28), "unknown_key", "did you mean `subject`?"),
        (nats("stream: A") + "\nwhen: '{{ event.json.a }}'", (7, 13), "unknown_name", "an event of `nats` has no"),
        ("playbook: a", (5, 3), "missing_key", "needs `on`"),
        ("playbook: a\non: {}", (6, 7), "missing_key", "needs one of `webhook`, `nats`, `execution`"),
        ("on: { webhook: { verify: none } }", (5, 3), "missing_key", "needs `playbook` or `notify`"),
        (notify("webhook: { url: 'https://a.b' }") + "\nplaybook: a", (7, 3), "conflicting_keys", "beside `notify`"),
        (notify(""), (6, 11), "missing_key", "needs `webhook`, `nats` or `command`"),
        (notify("command: [ a ], webhook: { url: 'https://a.b' }"), (6, 13), "conflicting_keys", "beside `webhook`"),
        (notify("webhook: { url: 'ftp://a.b' }"), (6, 29), "invalid_value", "https://"),
        (notify("webhook: { uri: 'https://a.b' }"), (6, 24), "unknown_key", "did you mean `url`?"),
        (notify("webhook: { url: 'https://{{ event.path }}' }"), (6, 11), "template_not_rendered", "`workload`"),
        (notify("nats: { subject: a.b }"), (6, 19), "missing_key", "needs `credential`"),
        (notify("command: []"), (6, 22), "invalid_value", "command"),
        (PUSHES.replace(" } }", " }, execution: { path: a } }"), (6, 56), "conflicting_keys", "beside `webhook`"),
        (PUSHES.replace("webhook", "webhok"), (6, 9), "unknown_key", "did you mean `webhook`?"),
        (PUSHES.replace("credential", "credentials"), (6, 36), "unknown_key", "did you mean `credential`?"),
        (PUSHES.replace("verify", "verfy"), (6, 20), "unknown_key", "did you mean `verify`?"),
        (PUSHES.replace("verify: github", "verify: githb"), (6, 28), "invalid_value", "did you mean `github`?"),
        (webhook("verify: github"), (6, 18), "missing_key", "needs `credential`"),
        (webhook("credential: a"), (6, 18), "missing_key", "needs `verify`"),
        (webhook("verify: none, credential: a"), (6, 34), "no_effect", "verify: none"),
        (webhook("verify: github, credential: 'a b'"), (6, 48), "invalid_value", "not the name of a credential"),
        (webhook("verify: github, credential: a, header: X"), (6, 51), "no_effect", "`header`"),
        (webhook("verify: hmac, credential: a"), (6, 18), "missing_key", "write header: X-Signature"),
        (webhook("verify: token, credential: a"), (6, 18), "missing_key", "write header: Authorization"),
        (webhook("verify: token, credential: a, header: 'a b'"), (6, 58), "invalid_value", "not the name of a header"),
        (webhook("verify: slack, credential: a, tolerance: 2h"), (6, 61), "invalid_value", "at most an hour"),
        (webhook("verify: slack, credential: a, tolerance: soon"), (6, 61), "invalid_value", "at most an hour"),
        (
            webhook("verify: hmac, credential: a, header: X, tolerance: 1m"),
            (6, 60),
            "no_effect",
            "`timestamp_header`",
        ),
        ("playbook: a\non: { execution: {} }", (6, 20), "missing_key", "`path`, `labels` or `status`"),
        ("playbook: a\non: { event: { path: a } }", (6, 16), "missing_key", "needs `name`"),
        ("playbook: a\non: { event: { name: order shipped } }", (6, 24), "invalid_name", "order shipped"),
        ("playbook: a\non: { event: { name: a, path: 'a*' } }", (6, 33), "invalid_value", "all below one: shop/*"),
        (FAILED.replace("shop/*", "shop/*/a"), (6, 28), "invalid_value", "all below one: shop/*"),
        (FAILED.replace("failed", "fail"), (6, 46), "invalid_value", "did you mean `failed`?"),
        (FAILED.replace("path", "pth"), (6, 22), "unknown_key", "did you mean `path`?"),
        (PUSHES + "\nwhen: event.json.a", (7, 9), "guard_not_expression", "single `{{ expression }}`"),
        (PUSHES + "\nwhen: '{{ json.a }}'", (7, 13), "unbound_name", "event.json"),
        (PUSHES + "\nwhen: '{{ event.jsn.a }}'", (7, 13), "unknown_name", "did you mean `json`?"),
        (FAILED + "\nwhen: '{{ event.json.a }}'", (7, 13), "unknown_name", "known: "),
        (PUSHES + "\nworkload: { a: '{{ workload.b }}' }", (7, 22), "namespace_not_here", "workload"),
        (PUSHES + "\nworkload: '{{ event.json }}'", (7, 13), "wrong_type", "must be a mapping"),
        (
            PUSHES + "\nworkload: { a: '{% if event.json %}{% endif %}' }",
            (7, 22),
            "statement_not_allowed",
            "the server renders this",
        ),
        (PUSHES + "\nkey: [ a ]", (7, 8), "wrong_type", "`key` must be text"),
        (PUSHES + "\nkey: a", (7, 8), "constant_key", "only the first one starts"),
        (PUSHES.replace("shop/build", "shop/build@1"), (5, 13), "invalid_value", "goes to `version`"),
        (PUSHES + "\nwehn: true", (7, 3), "unknown_key", "did you mean `when`?"),
    ],
)
def test_a_mistake_is_named_with_its_place(spec: str, place: tuple[int, int], code: str, words: str) -> None:
    found = [one for one in found_in(spec) if one.code == code]
    assert [(one.line, one.column) for one in found] == [place], found_in(spec)
    assert words in found[0].render()


@pytest.mark.parametrize(
    ("way", "kinds"),
    [
        ("webhook: { url: 'https://example.org/hook' }", ["http"]),
        ("webhook: { url: 'https://example.org/hook', credential: hook, auth: api }", ["python", "http"]),
        ("nats: { subject: a.b, credential: bus, jetstream: true }", ["nats"]),
        ("command: [ notify-send, failed ]", ["shell"]),
    ],
)
def test_a_notification_is_a_playbook_of_one_step_without_a_warning(way: str, kinds: list[str]) -> None:
    one = read(notify(way))
    assert (one.call, one.terms.playbook) == (None, "shop/pushes/notify")
    assert one.terms.workload == {"message": "{{ event }}"}
    assert one.notification is not None
    text = notify_playbook(one.terms.playbook, one.name, one.notification)
    checked = check(text, kinds_of(load_tools()), proves=True)
    assert checked.plan is not None and checked.diagnostics == ()
    [step] = checked.plan.steps.values()
    assert [task.kind for task in step.tasks] == kinds
    assert SCHEMA.is_valid(plain(text_of(notify(way))))


def test_the_fields_to_send_can_be_chosen() -> None:
    spec = notify("command: [ cat ]") + "\nworkload: { text: '{{ event.path }} failed' }"
    assert read(spec).terms.workload == {"message": {"text": "{{ event.path }} failed"}}


def test_a_trigger_without_a_spec_is_refused_at_the_top() -> None:
    for spec in ("", "spec: text\n"):
        found = check_document(HEAD.replace("spec:\n", spec), {})
        assert not found.ok and found.diagnostics[0].code in ("missing_key", "wrong_type")


def test_a_check_looks_up_the_playbook_that_it_starts() -> None:
    [call] = check_document(text_of(PUSHES), {}).calls
    assert (call.path, call.version, call.missing_warning("t.yaml").line) == ("shop/build", None, 5)


@pytest.mark.parametrize(
    "spec",
    [
        PUSHES,
        FAILED,
        ALL,
        webhook("verify: none"),
        nats("stream: A, subject: a.>, from: all, format: text"),
        "playbook: a\non: { event: { name: shipped, path: shop/*, labels: { team: red } } }",
    ],
)
def test_the_json_schema_accepts_what_the_checker_accepts(spec: str) -> None:
    assert read(spec)
    assert [error.message for error in SCHEMA.iter_errors(plain(text_of(spec)))] == []


@pytest.mark.parametrize(
    "spec",
    [
        "playbook: a",
        "playbook: a\non: {}",
        "on: { webhook: { verify: none } }",
        PUSHES.replace(" } }", " }, execution: { path: a } }"),
        PUSHES.replace("github", "githb"),
        webhook("credential: a"),
        nats("subject: a"),
        nats("stream: a.b"),
        nats("stream: A, format: xml"),
        "playbook: a\non: { event: { path: a } }",
        FAILED.replace("failed", "fail"),
        PUSHES + "\nwehn: true",
        PUSHES + "\nworkload: text",
        PUSHES + "\nkey: [ a ]",
    ],
)
def test_the_json_schema_refuses_what_the_checker_refuses(spec: str) -> None:
    assert any(one.severity == "error" for one in found_in(spec))
    assert not SCHEMA.is_valid(plain(text_of(spec)))


def test_the_json_schema_describes_every_key() -> None:
    root = trigger_schema()
    spec = root["properties"]["spec"]
    on = spec["properties"]["on"]
    models: list[tuple[type[Section], dict[str, Any]]] = [
        (TriggerRoot, root),
        (TriggerSpec, spec),
        (TriggerSources, on),
        (WebhookSource, on["properties"]["webhook"]),
        (StreamSource, on["properties"]["nats"]),
        (EndSource, on["properties"]["execution"]),
        (NotifySection, spec["properties"]["notify"]),
        (NotifyWebhook, spec["properties"]["notify"]["properties"]["webhook"]),
        (NotifyNats, spec["properties"]["notify"]["properties"]["nats"]),
    ]
    for model, schema in models:
        assert list(schema["properties"]) == keys_of(model)
        assert all(key["description"] for key in schema["properties"].values())
