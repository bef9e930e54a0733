"""Answers to the questions of workers, each on behalf of a command that it shows (PROTOCOL §7 *Capabilities*)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from noetl_stream.engine.effects import build_command
from noetl_stream.engine.state import Assignment, Execution
from noetl_stream.errors import BlobMissing, NoetlError, PayloadRefused, Unreachable, UsageError
from noetl_stream.model.ids import is_valid_id, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import (
    CatalogQuestion,
    HideAnswer,
    HideQuestion,
    PlaybookQuestion,
    ResultQuestion,
    SecretAnswer,
    SecretQuestion,
    ShownCommand,
    WorkerQuestion,
    references_of,
)
from noetl_stream.model.outcome import Reference
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.catalog import ADDRESS_FORM, PLAYBOOK, Address, NotRegistered, find_entry, read_address
from noetl_stream.ports.streams.blobs import checksum_of
from noetl_stream.ports.streams.bus import Handler
from noetl_stream.protocol import subjects
from noetl_stream.protocol.object_addresses import MOST_ASKED, AddressAnswer, AddressQuestion, sealed_answer
from noetl_stream.sealing.handover import CannotOpen
from noetl_stream.server.answers.capabilities import owners_read
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.execution_starter import refusal
from noetl_stream.settings.grants import Grants
from noetl_stream.storage.loop_results import gather_iterations
from noetl_stream.storage.object_places import PlacedBlobs

log = logging.getLogger(__name__)

Asked = TypeVar("Asked", bound=WorkerQuestion | AddressQuestion)


class LiveCommand(NamedTuple):
    """An unfinished command and the pool it was given to."""

    state: Execution
    plan: Plan
    assignment: Assignment
    pool: str


class NotAllowed(NoetlError):
    """The command does not entitle its worker to the question."""


class CommandQuestions:
    """Answers questions of workers. Every server hears each question; the owner of the execution answers."""

    def __init__(self, parts: ServerParts) -> None:
        self._ports = parts.ports
        self._plans = parts.plans
        self._ownership = parts.ownership
        self._executions = parts.executions
        self._reader = parts.reader
        self._stored: dict[int, tuple[int, int]] = {}

    def handlers(self) -> Mapping[str, Handler]:
        """Returns the handlers by subject; its last token is the pool of the worker that asks."""
        found = {
            f"{subjects.ASK_PLAYBOOK}.*": self._question_handler(codec.decode_playbook_question, self._playbook),
            f"{subjects.ASK_RESULT}.*": self._question_handler(codec.decode_result_question, self._result),
            f"{subjects.ASK_CATALOG}.*": self._question_handler(codec.decode_catalog_question, self._catalog_entry),
            f"{subjects.ASK_SECRET}.*": self._question_handler(
                codec.decode_secret_question, self._secret, self._refuse_secret
            ),
            f"{subjects.ASK_HIDE}.*": self._question_handler(
                codec.decode_hide_question, self._hide, self._refuse_secret
            ),
        }
        if self._ports.places is not None:  # workers retry until all servers know the places
            decode = partial(codec.decode_as, AddressQuestion)
            signing = partial(self._addresses, self._ports.places)
            found[f"{subjects.ASK_ADDRESSES}.*"] = self._question_handler(decode, signing)
        return found

    def _question_handler(
        self,
        decode: Callable[[bytes], Asked],
        answer: Callable[[Asked, LiveCommand], Awaitable[Any]],
        record: Callable[[Asked, str, str], Awaitable[None]] | None = None,
    ) -> Handler:
        """Replies with the JSON of ``answer``, with ``{"refused": reason}``, or with ``null`` (the worker asks again).

        Args:
            record: Called with a refused question, the pool and the reason.
        """

        async def handle(subject: str, body: bytes, reply: str) -> None:
            if not reply:
                return
            found: Any = None
            question: Asked | None = None
            pool = subject.rpartition(".")[2]
            try:
                question = decode(body)
                if not self._owns(question.command.execution_id):
                    return
                live = await self._live_command(question.command, pool)
                if live is not None:
                    found = await answer(question, live)
            except (NotAllowed, PayloadRefused, CannotOpen) as error:
                log.warning("%s is refused: %s", subject, error)
                if record is not None and question is not None:
                    await record(question, pool, error.message)
                found = {"refused": error.message}
            except NoetlError as error:
                log.warning("cannot answer %s: %s", subject, error)
            self._ports.bus.send(reply, codec.encode(found))

        return handle

    def _owns(self, execution_id: str) -> bool:
        return is_valid_id(execution_id) and self._ownership.get(partition_of(execution_id)) is not None

    async def _live_command(self, shown: ShownCommand, pool: str) -> LiveCommand | None:
        """Returns the live command; ``None`` while its execution is being loaded, or may be behind EVENTS.

        Raises:
            NotAllowed: the command was not given to this pool, or has ended.
            Unreachable: a store does not answer.
        """
        if self._ports.capabilities.pool_of(shown) != pool:
            raise NotAllowed(f"command {shown.command_id} was not given to a worker of pool {pool}")
        execution_id = shown.execution_id
        cached = await self._executions.look_at(execution_id)
        if cached is None or cached.state is None:
            row = await self._ports.store.execution(execution_id)
            if row is not None and row.finished_ms is None:
                return None
            reason = f"execution {execution_id} {'has ended' if row is not None else 'is unknown'}"
        else:
            assignment = cached.state.assignments.get(shown.command_id)
            if assignment is None or not isinstance(cached.plan, Plan):
                reason = f"command {shown.command_id} has ended"
            elif assignment.run is not None and assignment.run.issue > shown.issue:
                reason = f"another worker has command {shown.command_id}"
            else:
                return LiveCommand(cached.state, cached.plan, assignment, pool)
        if not await self._is_up_to_date(partition_of(execution_id)):
            return None
        raise NotAllowed(reason)

    async def _is_up_to_date(self, partition: int) -> bool:
        """Returns whether everything that the partition stored before the first question of its lease is folded: a
        Postgres that was restored to an older state does not know yet which commands are live.
        """
        lease = self._ownership.get(partition)
        if lease is None or not self._reader.reads(partition):  # missing data of Postgres is being restored
            return False
        epoch, stored = self._stored.get(partition, (0, 0))
        if epoch != lease.epoch:
            stored = await self._ports.log.last_of(partition)
            self._stored[partition] = (lease.epoch, stored)
        if lease.last_seq >= stored:
            return True
        unfolded = await self._ports.log.beyond({partition: lease.last_seq})
        return not unfolded.get(partition)

    async def _playbook(self, question: PlaybookQuestion, live: LiveCommand) -> dict[str, Any]:
        if question.schema:
            return await self._schema(question.schema, live)
        known = await self._plans.load(live.state.digest)
        if known.row is None:
            return {"known": False}
        return {"known": True, "source": known.row.source, "path": known.row.path}

    async def _schema(self, digest: str, live: LiveCommand) -> dict[str, Any]:
        if digest not in live.state.schemas.values():
            raise NotAllowed(f"execution {live.state.execution_id} names no schema {digest}")
        row = await self._ports.store.playbook(digest)
        return {"known": False} if row is None else {"known": True, "source": row.source, "path": row.path}

    async def _result(self, question: ResultQuestion, live: LiveCommand) -> Reference | dict[str, Any]:
        execution_id, _, step_run_id = question.key.partition(".")
        if execution_id != live.state.execution_id:
            command = build_command(live.plan, live.state, live.assignment)
            if question.key not in (reference.key for reference in references_of(command)):
                raise NotAllowed(f"command {command.command_id} reads no result {question.key}")
        try:
            data = await gather_iterations(self._ports.store, self._ports.blobs, execution_id, step_run_id)
        except BlobMissing as error:
            return {"lost": error.message}
        reference = Reference("nats", f"{execution_id}/{step_run_id}/loop", len(data), checksum_of(data))
        await self._ports.blobs.put(reference.key, data)
        return reference

    async def _addresses(self, places: PlacedBlobs, question: AddressQuestion, live: LiveCommand) -> AddressAnswer:
        asked = len(question.reads) + len(question.writes) + len(question.files)
        if asked > MOST_ASKED:
            raise NotAllowed(f"{asked} addresses are asked for at once, more than {MOST_ASKED}")
        ring = self._ports.capabilities.object_keys.ring(live.state.execution_id)
        owners = owners_read(build_command(live.plan, live.state, live.assignment))
        for refused in question.refused(owners, ring):
            raise NotAllowed(f"command {question.command.command_id} may not ask for the object {refused[:200]}")
        try:
            found = await places.addresses_to_read(question.reads)
            written = await places.addresses_to_write(question.writes)
        except Unreachable as error:
            return AddressAnswer(away=error.message)
        return sealed_answer(question, {**found, **written}, ring)

    async def _catalog_entry(self, question: CatalogQuestion, live: LiveCommand) -> dict[str, Any]:
        """Resolves a playbook for ``kind: playbook`` (LANGUAGE §12).

        The answer is ``{"known": true, "digest", "path", "version", "pin"}``, the version as written by people, or
        ``{"known": false, "reason"}``.
        """
        try:
            address = _address(question)
            # Before the lookup, so as not to reveal playbooks that may not be called.
            reason = refusal(self._grants(), live.plan.path, "calls", address.path)
            if reason:
                return {"known": False, "reason": reason}
            entry = await find_entry(self._ports.catalog, address, PLAYBOOK)
        except NotRegistered as error:
            is_hidden = error.near and refusal(self._grants(), live.plan.path, "calls", error.near)
            return {"known": False, "reason": error.message if is_hidden else str(error)}
        except UsageError as error:
            return {"known": False, "reason": str(error)}
        pin = self._ports.capabilities.pin(live.state.execution_id, entry.digest, entry.path)
        return {"known": True, "digest": entry.digest, "path": entry.path, "version": entry.known_as, "pin": pin}

    async def _secret(self, question: SecretQuestion, live: LiveCommand) -> SecretAnswer:
        if self._ports.secrets is None:
            raise NotAllowed("this server hands out no credentials")
        grants, path = self._grants(), live.plan.path
        reason = refusal(grants, path, "credentials", question.name)
        if reason:
            raise NotAllowed(reason)
        answer = await self._ports.secrets.answer(question, live.pool)
        if answer.near and refusal(grants, path, "credentials", answer.near):
            return msgspec.structs.replace(answer, near="")
        return answer

    async def _hide(self, question: HideQuestion, live: LiveCommand) -> HideAnswer | None:
        if self._ports.secrets is None:
            return HideAnswer()
        return await self._ports.secrets.hide(question, live.pool)

    async def _refuse_secret(self, question: SecretQuestion | HideQuestion, pool: str, reason: str) -> None:
        if self._ports.secrets is not None:
            await self._ports.secrets.refuse(question, pool, reason)

    def _grants(self) -> Grants | None:
        return self._ports.grants.current() if self._ports.grants is not None else None


def _address(question: CatalogQuestion) -> Address:
    path, version = question.path, question.version
    address = read_address(path if version is None else f"{path}@{version}")
    if address is not None and (address.version is None) == (version is None):
        return address
    raise UsageError(f"path {path!r} and version {version!r} are not a playbook address", hint=f"use {ADDRESS_FORM}")
