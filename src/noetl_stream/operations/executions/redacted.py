"""The operations on executions without the secrets that these were given (LANGUAGE §11).

Workers redact their reports. A worker that never read a secret cannot, nor can a person who types it. Secrets are
therefore hidden once more where an execution is shown, even after a credential has changed or is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from noetl_stream.model.search_terms import error_terms, input_terms, label_terms, word_terms
from noetl_stream.operations.paging import cursor_of, page_size
from noetl_stream.ports.operations import executions as documents
from noetl_stream.ports.operations.verbs import EXECUTIONS, DocumentPage, Verb, Verbs, verb_of
from noetl_stream.storage.used_secrets import UsedSecrets

log = logging.getLogger(__name__)

Shown = TypeVar("Shown")


REDACTOR: Final = "redactor"
"""The parameter of verbs that hide secrets themselves."""

LOOKED_AT: Final = 5_000
"""The executions that are examined for a page of search results; a page may therefore be short."""


class Redacted(Verbs):
    """A port whose answers contain no secret of the executions they are about."""

    def __init__(self, port: type, verbs: object, secrets: UsedSecrets) -> None:
        super().__init__(port)
        self._verbs = verbs
        self._secrets = secrets

    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        given = verb.arguments(args, options)
        about = [given[name] for name in EXECUTIONS if name in given]
        if REDACTOR in verb.parameters:
            options[REDACTOR] = (await self._secrets.redactors(about)).get(about[0])
        answer = await getattr(self._verbs, verb.name)(*args, **options)
        if REDACTOR in verb.parameters or not verb.secrets:
            return answer
        if not about and isinstance(answer, DocumentPage):
            return replace(answer, items=await self._secrets.hide_each(answer.items))
        about.append(getattr(answer, "execution_id", None))
        for execution_id in filter(None, dict.fromkeys(about)):
            answer = await self._hide(execution_id, answer)
        return answer

    async def _hide(self, execution_id: str, answer: Any) -> Any:
        """``answer`` without the secrets of one execution. A cursor stays unchanged."""
        if isinstance(answer, DocumentPage):
            return replace(answer, items=await self._secrets.hide(execution_id, answer.items))
        return await self._secrets.hide(execution_id, answer)


class RedactedExecutions(Redacted):
    """Executions without their secrets. Filters match only what is shown, so that none reveals hidden values."""

    def __init__(self, executions: object, secrets: UsedSecrets) -> None:
        super().__init__(documents.Executions, executions, secrets)

    async def why(self, execution_id: str, paths: Sequence[str] = ()) -> documents.WhyDocument:
        """Hides the secrets of the called executions too, since its error may contain theirs."""
        answer: documents.WhyDocument = await self._ask(verb_of(documents.Executions.why), execution_id, paths)
        for cause in answer.causes[1:]:
            answer = await self._hide(cause.execution_id, answer)
        return answer

    async def page(self, chosen: documents.ExecutionFilter, limit: int, cursor: str | None) -> documents.ExecutionPage:
        verb = verb_of(documents.Executions.page)
        if not chosen.searches_values:
            page: documents.ExecutionPage = await self._ask(verb, chosen, limit, cursor)
            return page
        size, found, looked_at = page_size(limit), list[documents.ListedExecutionDocument](), 0
        while True:
            page = await self._ask(verb, chosen, size + 1 - len(found), cursor)
            found += (one for one in page.items if _matches(chosen, one))
            cursor, looked_at = page.next, looked_at + len(page.items)
            if len(found) > size:
                return documents.ExecutionPage(found[:size], cursor_of(found[size - 1].execution_id))
            if cursor is None or looked_at >= LOOKED_AT:
                return documents.ExecutionPage(found, cursor)


def _matches(chosen: documents.ExecutionFilter, shown: documents.ListedExecutionDocument) -> bool:
    words = word_terms(chosen.error or "")
    if words and (shown.error is None or not words <= error_terms(msgspec.structs.asdict(shown.error))):
        return False
    terms, all_terms = label_terms(chosen.labels), label_terms(shown.labels)
    if not terms <= all_terms or chosen.key not in (None, shown.key):
        return False
    return input_terms(chosen.inputs) <= input_terms(shown.inputs)
