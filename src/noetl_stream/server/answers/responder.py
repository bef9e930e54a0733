"""Answers over NATS: whether a server is alive, whether a request was folded, and questions of workers (PROTOCOL §4).

It also creates the queue of a pool and deletes objects on request, which only servers may do on NATS, and verifies
deliveries to webhooks, since gateways see no secrets (LANGUAGE §15 *Trigger*). An unknown webhook and a wrong signature
get the same answer after the same work, so that strangers cannot tell them apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from noetl_stream.concurrency import end_tasks, for_each
from noetl_stream.engine.aggregates.triggers import TriggerState
from noetl_stream.errors import NoetlError
from noetl_stream.model.aggregates import TRIGGER, Verification, aggregate_id
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.model.messages import MemoryUse, WebhookAnswer
from noetl_stream.playbook.trigger.matching import describe_delivery
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.aggregates import AggregateStore
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.ports.streams.bus import Bus, Handler, Subscription
from noetl_stream.ports.streams.task_logs import TaskLogs
from noetl_stream.protocol import subjects
from noetl_stream.server.answers.command_questions import CommandQuestions
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.assembly import ServerParts
from noetl_stream.settings.grants import GrantsSource
from noetl_stream.storage.data_parts import delete_object
from noetl_stream.trigger.signatures import Refused, WebhookDelivery, challenge_in, secret_headers, secrets_in, verify

DELETED_AT_ONCE: Final = 8
"""The number of objects that are deleted at the same time: in a bucket, each takes several requests."""


async def delete_kept(blobs: Blobs, task_logs: TaskLogs, keys: Iterable[str]) -> None:
    """Deletes objects by key, and the task logs that :func:`~noetl_stream.protocol.subjects.logs_key` names."""

    async def delete(key: str) -> None:
        execution_id = subjects.named_by_logs_key(key)
        await (delete_object(blobs, key) if execution_id is None else task_logs.delete(execution_id))

    await for_each(keys, delete, DELETED_AT_ONCE)


log = logging.getLogger(__name__)

UNKNOWN_WEBHOOK: Final = Verification(form="hmac", credential="no-such-webhook", header="x-signature")
"""The verification of a delivery to an unknown webhook, which always fails."""


class Webhooks:
    """Verifies deliveries to webhooks. Without ``secrets``, only webhooks that need none are accepted; with ``grants``,
    only those whose trigger may use its credential.
    """

    def __init__(
        self, store: AggregateStore, secrets: SecretsResponder | None, clock: Clock, grants: GrantsSource | None = None
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._clock = clock
        self._grants = grants

    async def answer(self, names: list[str], body: bytes) -> WebhookAnswer:
        asked = codec.decode_webhook_question(body)
        delivery = WebhookDelivery(method=asked.method, headers=asked.headers, body=asked.body, query=asked.query)
        state = await self._trigger(asked.path)
        how = None if state is None else state.terms.webhook
        secrets = await self._secrets_of(how or UNKNOWN_WEBHOOK)
        found = verify(delivery, how or UNKNOWN_WEBHOOK, secrets if how is not None else ("",), self._clock.now_ms())
        if state is None or how is None:
            return WebhookAnswer()
        reason = found.reason if isinstance(found, Refused) else self._refusal(state.path, how)
        if isinstance(found, Refused) or reason:
            log.warning("a delivery to the webhook of trigger %s is refused: %s", state.path, reason)
            return WebhookAnswer()
        identity = derive(state.created_ms, found.identity) if found.identity else ""
        return WebhookAnswer(
            True, describe_delivery(_without_secrets(delivery, how)), identity, challenge_in(delivery, how)
        )

    async def _trigger(self, path: str) -> TriggerState | None:
        id = aggregate_id("starter", path)
        row = (await self._store.aggregates({id})).get(id)
        return codec.decode_as(TriggerState, row.state) if row is not None and row.kind == TRIGGER else None

    def _refusal(self, path: str, how: Verification) -> str:
        grants = self._grants.current() if self._grants is not None else None
        if grants is None or not how.credential or grants.allows(path, "credentials", how.credential):
            return ""
        return f"the operator's grants do not give it the credential `{how.credential}`"

    async def _secrets_of(self, how: Verification) -> tuple[str, ...]:
        if not how.credential or self._secrets is None:
            return ()
        try:
            found = secrets_in(await self._secrets.value(how.credential))
        except NoetlError as error:
            log.error("the secret of a webhook, credential %s, cannot be read: %s", how.credential, error)
            raise
        if not found and how is not UNKNOWN_WEBHOOK:
            log.error("credential %s of a webhook is not stored, or holds no secret", how.credential)
        return found


def _without_secrets(delivery: WebhookDelivery, how: Verification) -> WebhookDelivery:
    left_out = secret_headers(how)
    headers = {name: text for name, text in delivery.headers.items() if name not in left_out}
    return WebhookDelivery(method=delivery.method, headers=headers, body=delivery.body, query=delivery.query)


GROUP = "noetl-servers"

ANSWERS_AT_ONCE: Final = 64
"""The most questions that a server answers at once. Further ones wait."""

Answer = Callable[[list[str], bytes], Awaitable[Any]]
"""An answering function. Its arguments are the names in the subject after ``noetl.ask.<question>``, and the body."""


def answer_handler(bus: Bus, answer: Answer) -> Handler:
    """Makes a handler that replies with the JSON of ``answer``, or with ``null`` if a store is unreachable: the client
    then asks again, and another server may answer.
    """

    async def handle(subject: str, body: bytes, reply: str) -> None:
        if not reply:
            return
        try:
            found = await answer(subject.split(".")[3:], body)
        except NoetlError as error:
            log.warning("cannot answer %s: %s", subject, error)
            found = None
        bus.send(reply, codec.encode(found))

    return handle


class AnswersUnderWay:
    """The questions that a server is answering. One that waits for a store delays no other."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(ANSWERS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def in_background(self, handler: Handler) -> Handler:
        """Wraps ``handler`` so that each message is handled in a task of its own; waits only while too many run."""

        async def begin(subject: str, body: bytes, reply: str) -> None:
            await self._free.acquire()
            task = asyncio.create_task(self._handle(handler, subject, body, reply))
            self._tasks.add(task)
            task.add_done_callback(self._remove_task)

        return begin

    async def close(self) -> None:
        """Cancels the running handlers."""
        await end_tasks(list(self._tasks))

    async def _handle(self, handler: Handler, subject: str, body: bytes, reply: str) -> None:
        try:
            await handler(subject, body, reply)
        except Exception:
            log.exception("answering %s failed", subject)

    def _remove_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free.release()


