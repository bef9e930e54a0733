"""Compares results with the schemas of their tasks (LANGUAGE §10)."""

from __future__ import annotations

import asyncio
from typing import Any

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import pieces
from noetl_stream.model.messages import PlaybookQuestion, StepCommand
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.results.result_schema import ResultSchema
from noetl_stream.playbook.results.validator import Mismatch, Validator
from noetl_stream.protocol import subjects
from noetl_stream.worker.child_playbooks import read_answer
from noetl_stream.worker.waiting import Asker
from noetl_stream.worker.worker_limits import SCHEMAS_KEPT


class SchemaUnusable(NoetlError):
    """The schema does not compile on this worker: the versions differ."""


class Schemas:
    """Caches compiled schemas by digest; asks servers for those of the catalog, like playbooks."""

    def __init__(self) -> None:
        self._validators: LruCache[str, Validator] = LruCache(SCHEMAS_KEPT)
        self._loads: SharedLoads[str, Validator] = SharedLoads()

    async def mismatch(self, value: Any, schema: ResultSchema, command: StepCommand, asker: Asker) -> Mismatch | None:
        """Returns the first place where ``value`` does not match its schema, if any. Waits until a server answers.

        Raises:
            PayloadRefused: the value is not JSON.
            PlanUnknown: a server answered, but not with this schema. Worth retrying later.
            SchemaUnusable: the schema cannot be used here.
        """
        validator = await self._validator(schema, command, asker)
        if pieces.is_long(value):
            return await asyncio.to_thread(_compare, validator, value)
        return _compare(validator, value)

    async def _validator(self, schema: ResultSchema, command: StepCommand, asker: Asker) -> Validator:
        digest = command.schemas[schema.address] if schema.address else schema.digest
        validator = self._validators.get(digest)
        if validator is None:
            if schema.address:
                validator = await self._loads.get(digest, lambda: _ask_validator(digest, asker))
            else:
                validator = Validator(schema.content)
            self._validators.put(digest, validator)
        return validator


def _compare(validator: Validator, value: Any) -> Mismatch | None:
    # The stored form is compared, not the value that the tool returned.
    return validator.mismatch(pieces.decode(pieces.encode(value)))


async def _ask_validator(digest: str, asker: Asker) -> Validator:
    answer = await asker.ask(subjects.ASK_PLAYBOOK, PlaybookQuestion(asker.command, digest))
    source, path = read_answer(answer, "schema", digest)
    checked = await asyncio.to_thread(check_document, source, {}, file=path)
    if checked.schema is None or digest_of(source) != digest:
        raise SchemaUnusable(f"the schema {path} cannot be used on this worker")
    return Validator(checked.schema.content)
