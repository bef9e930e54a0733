"""A gateway with something of everything to show, and the screens that show it."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from gateway_playbooks import APPROVAL, FAILS, LOOP
from gateway_stage import GatewayStage
from msgspec.structs import replace
from page_browser import Visit, expect

from noetl_stream.model.json import codec
from noetl_stream.model.rights import Role
from noetl_stream.model.task_log import LogBatch, LogLine
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.stores.identities import AuditedAnswer, AuditedCall
from noetl_stream.protocol import subjects
from noetl_stream.settings.gateway_settings import GatewayLimits

PLAYBOOKS: Final = Path(__file__).resolve().parents[2] / "playbooks"
NIGHTLY: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: nightly
  path: team/nightly
  version: "2.1"
  description: Yesterday's orders, region by region, into one report.
  labels: {team: sales, env: prod}
workload: {regions: [north, south, east, west], day: "2026-11-22"}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: fetch_orders}, {step: fetch_rates}]}
  - step: fetch_orders
    loop: {in: "{{ workload.regions }}", iterator: region}
    tool: {kind: noop, args: {region: "{{ iter.region }}", orders: 1240}}
    next: {arcs: [{step: combine}]}
  - step: fetch_rates
    tool: {kind: noop, args: {currency: EUR, rates: {usd: 1.08, gbp: 0.84}}}
    next: {arcs: [{step: combine}]}
  - step: combine
    spec: {join: all}
    tool: {kind: noop, args: {rows: 4960, total: 81234.5, day: "{{ workload.day }}"}}
    next:
      arcs:
        - {step: alert, when: "{{ event.result.rows == 0 }}"}
        - {step: publish}
  - step: alert
    tool: {kind: noop, args: {sent: true}}
  - step: publish
    tool: {kind: noop, args: {report: "s3://reports/2026-11-22.parquet", rows: 4960}}
"""
EARLIER: Final = (
    NIGHTLY.replace('"2.1"', '"2.0"')
    .replace("rows: 4960, total", "rows: 4900, total")
    .replace("alert", "warn")
    .replace('"{{ event.result.rows == 0 }}"', '"{{ event.result.rows < 1 }}"')
)
FETCHES: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: fetches, path: team/fetches, version: "1.0", labels: {team: sales}}
workflow:
  - step: plan
    tool: {kind: noop, args: {pages: 120, note: "{{ 'long ' * 1000 }}"}}
    next: {arcs: [{step: fetch}]}
  - step: fetch
    loop:
      in: "{{ range(plan.pages) | list }}"
      iterator: page
      spec: {mode: parallel, max_in_flight: 6, policy: {failure: {mode: best_effort}}}
    tool: {kind: noop, args: {page: "{{ iter.page }}", share: "{{ 1 // (iter.page % 37) }}"}}
    next: {arcs: [{step: settle}]}
  - step: settle
    tool: [{name: pause, kind: wait, for_s: 3}, {name: done, kind: noop, args: {settled: true}}]
    next: {arcs: [{step: report}]}
  - step: report
    tool:
      name: rows
      kind: noop
      args: {rows: [{id: 1, city: Paris, total: 12.5}, {id: 2, city: "São Paulo", total: 8}, {id: 3, city: Oslo}]}
"""
CALLER: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: caller, path: team/caller, version: "1.0"}
workflow:
  - step: prepare
    tool: {kind: noop}
    next: {arcs: [{step: report}]}
  - step: report
    tool: {kind: playbook, path: team/nightly}
    next: {arcs: [{step: send}]}
  - step: send
    tool: {kind: noop}
"""
EVIL: Final = '<img src=x onerror="window.evil=1"><script>window.evil=1</script>{{ 7*7 }}'
HOSTILE: Final = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: hostile
  path: team/hostile
  description: {EVIL!r}
  labels: {{note: {EVIL!r}}}
workload: {{text: {EVIL!r}}}
workflow:
  - step: start
    tool: {{kind: noop, args: {{said: "{{{{ workload.text }}}}", more: {{{EVIL!r}: 1}}}}}}
    next: {{arcs: [{{step: held}}]}}
  - step: held
    desc: {EVIL!r}
    tool:
      - {{name: word, kind: wait, signal: go, timeout_s: 3600}}
"""
FAILS_HOSTILE: Final = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: fails_hostile, path: team/fails_hostile}}
workload: {{names: [{EVIL!r}]}}
workflow:
  - step: each
    loop: {{in: "{{{{ workload.names }}}}", iterator: name, spec: {{policy: {{failure: {{mode: best_effort}}}}}}}}
    tool: {{kind: noop, args: {{said: "{{{{ workload[iter.name].more }}}}"}}}}
    next: {{arcs: [{{step: fails}}]}}
  - step: fails
    tool: {{kind: noop, args: {{said: "{{{{ workload[workload.names[0]].more }}}}"}}}}
"""