class RequestResponder:
    """Answers clients, in one queue group with all servers, and workers (:class:`.CommandQuestions`)."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._ports = parts.ports
        self._owner = parts.owner
        self._questions = CommandQuestions(parts)
        self._webhooks = Webhooks(parts.ports.store, parts.ports.secrets, parts.ports.clock, parts.ports.grants)
        self._subscriptions: list[Subscription] = []
        self._begun = AnswersUnderWay()

    async def open(self) -> None:
        """Subscribes to the subjects of requests and questions."""
        bus, begun = self._ports.bus, self._begun.in_background
        answers: dict[str, Answer] = {
            subjects.PING: self._ping,
            f"{subjects.ASK_REQUEST}.*.*": self._request,
            f"{subjects.ASK_QUEUE}.*": self._queue,
            subjects.ASK_OLDEST: self._oldest_commands,
            subjects.PURGE: self._purge,
            subjects.ASK_WEBHOOK: self._webhooks.answer,
        }
        listening = [
            bus.listen(subjects.ASK_MEMORY, begun(answer_handler(bus, self._memory))),
            *(bus.listen(subject, begun(answer_handler(bus, answer)), GROUP) for subject, answer in answers.items()),
            *(bus.listen(subject, begun(handler)) for subject, handler in self._questions.handlers().items()),
        ]
        self._subscriptions += await asyncio.gather(*listening)

    async def close(self) -> None:
        """Unsubscribes, and cancels the running handlers, until :meth:`open`."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()
        await self._begun.close()

    async def _ping(self, names: list[str], body: bytes) -> dict[str, Any]:
        return {"server": self._owner}

    async def _memory(self, names: list[str], body: bytes) -> MemoryUse:
        return self._parts.memory_use()

    async def _queue(self, names: list[str], body: bytes) -> dict[str, Any]:
        await self._ports.queue.add_pool(names[0])
        return {"pool": names[0]}

    async def _oldest_commands(self, names: list[str], body: bytes) -> dict[str, int]:
        pools = codec.decode_keys(body)[: subjects.MOST_POOLS_ASKED]
        return await self._ports.queue.oldest_queued_ms(pools)

    async def _purge(self, names: list[str], body: bytes) -> dict[str, Any]:
        keys = codec.decode_keys(body)
        await delete_kept(self._ports.blobs, self._ports.task_logs, keys)
        return {"deleted": len(keys)}

    async def _request(self, names: list[str], body: bytes) -> dict[str, Any]:
        execution_id, request_id = names
        row = await self._ports.store.request(execution_id, request_id)
        if row is None:
            return {"known": False}
        return {"known": True, "answer": codec.decode_json(row.answer), "position": row.position}
