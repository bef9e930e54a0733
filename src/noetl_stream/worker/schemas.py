"""Results compared with the schemas of their tasks (LANGUAGE §10)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model import codec
from noetl_stream.model.ids import digest_of
from noetl_stream.model.messages import PlaybookQuestion, StepCommand
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.results.schema import ResultSchema
from noetl_stream.playbook.results.validator import Mismatch, Validator
from noetl_stream.ports import subjects
from noetl_stream.worker.asker import Asker
from noetl_stream.worker.limits import SCHEMAS_KEPT
from noetl_stream.worker.playbooks import read_answer

MAX_BYTES_AT_ONCE: Final = 64 * 1024
"""A larger result is validated in a thread, so that other commands go on."""


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
        encoded = codec.encode(value)
        validator = await self._validator(schema, command, asker)
        if len(encoded) <= MAX_BYTES_AT_ONCE:
            return _compared(validator, encoded)
        return await asyncio.to_thread(_compared, validator, encoded)

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


def _compared(validator: Validator, encoded: bytes) -> Mismatch | None:
    # What is stored is compared, not what the tool returned.
    return validator.mismatch(codec.decode_json(encoded))


async def _asked(digest: str, asker: Asker) -> Validator:
    answer = await asker.ask(subjects.ASK_PLAYBOOK, PlaybookQuestion(asker.command, digest))
    source, path = read_answer(answer, "schema", digest)
    checked = await asyncio.to_thread(check_document, source, {}, file=path)
    if checked.schema is None or digest_of(source) != digest:
        raise SchemaUnusable(f"the schema {path} cannot be used on this worker")
    return Validator(checked.schema.content)