IMPORT: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: import, path: team/import}
executor: {spec: {policy: {concurrency: {key: "import-{{ workload.customer }}", limit: 1}}}}
workload: {customer: acme}
workflow:
  - step: import
    tool: {name: go, kind: wait, signal: go, timeout_s: 36000}
"""

SCHEDULE: Final = """\
apiVersion: noetl.io/v2
kind: Schedule
metadata: {{name: {name}, path: team/{name}}}
spec: {{playbook: team/nightly, cron: [{cron}], timezone: Europe/Berlin, overlap: queue_one}}
"""


PUSHES: Final = """\
apiVersion: noetl.io/v2
kind: Trigger
metadata: {name: pushes, path: team/pushes}
spec:
  on: {webhook: {verify: github, credential: github_webhook}}
  when: "{{ event.json.ref == 'refs/heads/main' }}"
  playbook: team/nightly
  workload: {day: "{{ event.json.day }}", regions: [north]}
  key: "{{ event.json.after }}"
"""
FAILURES: Final = """\
apiVersion: noetl.io/v2
kind: Trigger
metadata: {name: failures, path: team/failures}
spec:
  on: {execution: {path: team/reports/*, labels: {env: prod}, status: [failed, cancelled]}}
  playbook: team/nightly
"""
SECRET: Final = "It's a Secret to Everybody"
ODD: Final = f"{EVIL} \u202eright to left\u202c \x00 {'long' * 500}"
LONG_PATH: Final = f"team/{'a-trigger-with-a-very-long-path/' * 6}hostile"
HOSTILE_TRIGGER: Final = f"""\
apiVersion: noetl.io/v2
kind: Trigger
metadata: {{name: hostile, path: {LONG_PATH}}}
spec:
  on: {{webhook: {{verify: none}}}}
  when: "{{{{ event.json.said != '<script>window.evil=1</script>' }}}}"
  playbook: team/nightly
  workload: {{text: {EVIL.replace("{{ 7*7 }}", "")!r}}}
  key: "{{{{ event.json.said[:60] }}}}"
"""


READ: Final = "readCredential"


class Shown(NamedTuple):
    """Attributes:
    ids: Executions, by what they show.
    """

    stage: GatewayStage
    ids: dict[str, str]

    async def sign_in(self, visit: Visit, path: str = "/", role: Role = "admin") -> None:
        """As somebody with this role."""
        headers = {}
        if role != "admin":
            made = await self.stage.operations.access.create_token(NewToken(f"a-{role}", role), "token:local")
            headers = {"Authorization": f"Bearer {made.secret}"}
        async with self.stage.client.post("/api/v1/session/codes", headers=headers) as answered:
            code = (await answered.json())["code"]
        await visit.page.goto(f"{self.stage.url}{path}#code={code}")
        await visit.page.get_by_role("button", name="Sign out").wait_for()

    async def open(self, visit: Visit, path: str) -> None:
        """A screen, once it has settled."""
        await visit.page.goto(self.stage.url + path)
        await visit.page.locator("main :is(h1, h2)").first.wait_for(state="attached")
        await expect(visit.page.locator("main")).to_contain_text(re.compile(r"\S"))
        await expect(visit.page.locator(".skeleton")).to_have_count(0)

    @property
    def screens(self) -> dict[str, str]:
        """Addresses, by the names of their screens."""
        nightly, waiting = f"/executions/{self.ids['nightly']}", f"/executions/{self.ids['approval']}"
        return {
            "executions": "/",
            "waiting": waiting,
            "steps": nightly,
            "past": f"{nightly}?at=40",
            "loop": f"/executions/{self.ids['loop']}?step=fetch",
            "called": f"/executions/{self.ids['caller']}",
            "timeline": f"/executions/{self.ids['loop']}/timeline",
            "events": f"{nightly}/events",
            "found-events": f"/executions/{self.ids['loop']}/events?step=fetch&name=task.processed",
            "context": f"{waiting}/ctx",
            "result": f"{nightly}/result",
            "logs": f"{nightly}/logs",
            "compared": f"/executions/{self.ids['small']}/diff/{self.ids['approval']}",
            "playbooks": "/playbooks",
            "playbook": "/playbooks/team%2Fnightly",
            "changes": "/playbooks/team%2Fnightly/changes",
            "statistics": "/playbooks/team%2Fnightly/statistics",
            "editor": "/playbooks/team%2Fnightly/edit",
            "schedules": "/schedules?open=team%2Feach-night",
            "schedule-form": "/playbooks?new=Schedule",
            "triggers": "/triggers?open=team%2Fpushes&event=3",
            "hostile-trigger": f"/triggers?open={quote(LONG_PATH, '')}&event=1",
            "health": "/system",
            "pools": "/system/pools",
            "limits": "/system/limits?open=import-acme&namespace=team",
            "workers": "/system/workers",
            "partitions": "/system/partitions",
            "dead-letters": f"/system/dead-letters?open={self.ids['letter']}",
            "credentials": "/system/credentials?open=warehouse",
            "tokens": "/system/tokens",
            "audit": "/system/audit",
            "storage": "/system/storage",
            "missing": "/executions/a/nonsense",
        }


LETTERS: Final = ("not a report", '{"kind": "report", "of": "another system"}')
LINES: Final = ("\x1b[32m1240 orders\x1b[0m of \x1b[1mnorth\x1b[0m, none late", "the rate of GBP is a day old")


@asynccontextmanager
async def something_to_show(hostile: bool = True) -> AsyncIterator[Shown]:
    """
    Args:
        hostile: Whether strangers have written :data:`EVIL` wherever they can.
    """
    async with GatewayStage(GatewayLimits()).open() as stage:
        made = _Maker(stage, {})
        for text in (EARLIER, NIGHTLY, APPROVAL, (PLAYBOOKS / "approval_by_signal.yaml").read_text()):
            await stage.operations.playbooks.register(text.encode(), "playbook", "token:local")
        for name in ("holds", "waits", "waits too"):
            await made.run(name, IMPORT)
        for _ in range(12):
            await made.run("nightly", NIGHTLY)
        await made.run("long", LOOP.replace("[1, 2, 3]", str(list(range(200)))))
        await made.run("fails", FAILS)
        await made.run("loop", FETCHES)
        await made.run("caller", CALLER)
        await made.run("small", APPROVAL, amount=20)
        if hostile:
            await made.write_evil()
        await made.run("approval", APPROVAL, amount=250, order="1007")
        await made.patch("approval", {"notes": "asked Ada"}, "she knows the customer")
        await made.patch("approval", {"notes": ["asked Ada", "she is away until noon"]}, "")
        made.log("nightly", *LINES)
        await made.dead_letters(*LETTERS, *([EVIL] if hostile else []))
        await made.access()
        await made.schedules(EVIL if hostile else "the warehouse is moved")
        await made.triggers("the reports are rewritten")
        if hostile:
            await made.evil_events()
        yield Shown(stage, made.ids)


class _Maker(NamedTuple):
    """Makes what there is to show."""

    stage: GatewayStage
    ids: dict[str, str]

    async def run(self, name: str, text: str, **workload: Any) -> None:
        """An execution, until it has ended or waits."""
        executions = self.stage.operations.executions
        started = await executions.start(Start(playbook=text, workload=workload), "token:local")
        self.ids[name] = started.execution_id

        async def is_settled() -> bool:
            return (await executions.get(started.execution_id)).status not in ("pending", "running")

        await self.stage.until(is_settled)

    async def patch(self, name: str, ctx: dict[str, Any], reason: str) -> None:
        address, headers = f"/api/v1/executions/{self.ids[name]}/ctx", {"X-Reason": quote(reason)}
        async with self.stage.client.patch(address, json=ctx, headers=headers) as answered:
            assert answered.status == 200, await answered.text()

    def log(self, name: str, text: str, error: str) -> None:
        """Lines of its tasks."""
        lines = [LogLine(1_795_400_000_000 + n * 137, "fetch", f"{n}: {text}", iteration=(n % 4,)) for n in range(40)]
        lines.append(LogLine(1_795_400_006_000, "fetch", error, "stderr"))
        batch = codec.encode(LogBatch("fetch_orders", "run-1", "worker-1", lines))
        subject = subjects.task_logs("default", self.ids[name], "run-1")
        self.stage.broker.task_logs.publish(subject, "1", batch, lambda why: None)

    async def dead_letters(self, *texts: str) -> None:
        """Messages that no server can fold; ``letter`` is the id of the newest."""
        for number, text in enumerate(texts):
            await self.stage.broker.event_log.publish_request("lost", f"message-{number}", text.encode())
        cluster = self.stage.operations.cluster

        async def are_there() -> bool:
            return len((await cluster.dead_letters(10, None)).items) == len(texts)

        await self.stage.until(are_there)
        self.ids["letter"] = (await cluster.dead_letters(1, None)).items[0].id

    async def access(self) -> None:
        """Credentials, tokens, and an audit of both."""
        stage, operations = self.stage, self.stage.operations
        for name, kind, said in (("warehouse", "postgres", "Orders."), ("mailer", "http", "Sends reports.")):
            await operations.credentials.put(name, {"password": "hidden"}, "token:local", kind, said, ["sales"])
        for new in (NewToken("ci", "operator", ("team",)), NewToken("grafana", "viewer"), NewToken("old", "author")):
            made = await operations.access.create_token(new, "token:local")
        await operations.access.revoke_token(made.id, "token:local")
        call = AuditedCall(stage.clock.now_ms(), "worker-default", "worker", "", READ, "warehouse", "", "worker-1", "")
        of = f"{self.ids['nightly']}/command-1"
        await stage.audit.add(replace(call, correlation_id=of), AuditedAnswer(200))
        await stage.audit.add(replace(call, target="mailer", correlation_id=of), AuditedAnswer(403, "not granted"))

    async def schedules(self, reason: str) -> None:
        """One that has run twice, and one that is paused."""
        operations = self.stage.operations
        for name, cron in (("each-night", "30 2 * * mon-fri"), ("each-month", "0 8 L * *")):
            text = SCHEDULE.format(name=name, cron=cron)
            await operations.playbooks.register(text.encode(), "schedule", "token:local")
        for _ in range(2):
            await operations.schedules.run_now("team/each-night", "token:local")
        await operations.schedules.pause("team/each-month", "token:local", reason)

        async def has_run() -> bool:
            return (await operations.schedules.get("team/each-night")).running == []

        await self.stage.until(has_run)

    async def triggers(self, reason: str) -> None:
        """One whose events started, repeated and missed something, and one that is paused."""
        operations = self.stage.operations
        await operations.credentials.put("github_webhook", SECRET, "token:local", "http", "Pushes.")
        for text in (PUSHES, FAILURES):
            await operations.playbooks.register(text.encode(), "trigger", "token:local")
        await operations.triggers.pause("team/failures", "token:local", reason)
        main = {"ref": "refs/heads/main", "after": "6113728f27ae", "day": "2026-11-21"}
        for event in (main, {**main, "forced": True}, {**main, "ref": "refs/heads/dev"}, {"ref": "refs/heads/main"}):
            body = json.dumps({**event, "pusher": {"name": "Ada"}}).encode()
            signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            await self.event("team/pushes", body, {"X-Hub-Signature-256": f"sha256={signature}"})
        await operations.triggers.resend("team/pushes", 3, "token:local")

    async def event(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        """An event for a webhook."""
        headers |= {"Content-Type": "application/json", "User-Agent": "sender", "Authorization": ""}
        async with self.stage.client.post(f"/api/v1/hooks/{path}?wait=60s", data=body, headers=headers) as answered:
            assert answered.status == 200, await answered.text()

    async def evil_events(self) -> None:
        """What strangers may send, and operators write, to a trigger."""
        operations = self.stage.operations
        await operations.playbooks.register(HOSTILE_TRIGGER.encode(), "trigger", "token:local")
        for number, said in enumerate((ODD, "<script>window.evil=1</script>")):
            body = json.dumps({"said": said, ODD: [ODD], "number": number}, ensure_ascii=False).encode()
            await self.event(LONG_PATH, body, {"X-Evil": quote(EVIL), "User-Agent": EVIL})
        await operations.triggers.pause(LONG_PATH, "token:local", f"{EVIL} \u202eright to left")
        await self.event(LONG_PATH, EVIL.encode(), {})

    async def write_evil(self) -> None:
        """What strangers may write, wherever it is shown."""
        stage = self.stage
        await stage.operations.playbooks.register(HOSTILE.encode(), "playbook", "token:local")
        await self.run("hostile", HOSTILE)
        await self.run("fails_hostile", FAILS_HOSTILE)
        await self.patch("hostile", {"said": {EVIL: [EVIL]}}, EVIL)
        self.log("hostile", EVIL, EVIL)
        await stage.operations.credentials.put("evil", "hidden", "token:local", EVIL, EVIL, [EVIL])
        call = AuditedCall(stage.clock.now_ms(), EVIL, "worker", "", READ, "evil", EVIL, EVIL, EVIL)
        await stage.audit.add(call, AuditedAnswer(403, EVIL, EVIL))
        await stage.audit.add(replace(call, operation=EVIL, target=EVIL), AuditedAnswer(403, EVIL))
