"""``noetl-stream trigger``: what a file makes of an event, without a stack."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cli_program import HEAD, one_clear_line, only_json
from warm_program import noetl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "triggers.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "how-to" / "start-on-events.md").read_text(encoding="utf-8")
NOTIFY = (ROOT / "docs" / "how-to" / "notify.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "playbooks" / "greet_on_push.trigger.yaml"
ON_STREAM = ROOT / "playbooks" / "greet_from_nats.trigger.yaml"
TRIGGER = """\
apiVersion: noetl.io/v2
kind: Trigger
metadata: { name: pushes, path: shop/pushes }
spec:
  on: { webhook: { verify: github, credential: github_webhook } }
  when: "{{ event.json.ref == 'refs/heads/main' }}"
  playbook: shop/build
  version: '1'
  workload: { commit: "{{ event.json.after }}" }
  key: "{{ event.json.after }}"
"""
FAILURES = TRIGGER.replace("webhook: { verify: github, credential: github_webhook }", "execution: { path: shop/* }")
ENDED = "{ execution_id: e, path: shop/orders, status: failed, error: { kind: sql } }"


def test_an_event_says_what_it_would_start(playbook: Callable[..., Path]) -> None:
    file, event = playbook(TRIGGER), playbook("json: { ref: refs/heads/main, after: 61137 }", "event.yaml")
    found = only_json(noetl("trigger", "test", file, "--event", event, "-o", "json"))
    assert found == {
        "starts": True,
        "playbook": "shop/build@1",
        "workload": {"commit": 61137},
        "key": "61137",
        "reason": None,
        "fault": None,
    }
    assert noetl("trigger", "test", file, "--event", event).stdout.startswith("starts: true\n")


def test_an_event_that_starts_nothing_says_why(playbook: Callable[..., Path]) -> None:
    file, event = playbook(TRIGGER), playbook(json.dumps({"json": {"ref": "dev"}}), "event.json")
    found = noetl("trigger", "test", file, "--event", event)
    assert (found.returncode, found.stderr) == (0, "")
    assert "`when` does not hold" in found.stdout
    assert noetl("trigger", "test", file, "--event", event, "-o", "name").stdout == "ignored\n"


def test_a_trigger_whose_templates_fail_fails_its_test(playbook: Callable[..., Path]) -> None:
    file, event = playbook(TRIGGER), playbook("json: { ref: refs/heads/main }", "event.yaml")
    found = noetl("trigger", "test", file, "--event", event, "-o", "json")
    assert found.returncode == 1
    shown = json.loads(found.stdout)
    assert (shown["fault"], "`event.json.after` is undefined" in shown["reason"]) == (True, True)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("status: failed", "an end with status `failed` has an error"),
        ("status: completed, error: { kind: sql }", "an end with status `completed` has no error"),
    ],
)
def test_an_end_that_no_execution_has_is_refused(playbook: Callable[..., Path], event: str, said: str) -> None:
    file = playbook(FAILURES.partition("  when:")[0] + "  playbook: a\n")
    given = playbook(f"{{ execution_id: e, path: shop/orders, {event} }}", "event.yaml")
    assert said in one_clear_line(noetl("trigger", "test", file, "--event", given))


def test_an_end_of_another_playbook_starts_nothing(playbook: Callable[..., Path]) -> None:
    text = FAILURES.partition("  when:")[0] + "  playbook: a\n"
    file = playbook(text)
    event = playbook(ENDED, "event.yaml")
    assert only_json(noetl("trigger", "test", file, "--event", event, "-o", "json"))["starts"] is True
    other = playbook(ENDED.replace("shop/orders", "other/orders"), "other.yaml")
    found = only_json(noetl("trigger", "test", file, "--event", other, "-o", "json"))
    assert (found["starts"], "path, labels or status" in found["reason"]) == (False, True)


def test_a_message_is_tested_with_its_subject(playbook: Callable[..., Path]) -> None:
    visit = playbook("{ subject: visits.office, json: { id: 3, name: Ada } }", "visit.yaml")
    found = only_json(noetl("trigger", "test", ON_STREAM, "--event", visit, "-o", "json"))
    assert (found["starts"], found["workload"], found["key"]) == (True, {"name": "Ada"}, "3")
    other = playbook("{ subject: orders.paid, json: { id: 3, name: Ada } }", "other.yaml")
    found = only_json(noetl("trigger", "test", ON_STREAM, "--event", other, "-o", "json"))
    assert (found["starts"], found["reason"]) == (False, "the subject is another than that of `on.nats`")


def test_a_field_that_no_event_has_is_refused_in_the_trigger_and_in_the_event(playbook: Callable[..., Path]) -> None:
    """An alert that names what no error has would say None, or fail, each time that it is needed."""
    alert = (
        FAILURES.partition("  when:")[0].replace("shop/*", "shop/*, status: [ failed ]")
        + "  notify: { command: [ cat ] }\n  workload: { text: '{{ event.error.%s }}' }\n"
    )
    event = playbook(ENDED, "event.yaml")
    wrong = playbook(alert % "reason", "wrong.yaml")
    for command in (("playbook", "check"), ("trigger", "test", "--event", event)):
        found = noetl(*command, wrong)
        said = f"{wrong}:7:25: error[unknown_name]: `event.error` has no `reason`\n  hint: known: `kind`, "
        assert (found.returncode, said in found.stdout + found.stderr) == (2, True)
    right = playbook(alert % "kind", "right.yaml")
    found = only_json(noetl("trigger", "test", right, "--event", event, "-o", "json"))
    assert found["workload"] == {"message": {"text": "sql"}}
    strange = playbook(ENDED.replace("kind: sql", "kind: sql, reason: away"), "strange.yaml")
    assert "unknown field `reason`" in one_clear_line(noetl("trigger", "test", right, "--event", strange))


def test_a_wrong_trigger_event_or_document_is_refused(playbook: Callable[..., Path], one_step: Path) -> None:
    event = playbook("{}", "event.yaml")
    wrong = playbook(TRIGGER.replace("github,", "githb,"), "wrong.yaml")
    found = noetl("trigger", "test", wrong, "--event", event)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith(f"{wrong}:5:28: error[invalid_value]")
    assert "not a trigger" in one_clear_line(noetl("trigger", "test", one_step, "--event", event))
    strange = playbook("{ boddy: x }", "strange.yaml")
    assert "not an event of `webhook`" in one_clear_line(
        noetl("trigger", "test", playbook(TRIGGER), "--event", strange)
    )


@pytest.mark.xdist_group("stack")
def test_triggers_are_created_paged_controlled_and_deleted_as_schedules_are(
    shared_home: Path, playbook: Callable[..., Path]
) -> None:
    def trigger(*words: object) -> str:
        found = noetl("trigger", *words, "--home", shared_home)
        assert found.returncode == 0, found.stderr
        return found.stdout + found.stderr

    build = f"{HEAD}metadata: {{name: build, path: paged/build}}\nworkflow:\n  - step: say\n    tool: {{kind: noop}}\n"
    assert noetl("playbook", "register", playbook(build), "--home", shared_home).returncode == 0
    text = FAILURES.replace("version: '1'\n  workload", "workload").replace("shop/build", "paged/build")
    text = text.partition("  when:")[0] + "  playbook: paged/build\n"
    files = [playbook(text.replace("shop/pushes", f"paged/{name}"), f"{name}.yaml") for name in "ab"]
    assert trigger("create", *files, "-o", "name") == "paged/a\npaged/b\n"
    assert trigger("create", files[0]).startswith("path: paged/a\nsource: execution\n")
    assert trigger("list", "--prefix", "paged/", "--limit", 1, "-o", "name") == "paged/a\nnext page: --after paged/a\n"
    assert trigger("list", "--prefix", "paged/", "--after", "paged/a", "-o", "name") == "paged/b\n"
    assert trigger("pause", "paged/a", "--reason", "holidays") == "paused paged/a\n"
    assert json.loads(trigger("get", "paged/a", "-o", "json"))["paused"] == "holidays"
    assert trigger("resume", "paged/a") == "resumed paged/a\n"
    assert json.loads(trigger("resume", "paged/a", "-o", "json"))["paused"] is None
    assert trigger("history", "paged/a", "--before", 7, "-o", "name") == ""
    assert [trigger("delete", f"paged/{name}") for name in "ab"] == ["deleted paged/a\n", "deleted paged/b\n"]
    gone = noetl("trigger", "get", "paged/a", "--home", shared_home)
    assert (gone.returncode, "no trigger is registered at paged/a" in gone.stderr) == (2, True)


def test_the_schema_is_a_json_schema() -> None:
    found = json.loads(noetl("trigger", "schema").stdout)
    Draft202012Validator.check_schema(found)
    assert found["title"] == "NoETL trigger"


def test_the_example_of_the_page_says_what_it_shows(playbook: Callable[..., Path], tmp_path: Path) -> None:
    blocks = re.findall(r'```(yaml|yaml title="push.yaml"|text)\n(.*?)```', PAGE, re.DOTALL)
    [(info, text), (_, event), (_, shown)] = blocks[:3]
    assert info == "yaml"
    playbook(text, "pushes.yaml"), playbook(event, "push.yaml")
    line, _, wanted = shown.partition("\n")
    words = [str(tmp_path / word) if word.endswith(".yaml") else word for word in line.split()[2:]]
    assert noetl(*words).stdout == wanted


def test_every_source_on_the_page_checks(playbook: Callable[..., Path]) -> None:
    sources = re.findall(r"```yaml on\n(.*?)```", PAGE, re.DOTALL)
    assert len(sources) == 4
    head = TRIGGER.partition("  on:")[0]
    for number, source in enumerate(sources):
        file = playbook(f"{head}  playbook: shop/build\n  on:\n    {source}", f"source{number}.yaml")
        assert noetl("playbook", "check", file).stdout == f"{file}: ok\n"


def test_every_trigger_of_the_guides_checks(playbook: Callable[..., Path]) -> None:
    triggers = re.findall(r"```yaml trigger\n(.*?)```", GUIDE + NOTIFY, re.DOTALL)
    assert len(triggers) == 7
    for number, trigger in enumerate(triggers):
        spec = "".join(f"  {line}\n" for line in trigger.splitlines())
        file = playbook(TRIGGER.partition("  on:")[0] + spec, f"trigger{number}.yaml")
        assert noetl("playbook", "check", file).stdout == f"{file}: ok\n"
    for example, shown in ((EXAMPLE, triggers[0]), (ON_STREAM, triggers[1])):
        assert [line.strip() for line in shown.splitlines()] == [
            line.strip() for line in example.read_text().partition("spec:\n")[2].splitlines()
        ]
