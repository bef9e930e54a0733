"""``/api/v1/schedules``: every operation, called by the OpenAPI document."""

from __future__ import annotations

from gateway_playbooks import LOOP
from openapi_checks import Described

SCHEDULE = """\
apiVersion: noetl.io/v2
kind: Schedule
metadata: { name: yearly, path: team/yearly }
spec: { playbook: tests/loop, cron: [ "0 0 1 1 *" ], timezone: UTC }
"""
YAML = "application/yaml"
AT = {"path": "team/yearly"}


async def test_a_schedule_is_registered_watched_controlled_and_deleted(api: Described) -> None:
    early = await api.call("registerPlaybook", body=SCHEDULE, media=YAML)
    assert (early.status, "not registered" in early.body["detail"]) == (422, True)
    assert (await api.call("listPlaybooks")).body["items"] == []
    await api.call("registerPlaybook", body=LOOP, media=YAML)
    registered = await api.call("registerPlaybook", body=SCHEDULE, media=YAML)
    assert (registered.status, registered.body["kind"]) == (201, "Schedule")
    assert (await api.call("registerPlaybook", body=SCHEDULE, media=YAML)).status == 200

    [listed] = (await api.call("listSchedules", query={"prefix": "team/"})).body["items"]
    assert listed == (await api.call("getSchedule", **AT)).body
    assert listed["next"].endswith("-01-01T00:00:00.000+00:00")
    assert listed["registered_by"] == "token:local"
    upcoming = await api.call("listUpcoming", query={"count": 2, "after": "2026-06-01T00:00:00Z"}, **AT)
    assert [one["at"] for one in upcoming.body["items"]] == ["2027-01-01T00:00:00+00:00", "2028-01-01T00:00:00+00:00"]

    paused = await api.call("pauseSchedule", headers={"X-Reason": "holidays"}, **AT)
    assert (paused.body["paused"]["reason"], paused.body["next"]) == ("holidays", None)
    span = {"from": "2019-06-01T00:00:00Z", "before": "2021-06-01T00:00:00Z"}
    assert (await api.call("backfillSchedule", body=span, **AT)).status == 409
    triggered = (await api.call("triggerSchedule", **AT)).body
    assert triggered["cause"] == "trigger"
    started = await api.call("getExecution", execution_id=triggered["execution_id"], query={"wait": "20s"})
    by = {"kind": "schedule", "path": "team/yearly", "number": 1, "execution_id": None}
    assert started.body["origin"] == by
    day = started.body["due"][:10]
    (listed,) = (await api.call("listExecutions", query={"due": day})).body["items"]
    assert (listed["execution_id"], listed["due"]) == (started.body["execution_id"], started.body["due"])
    assert (await api.call("listExecutions", query={"due": "1999-01-01..1999-12"})).body["items"] == []
    refused = await api.call("listExecutions", query={"due": "yesterday"})
    assert (refused.status, refused.body["hint"]) == (
        422,
        "write a day, as 2026-12-20, or a range of days, as 2026-12-01..2026-12-20",
    )
    assert (await api.call("resumeSchedule", **AT)).body["paused"] is None
    filled = (await api.call("backfillSchedule", body={**span, "overlap": "allow"}, **AT)).body
    assert filled == {"path": "team/yearly", "occurrences": 2}
    assert (await api.call("listOccurrences", query={"status": "skipped"}, **AT)).body["items"] == []

    stays = await api.call("deletePlaybook", **AT)
    assert (stays.status, "schedule delete" in stays.body["hint"]) == (409, True)
    assert (await api.call("deleteSchedule", **AT)).status == 204
    assert (await api.call("getSchedule", **AT)).status == 404
    assert (await api.call("deleteSchedule", **AT)).status == 404
    assert (await api.call("getPlaybook", **AT)).status == 404
