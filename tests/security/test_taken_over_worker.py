"""A worker of pool ``a`` is taken over: its program holds all that the worker holds, and a command of its own.

It gets no secret, takes no part and reads nothing of pool ``b``, nor of an execution that was not given to it; and
nobody believes what it says in the name of others (PROTOCOL §7 *Capabilities*, *Who says it*).
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from server_stage import Stage

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.broker import MemoryBlobs
from noetl_stream.adapters.memory.bus import Line
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.adapters.simulated_time import cancel_all_tasks
from noetl_stream.errors import BlobMissing, Unreachable
from noetl_stream.model.events import (
    CancelRequested,
    ChildCall,
    ClientFact,
    CtxPatched,
    ExecutionRequested,
    Fact,
    StepClaimed,
    StepDone,
    StepFailed,
    StepStarted,
    StepSuspended,
    TaskProcessed,
    TaskStarted,
    Wait,
)
from noetl_stream.model.ids import RunId, digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import (
    CatalogQuestion,
    HideQuestion,
    PlaybookQuestion,
    Report,
    Request,
    ResultQuestion,
    SecretQuestion,
    ShownCommand,
    StepCommand,
    WorkerQuestion,
    hidden_as,
)
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload, Reference
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.ports.stores.credentials import MAX_VALUES_GIVEN
from noetl_stream.ports.streams.blobs import Method, checksum_of, read_object
from noetl_stream.ports.streams.command_queue import Delivery
from noetl_stream.protocol import subjects
from noetl_stream.protocol.object_addresses import AddressAnswer, AddressQuestion, addresses_in
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.sealing.data_references import PART_BYTES, DataReference, StoredParts, sealed_for
from noetl_stream.sealing.handover import HandoverKey, seal
from noetl_stream.sealing.keys import KEY_BYTES, KeyRing, new_key, read_key
from noetl_stream.sealing.objects import MARK, GivenKeys, seal_object
from noetl_stream.sealing.signing import Signer
from noetl_stream.server.answers.credential_values import MAX_HIDDEN_A_MINUTE, SecretsResponder
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_stream.storage.refusal_audit import ENTRIES_OF_ONE, SAMPLE_S
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_testkit.keys import CAPABILITIES, SIGNER
from noetl_testkit.memory.access import MemoryAudit
from noetl_testkit.simulation.work import playbook, work

MINE, THEIRS = "execution-mine", "execution-theirs"
SECRET = "the password of pool b"
LARGE = "a private result " * 60
SMALL = {"limits": {"max_inline_bytes": 300}}


def book(name: str, pool: str) -> str:
    """A step whose result the object store holds, then one that waits for its worker."""
    steps = [
        {"step": "first", "tool": work(LARGE), "next": {"arcs": [{"step": "second"}]}},
        {"step": "second", "tool": work("{{ first | length }}")},
    ]
    return playbook(name, steps, executor={"spec": {"pool": pool, "policy": SMALL}})


class Bucket(MemoryBlobs):
    """A bucket whose addresses say what they are for."""

    place = "s3://bucket"
    away = ""

    def __init__(self) -> None:
        super().__init__(Line(ManualClock()))

    async def addresses(self, method: Method, keys: Sequence[str]) -> Sequence[str]:
        if self.away:
            raise Unreachable(self.away)
        return [f"{method} {key}" for key in keys]

    async def verify(self) -> None:
        """Is there."""


@dataclass
class Scene:
    """Both executions are about to run ``second``: the thief was given ``own``, while ``other`` waits in pool ``b``."""

    stage: Stage
    audit: MemoryAudit
    credentials: MemoryCredentials
    ring: KeyRing
    own: StepCommand
    own_delivery: Delivery
    other: StepCommand
    bucket: Bucket

    async def ask(self, subject: str, pool: str, question: WorkerQuestion | AddressQuestion) -> Any:
        """What servers answer."""
        body = await self.stage.broker.bus.ask(f"{subject}.{pool}", codec.encode(question), 1)
        return None if body is None else codec.decode_json(body)

    async def shown(self, text: str, execution_id: str) -> str:
        """``text`` of an execution, as a gateway shows it."""
        return await UsedSecrets(self.credentials, self.ring).hide(execution_id, text)

    async def report(self, command: StepCommand, *facts: Fact, issue: int = 1) -> None:
        """Reports on a command, and gives servers the time to fold it."""
        worker = await self.stage.manual_worker(command.pool)
        await worker.report(command, RunId(command.command_id, issue, 1, "thief"), 0, 0, *facts)
        await self.stage.pass_time(1)

    async def request(self, execution_id: str, fact: ClientFact, signature: str = "") -> Any:
        """Publishes a request; its answer."""
        body = codec.encode(Request(execution_id, fact.request_id, fact, signature))
        await self.stage.broker.event_log.publish_request(execution_id, fact.request_id, body)
        await self.stage.pass_time(1)
        row = await self.stage.store.real.request(execution_id, fact.request_id)
        return None if row is None else codec.decode_json(row.answer)

    async def dead_letters(self) -> list[str]:
        """Why messages were refused."""
        return [letter.row.reason for letter in await self.stage.store.real.dead_letters.page(100, None)]

    async def unharmed(self) -> None:
        """The other execution has noticed nothing, and its own worker completes it."""
        before = await self.stage.journal(THEIRS)
        assert [entry.name for entry in before if entry.source == "worker"] == [
            "step.started",
            "task.started",
            "task.processed",
            "step.done",
        ]
        await complete(self.stage, self.other)
        row = await self.stage.ended(THEIRS)
        assert (row.status, row.ctx) == ("completed", b"{}")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    stage = Stage()
    audit, credentials = MemoryAudit(), MemoryCredentials(stage.clock)
    ring = KeyRing(read_key(new_key(), "a test"))
    await DirectCredentials(credentials, ring).put("pg", SECRET, "ann")
    stage.secrets = SecretsResponder(credentials, audit, stage.clock, ring)
    bucket = Bucket()
    stage.places = PlacedBlobs(stage.broker.blobs, [bucket, None])
    await stage.server()
    (own, delivery), (other, _) = [await at_second(stage, *one) for one in ((MINE, "a"), (THEIRS, "b"))]
    yield Scene(stage, audit, credentials, ring, own, delivery, other, bucket)
    await cancel_all_tasks()
    assert not stage.store.stuck


async def at_second(stage: Stage, execution_id: str, pool: str) -> tuple[StepCommand, Delivery]:
    """The command of the second step; the first has stored its result."""
    await stage.request(execution_id, f"request-{execution_id}", book(execution_id, pool))
    worker = await stage.manual_worker(pool)
    first, delivery = await worker.take()
    key = f"{execution_id}/{first.command_id}/1.1.n/0"
    data = codec.encode(LARGE)
    await SealedBlobs(stage.broker.blobs, GivenKeys(first.object_keys)).put(key, data)
    reference = Reference("nats", key, len(data), checksum_of(data))
    done = TaskProcessed("first_task", 1, Outcome("ok", Payload(reference=reference)), "continue")
    facts = (StepStarted("w"), TaskStarted("first_task"), done, StepDone(first.step_run_id))
    await worker.report(first, worker.run_of(first, delivery), 0, 0, *facts)
    delivery.ack()
    return await worker.take()


async def complete(stage: Stage, command: StepCommand) -> None:
    worker = await stage.manual_worker(command.pool)
    done = TaskProcessed("second_task", 1, Outcome("ok"), "continue")
    run = RunId(command.command_id, command.issue, 1, "rightful")
    await worker.report(command, run, 0, 0, StepStarted("w"), done, StepDone(command.step_run_id))


def reference_of(command: StepCommand) -> Reference:
    reference = command.steps["first"].outcome.result.reference
    assert reference is not None
    return reference


def shown(command: StepCommand, **changes: Any) -> ShownCommand:
    return replace(ShownCommand.from_command(command), **changes)


# --- secrets ----------------------------------------------------------------------------------------------------------


def secret_question(command: ShownCommand) -> SecretQuestion:
    return SecretQuestion(command, "pg", HandoverKey().public_key, "worker-1")


async def test_the_secret_of_its_own_command_is_given_out_and_audited(scene: Scene) -> None:
    answer = await scene.ask(subjects.ASK_SECRET, "a", secret_question(shown(scene.own)))
    assert answer["version"] == 1
    [entry] = await scene.audit.page(10, None, None)
    assert (entry.attempt.principal, entry.attempt.target) == ("worker-a", "pg")
    assert entry.attempt.correlation_id == f"{MINE}/{scene.own.command_id}"


FORGERIES: dict[str, Callable[[Scene], ShownCommand]] = {
    "their execution, own command": lambda scene: shown(scene.own, execution_id=THEIRS),
    "their command, own capability": lambda scene: shown(scene.other, capability=scene.own.capability),
    "their command, a pool of its own choice": lambda scene: shown(
        scene.other, capability=scene.own.capability.replace("a.", "b.", 1)
    ),
    "their command, no capability": lambda scene: shown(scene.other, capability=""),
    "their command, a capability signed with what a worker has": lambda scene: shown(
        scene.other, capability="b." + Signer(own_keys(scene), "command").sign(*parts_of(scene.other))
    ),
    "an issue never ordered": lambda scene: shown(scene.own, issue=2_000_000_000),
}


def own_keys(scene: Scene) -> KeyRing:
    return KeyRing(scene.own.object_keys[MINE][0])


def parts_of(command: StepCommand) -> tuple[str, ...]:
    return command.execution_id, command.step_run_id, command.command_id, "1", command.pool


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES.keys())
@pytest.mark.parametrize("pool", ["a", "b"])
async def test_a_taken_over_worker_gains_nothing_from_other_commands(
    scene: Scene, forged: Callable[[Scene], ShownCommand], pool: str
) -> None:
    command = forged(scene)
    for subject, question in (
        (subjects.ASK_SECRET, secret_question(command)),
        (subjects.ASK_HIDE, HideQuestion(command, "pg")),
        (subjects.ASK_PLAYBOOK, PlaybookQuestion(command)),
        (subjects.ASK_CATALOG, CatalogQuestion(command, "team/b")),
        (subjects.ASK_RESULT, ResultQuestion(command, f"{THEIRS}.{scene.other.step_run_id}")),
        (subjects.ASK_ADDRESSES, AddressQuestion(command, reads=[reference_of(scene.other).key])),
    ):
        assert list(await scene.ask(subject, pool, question)) == ["refused"]
    entries = await scene.audit.page(10, None, None)
    assert [entry.attempt.operation for entry in entries] == ["readSecret", "readCredential"]
    for entry in entries:
        assert (entry.attempt.principal, entry.attempt.target) == (f"worker-{pool}", "pg")
        assert entry.answer is not None and entry.answer.status == 403


async def test_a_flood_of_refused_questions_is_a_few_entries_of_the_audit(scene: Scene) -> None:
    question = secret_question(shown(scene.own, capability=""))
    for _ in range(100):
        assert "refused" in await scene.ask(subjects.ASK_SECRET, "a", question)
    assert len(await scene.audit.page(1_000, None, None)) <= 2 * (ENTRIES_OF_ONE + 1), "simulated time passes a minute"
    await scene.stage.pass_time(SAMPLE_S)
    entries = await scene.audit.page(1_000, None, None)
    assert sum(1 + entry.answer.left_out for entry in entries if entry.answer) == 100


async def test_a_command_of_pool_a_is_invalid_on_the_subject_of_pool_b(scene: Scene) -> None:
    answer = await scene.ask(subjects.ASK_SECRET, "b", secret_question(shown(scene.own)))
    assert "was not given to a worker of pool b" in answer["refused"]


async def test_a_command_that_has_ended_opens_nothing_any_more(scene: Scene) -> None:
    await complete(scene.stage, scene.own)
    await scene.stage.ended(MINE)
    answer = await scene.ask(subjects.ASK_SECRET, "a", secret_question(shown(scene.own)))
    assert "has ended" in answer["refused"]


# --- addresses of objects ---------------------------------------------------------------------------------------------


async def addresses(scene: Scene, **asked: Any) -> Any:
    """The addresses that its own command gets, or why it gets none."""
    command = shown(scene.own)
    answer = await scene.ask(subjects.ASK_ADDRESSES, "a", AddressQuestion(command, **asked))
    if "body" not in answer:
        return answer
    sealed = AddressAnswer(base64.b64decode(answer["body"]))
    assert addresses_in(sealed, replace(command, issue=2), own_keys(scene)) is None
    assert addresses_in(sealed, command, KeyRing(scene.other.object_keys[THEIRS][0])) is None
    return addresses_in(sealed, command, own_keys(scene))


async def test_its_own_command_gets_addresses_of_what_it_reads_and_writes(scene: Scene) -> None:
    read, run = reference_of(scene.own).key, f"{MINE}/{scene.own.command_id}/1.1.nonce"
    assert await addresses(scene, reads=[read], writes=[f"{run}/0", f"{run}/1/7"]) == {
        read: [f"GET {read}", "nats"],
        f"{run}/0": [f"PUT {run}/0"],
        f"{run}/1/7": [f"PUT {run}/1/7"],
    }


async def test_a_missing_key_is_reported(scene: Scene) -> None:
    scene.bucket.away = "there are no credentials for s3://bucket"
    assert await addresses(scene, reads=[reference_of(scene.own).key]) == {"away": scene.bucket.away}


async def test_a_taken_over_worker_writes_only_below_the_runs_of_its_command(scene: Scene) -> None:
    own, others = f"{MINE}/{scene.own.command_id}", f"{THEIRS}/{scene.other.command_id}"
    wrong = [reference_of(scene.own).key, f"{others}/1.1.n/0", f"{own}/2.1.n/0", f"{own}/1.1.n", f"{own}/1.1.n/a"]
    wrong += [f"{own}/1.1.n/../../../{others}/1.1.n/0", f"{own}/1.1.n/0/0/0", f"{MINE}/loop/loop", ""]
    for key in wrong:
        assert "may not ask for the object" in (await addresses(scene, writes=[f"{own}/1.1.n/0", key]))["refused"]
    many = [f"{own}/1.1.n/{number}" for number in range(65)]
    assert "more than 64" in (await addresses(scene, writes=many))["refused"]


async def test_a_taken_over_worker_reads_no_file_of_an_execution_whose_seal_it_lacks(scene: Scene) -> None:
    parts = StoredParts(f"{THEIRS}/c/1.1.n/0/", 2)
    file = DataReference(parts.key, size=PART_BYTES + 1, checksum="sha256:0")
    theirs = sealed_for(file, b"k" * KEY_BYTES, KeyRing(scene.other.object_keys[THEIRS][0]))
    given = sealed_for(file, b"k" * KEY_BYTES, own_keys(scene))
    for shown_file in (file, theirs):
        assert "may not ask" in (await addresses(scene, reads=[f"{parts.prefix}0"], files=[shown_file]))["refused"]
    assert list(await addresses(scene, reads=[f"{parts.prefix}1"], files=[given])) == [f"{parts.prefix}1"]
    for other in (f"{THEIRS}/c/1.1.n/1/0", f"{parts.prefix}0/../../1/0", "playbook/sha256", ""):
        assert "may not ask" in (await addresses(scene, reads=[other], files=[given]))["refused"]


# --- values to hide ---------------------------------------------------------------------------------------------------


async def to_hide(scene: Scene, command: ShownCommand, value: str) -> HideQuestion:
    """A question with the value sealed for ``command``, to the key that servers tell the thief."""
    asked = await scene.ask(subjects.ASK_HIDE, "a", HideQuestion(shown(scene.own), "token"))
    question = HideQuestion(command, "token", base64.b64decode(asked["server_key"]))
    sealed = seal(codec.encode(value), question.server_key, hidden_as(question))
    return replace(question, public_key=sealed.public_key, body=sealed.body)


async def hide(scene: Scene, command: ShownCommand, value: str) -> Any:
    return await scene.ask(subjects.ASK_HIDE, "a", await to_hide(scene, command, value))


async def test_a_taken_over_worker_hides_a_value_in_its_own_execution_alone(scene: Scene) -> None:
    assert await hide(scene, shown(scene.own), "its own secret") == {}
    assert await scene.shown("its own secret", MINE) == "***"
    assert await scene.shown("its own secret", THEIRS) == "its own secret"


async def test_a_taken_over_worker_hides_no_value_in_the_name_of_other_commands(scene: Scene) -> None:
    for forged in FORGERIES.values():
        assert list(await hide(scene, forged(scene), "approved")) == ["refused"]
    assert await scene.shown("approved", THEIRS) == "approved"


async def test_a_taken_over_worker_cannot_claim_a_value_that_another_sealed(scene: Scene) -> None:
    theirs = await to_hide(scene, shown(scene.other), "their secret")
    copied = replace(theirs, command=shown(scene.own))
    assert list(await scene.ask(subjects.ASK_HIDE, "a", copied)) == ["refused"]
    assert await scene.shown("their secret", MINE) == "their secret"


async def test_a_taken_over_worker_hides_no_word_too_short_to_be_a_secret(scene: Scene) -> None:
    assert "fewer than 4 characters" in (await hide(scene, shown(scene.own), "the"))["refused"]
    assert await scene.shown("the end", MINE) == "the end"


async def test_hidden_values_of_a_worker_take_a_bounded_place(scene: Scene) -> None:
    answers = [await hide(scene, shown(scene.own), f"value {number}") for number in range(MAX_HIDDEN_A_MINUTE + 50)]
    assert answers == [{}] * MAX_HIDDEN_A_MINUTE + [None] * 50, "a command that asks so much waits"
    assert len(await scene.credentials.read_former(0, 1_000)) <= MAX_VALUES_GIVEN
    assert len(await scene.audit.page(1_000, None, None)) == MAX_HIDDEN_A_MINUTE


# --- requests ---------------------------------------------------------------------------------------------------------

PATCH = CtxPatched("request-boss", principal="token:boss", patch={"approved": True})


async def test_a_taken_over_worker_patches_no_ctx_as_another_caller(scene: Scene) -> None:
    signed_by_itself = RequestSigner(own_keys(scene)).encode(Request(THEIRS, "request-boss", PATCH))
    copied = codec.decode_reported(SIGNER.encode(Request(MINE, "request-boss", PATCH)))
    for number, signature in enumerate(["", codec.decode_json(signed_by_itself)["signature"], copied.signature]):
        fact = replace(PATCH, request_id=f"request-{number}")
        answer = await scene.request(THEIRS, fact, signature)
        assert (answer["ok"], answer["code"]) == (False, "unsigned")
    await scene.unharmed()


async def test_a_signed_request_cannot_be_changed(scene: Scene) -> None:
    signed = codec.decode_reported(
        SIGNER.encode(Request(THEIRS, "request-boss", replace(PATCH, principal="token:ann")))
    )
    assert isinstance(signed, Request)
    answer = await scene.request(THEIRS, PATCH, signed.signature)
    assert answer["code"] == "unsigned"
    await scene.unharmed()


async def test_a_taken_over_worker_starts_and_cancels_nothing_in_the_name_of_others(scene: Scene) -> None:
    start = ExecutionRequested("request-3", digest_of(book(THEIRS, "b")), "team/b", principal="token:boss")
    assert (await scene.request("execution-3", start))["code"] == "unsigned"
    assert await scene.stage.store.real.execution("execution-3") is None
    assert (await scene.request(THEIRS, CancelRequested("request-4", "token:boss")))["code"] == "unsigned"
    await scene.unharmed()


# --- reports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fact", [StepClaimed(), StepStarted("thief"), StepFailed("s", ErrorInfo("crashed", "!"))])
@pytest.mark.parametrize("capability", ["", "own"])
async def test_a_taken_over_worker_reports_nothing_of_other_commands(scene: Scene, fact: Fact, capability: str) -> None:
    command = replace(scene.other, capability=scene.own.capability if capability else "")
    await scene.report(command, fact)
    assert "shows no capability" in (await scene.dead_letters())[0]
    await scene.unharmed()


async def test_a_claim_of_issue_2000000000_holds_no_command(scene: Scene) -> None:
    await scene.report(scene.own, StepClaimed(), issue=2_000_000_000)
    assert "no capability for issue 2000000000" in (await scene.dead_letters())[0]
    await complete(scene.stage, scene.own)
    assert (await scene.stage.ended(MINE)).status == "completed"


async def test_an_invented_reference_gives_a_taken_over_worker_no_key(scene: Scene) -> None:
    """Its command may refer to results; the next command of its execution would carry the keys to them."""
    stolen = Outcome("ok", Payload(reference=reference_of(scene.other)))
    facts = StepStarted("thief"), TaskProcessed("second_task", 1, stolen, "continue"), StepDone(scene.own.step_run_id)
    await scene.report(scene.own, *facts)
    assert await scene.dead_letters() == ["task.processed refers to a result of another execution"]
    scene.own_delivery.ack()
    again, _ = await (await scene.stage.manual_worker("a")).take()
    assert (again.issue > 1, list(again.object_keys)) == (True, [MINE])


@pytest.mark.parametrize("pin", ["", "own", "theirs"])
async def test_a_taken_over_worker_calls_no_playbook_that_was_not_resolved_for_it(scene: Scene, pin: str) -> None:
    """Without grants to ask, a call would run any playbook in any pool and bring its result back."""
    digest = digest_of(book(THEIRS, "b"))
    pins = {
        "": "",
        "own": CAPABILITIES.pin(MINE, digest_of(book(MINE, "a")), "team/b"),
        "theirs": CAPABILITIES.pin(THEIRS, digest, "team/b"),
    }
    call = ChildCall(digest, "team/b", pin=pins[pin])
    await scene.report(scene.own, StepStarted("thief"), StepSuspended([Wait((), "second_task", child=call)]))
    assert await scene.dead_letters() == ["it calls playbook team/b, which was not resolved for this execution"]
    assert "child.requested" not in [entry.name for entry in await scene.stage.journal(MINE)]


async def test_a_stolen_capability_of_pool_b_is_of_no_use_in_pool_a(scene: Scene) -> None:
    body = codec.encode(report_of(scene.other))
    await scene.stage.broker.event_log.publish_report(THEIRS, "a", "stolen", body)
    await scene.stage.pass_time(1)
    assert await scene.dead_letters() == ["a worker of pool a reports on a command of pool b"]
    await scene.unharmed()


def report_of(command: StepCommand) -> Report:
    return Report(
        execution_id=command.execution_id,
        step_run_id=command.step_run_id,
        command_id=command.command_id,
        issue=command.issue,
        num_delivered=1,
        nonce="thief",
        number=0,
        first=0,
        events=[msgspec.Raw(codec.encode(StepStarted("thief")))],
        capability=command.capability,
    )


# --- objects ----------------------------------------------------------------------------------------------------------


async def test_a_taken_over_worker_reads_no_object_of_another_execution(scene: Scene) -> None:
    stage, key = scene.stage, reference_of(scene.other).key
    stored = await stage.broker.blobs.get(key)
    assert stored.startswith(MARK) and b"private" not in stored
    own = GivenKeys(scene.own.object_keys)
    with pytest.raises(BlobMissing, match="was not given"):
        await SealedBlobs(stage.broker.blobs, own).get(key)
    with pytest.raises(BlobMissing, match="was modified"):
        await SealedBlobs(stage.broker.blobs, GivenKeys({THEIRS: scene.own.object_keys[MINE]})).get(key)


async def test_a_taken_over_worker_reads_no_playbook_on_its_way(scene: Scene) -> None:
    stored = await scene.stage.broker.blobs.get(subjects.playbook_key(digest_of(book(THEIRS, "b"))))
    assert stored.startswith(MARK) and b"execution-theirs" not in stored
    with pytest.raises(BlobMissing):
        await SealedBlobs(scene.stage.broker.blobs, GivenKeys(scene.own.object_keys)).get("playbook/digest")


@pytest.mark.parametrize("seals", [False, True], ids=["plain", "sealed with its own key"])
async def test_an_object_replaced_by_a_taken_over_worker_is_never_believed(scene: Scene, seals: bool) -> None:
    """It may overwrite objects: then they are lost, but nobody believes another value."""
    stage, reference = scene.stage, reference_of(scene.other)
    forged = codec.encode("another result")
    stage.broker.blobs.lose(reference.key)
    keys = GivenKeys({THEIRS: scene.own.object_keys[MINE]})
    await stage.broker.blobs.put(reference.key, seal_object(keys, reference.key, forged) if seals else forged)
    with pytest.raises(BlobMissing):
        await read_object(SealedBlobs(stage.broker.blobs, GivenKeys(scene.other.object_keys)), reference)
    with pytest.raises(BlobMissing):
        await read_object(stage.blobs, reference)
