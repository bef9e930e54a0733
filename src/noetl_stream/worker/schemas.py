"""Results compared with the schemas of their tasks (LANGUAGE §10)."""

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
from noetl_stream.worker.asker import Asker
from noetl_stream.worker.child_playbooks import read_answer
from noetl_stream.worker.worker_limits import SCHEMAS_KEPT


class SchemaUnusable(NoetlError):
    """The schema does not compile on this worker: the versions differ."""


class Schemas:
    """Compiled schemas by digest, the last used cached; those of the catalog are asked for like playbooks."""

    def __init__(self) -> None:
        self._validators: LruCache[str, Validator] = LruCache(SCHEMAS_KEPT)
        self._loads: SharedLoads[str, Validator] = SharedLoads()

    async def mismatch(self, value: Any, schema: ResultSchema, command: StepCommand, asker: Asker) -> Mismatch | None:
        """Where ``value`` does not match first; ``None`` if it does. Waits until a server answers.

        Raises:
            PayloadRefused: it is not JSON.
            PlanUnknown: a server answered, but not with this schema. Worth retrying later.
            SchemaUnusable: the schema cannot be used here.
        """
        validator = await self._validator(schema, command, asker)
        if pieces.is_long(value):
            return await asyncio.to_thread(_compared, validator, value)
        return _compared(validator, value)

    async def _validator(self, schema: ResultSchema, command: StepCommand, asker: Asker) -> Validator:
        digest = command.schemas[schema.address] if schema.address else schema.digest
        validator = self._validators.get(digest)
        if validator is None:
            if schema.address:
                validator = await self._loads.get(digest, lambda: _asked(digest, asker))
            else:
                validator = Validator(schema.content)
            self._validators.put(digest, validator)
        return validator


def _compared(validator: Validator, value: Any) -> Mismatch | None:
    # What is stored is compared, not what the tool returned.
    return validator.mismatch(pieces.decode(pieces.encode(value)))


async def _asked(digest: str, asker: Asker) -> Validator:
    answer = await asker.ask(subjects.ASK_PLAYBOOK, PlaybookQuestion(asker.command, digest))
    source, path = read_answer(answer, "schema", digest)
    checked = await asyncio.to_thread(check_document, source, {}, file=path)
    if checked.schema is None or digest_of(source) != digest:
        raise SchemaUnusable(f"the schema {path} cannot be used on this worker")
    return Validator(checked.schema.content)
