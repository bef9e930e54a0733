"""Nothing that can be written stops a server, and no other execution notices (PROTOCOL §5 *Poison*, §7)."""

from __future__ import annotations

import json
from random import Random

import pytest
from server_stage import ONE_STEP, Stage

from effort import HOSTILE
from hostile_messages import EXTREMES, Attack, hostile, requests_to
from noetl_stream.model.ids import digest_of
from noetl_stream.protocol import subjects
from noetl_testkit.simulation.work import JOBS

MESSAGES = 300
VICTIMS = ("nested", "waiting", "signalled", "approved", "calling")


@pytest.mark.parametrize("seed", range(HOSTILE))
async def test_hostile_messages_stop_no_server_and_no_other_execution(stage: Stage, seed: int) -> None:
    dice = Random(seed)
    server, _, serving = stage.start_server()
    stage.start_worker()
    jobs = [job for job in JOBS if job.name in VICTIMS]
    attack = Attack(dice, stage.broker.event_log, lambda one: requests_to(one, digest_of(ONE_STEP)))
    for number in range(10):
        await stage.request(f"victim-{number}", f"begin-{number}", dice.choice(jobs).source)
        await stage.pass_time(dice.uniform(0, 2))
        await attack.send(MESSAGES // 10, [f"victim-{one}" for one in range(max(0, number - 3), number + 1)])
        await stage.request(f"other-{number}", f"request-of-{number}", ONE_STEP)
        assert (await stage.ended(f"other-{number}")).status == "completed"
    assert not serving.done() and len(server.ownership) == 32


ASKED = (
    subjects.INBOX, subjects.PING, subjects.PURGE, f"{subjects.ASK_QUEUE}.default", f"{subjects.ASK_REQUEST}.a.b",
    *(f"{one}.default" for one in (
        subjects.ASK_PLAYBOOK, subjects.ASK_RESULT, subjects.ASK_CATALOG, subjects.ASK_SECRET, subjects.ASK_HIDE,
    )),
)  # fmt: skip


@pytest.mark.parametrize("subject", ASKED)
async def test_hostile_questions_are_answered_or_ignored(
    stage: Stage, caplog: pytest.LogCaptureFixture, subject: str
) -> None:
    server, _, serving = stage.start_server()
    await stage.until(lambda: len(server.ownership) == 32)
    dice = Random(subject)
    asked = {"execution_id": "one", "command_id": "one", "key": "one", "keys": ["one"], "capability": "x", "path": "a"}
    for _ in range(200):
        body = json.dumps(dice.choice([hostile(dice, asked), hostile(dice, ["one", 2]), dice.choice(EXTREMES)]))
        stage.broker.bus.deliver(subject, body.encode() + dice.randbytes(dice.choice([0, 0, 1])), "_INBOX.1")
    await stage.pass_time(5)
    assert not serving.done()
    assert "Traceback" not in caplog.text
