"""One execution: its result, events and logs, and operations on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from noetl_stream_client import outcomes
from noetl_stream_client._async.transport import FOLLOW_PATIENCE_S, LATE_S
from noetl_stream_client.calls import text_of
from noetl_stream_client.errors import ClientError, ResultTooLarge, UnexpectedAnswer
from noetl_stream_client.lazy import LazyModule
from noetl_stream_client.requests import Request, document_of

if TYPE_CHECKING:
    from noetl_stream_client import documents
    from noetl_stream_client._async.client import AsyncClient
else:
    documents = LazyModule("noetl_stream_client.documents")

WAIT_S: Final = 30.0
"""The time of one request that waits for the end."""

LAST_EVENT: Final = "playbook.processed"
FROM_THE_START: Final = "0"
LOG_PAGE: Final = 1000
"""The maximum number of lines in one answer of a gateway."""


class AsyncExecutionHandle:
    """An execution by its id. Its properties are requested when needed."""

    def __init__(self, client: AsyncClient, id: str, path: str = "") -> None:
        self.id: Final = id
        self.path: Final = path
        self._client = client

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}{f' of {self.path}' if self.path else ''}>"

    def _repr_html_(self) -> str:
        """Return the current state of the execution as HTML."""
        from noetl_stream_client.display import execution_html

        return execution_html(self._client.gateway, self.id)

    def _ipython_display_(self) -> None:
        """Show the execution in a notebook, with live updates; as text where HTML is not supported."""
        from noetl_stream_client.display import show_live

        show_live(self._client.gateway, self.id, repr(self))

    async def get(self) -> documents.Execution:
        """Get an overview of the execution."""
        return await self._client.get_execution(self.id)

    async def wait(self, timeout: float | None = None) -> documents.Execution:
        """Wait for the end of the execution, with any outcome.

        Args:
            timeout: In seconds; ``None`` without a limit.

        Raises:
            StillRunning: it has not ended within the timeout. It continues.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = WAIT_S if until_s is None else max(min(until_s - time.monotonic(), WAIT_S), 0.0)
            query = {"wait": text_of(timedelta(seconds=max(left_s, 0.001)))}
            asked = Request("GET", ("executions", self.id), query=query, wait_s=left_s)
            try:
                found = await self._client.transport.ask(
                    asked, documents.Execution, within_s=FOLLOW_PATIENCE_S, end_s=until_s
                )
            except outcomes.LOST as error:
                if until_s is None or time.monotonic() < until_s:
                    raise
                raise outcomes.out_of_time(self.id, timeout, error) from error
            if found.status in outcomes.ENDED:
                return found
            if until_s is not None and time.monotonic() >= until_s:
                raise outcomes.still_running(found, timeout, await self._why())

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for its end, and get its full result.

        Args:
            timeout: In seconds; ``None`` without a limit.

        Raises:
            ExecutionFailed: it has failed; ``why`` has the explanation.
            ExecutionCancelled: it was cancelled.
            StillRunning: it has not ended within the timeout. It continues.
            ResultTooLarge: the result is larger than an answer of a gateway.
        """
        found = await self.wait(timeout)
        if found.status != "completed":
            raise outcomes.ended_badly(found, await self._why())
        if outcomes.reference_of(found.result) is None:
            return found.result
        whole = (await self._client.get_result(self.id)).result
        reference = outcomes.reference_of(whole)
        if reference is not None:
            raise ResultTooLarge(found, reference)
        return whole

    async def why(self) -> documents.Why:
        """Explain its state, and what it waits for."""
        return await self._client.explain_execution(self.id)

    async def _why(self) -> documents.Why | None:
        """The explanation for an exception, which is raised even without it."""
        asked = Request("GET", ("executions", self.id, "why"))
        try:
            return await self._client.transport.ask(asked, documents.Why, end_s=time.monotonic() + LATE_S)
        except ClientError:
            return None

    async def events(self, after: int = 0) -> AsyncIterator[documents.Event]:
        """Follow its events, each once and in order: first the history, then new ones, until it has ended.

        Args:
            after: A position; the events begin after it.
        """
        asked = Request("GET", ("executions", self.id, "events", "stream"))

        async def has_more(last: str | None) -> bool:
            of_state = Request("GET", ("executions", self.id))
            found = await self._client.transport.ask(of_state, documents.Execution, within_s=FOLLOW_PATIENCE_S)
            return found.status not in outcomes.ENDED or found.position > int(last or 0)

        async with aclosing(self._client.transport.follow(asked, str(after), has_more)) as frames:
            async for frame in frames:
                if not frame.data:
                    continue
                event = document_of(frame.data, documents.Event, self._client.gateway.url)
                yield event
                if event.name == LAST_EVENT:
                    return

    async def download(self, reference: Mapping[str, Any], write: Callable[[bytes], object]) -> None:
        """Download a file or table that it holds: ``await execution.download(result["file"], file.write)``.

        Args:
            reference: The reference from a result, an argument or ``ctx``.
            write: Gets the bytes in pieces. They are complete once this returns.

        Raises:
            NotFound: the reference is not one of this execution, or the file is lost.
            Unreachable: the connection broke, or a part of the file is lost.
            UnexpectedAnswer: the bytes do not match the checksum.
        """
        digest = sha256()
        query = {name: str(reference[name]) for name in ("key", "size", "checksum", "seal")}
        asked = Request("GET", ("executions", self.id, "file"), query=query)
        async with self._client.transport.download(asked) as pieces:
            async for piece in pieces:
                digest.update(piece)
                write(piece)
        if f"sha256:{digest.hexdigest()}" != reference["checksum"]:
            raise UnexpectedAnswer(f"{self._client.gateway.url} answers with bytes of another checksum")

    async def logs(
        self,
        *,
        follow: bool = False,
        step: str | None = None,
        task: str | None = None,
        iteration: str | None = None,
        grep: str | None = None,
        after: str = FROM_THE_START,
    ) -> AsyncIterator[documents.LogLine]:
        """Read the logs of its tasks.

        Args:
            follow: Whether to continue until it has ended.
            step: Only lines of this step.
            task: Only lines of this task.
            iteration: Only lines of this iteration: ``3``, or ``3.0`` of a nested loop.
            grep: A plain text that the lines contain.
            after: The id of a line; the lines begin after it.
        """
        if not follow:
            state = "more"
            while state == "more":
                page = await self._client.list_logs(
                    self.id, step=step, task=task, iteration=iteration, grep=grep, after=after, limit=LOG_PAGE
                )
                for line in page.items:
                    yield line
                state, after = page.state, page.next
            return
        chosen = {"step": step, "task": task, "iteration": iteration, "grep": grep}
        asked = Request("GET", ("executions", self.id, "logs", "stream"), query=chosen)

        async def has_more(last: str | None) -> bool:
            of_rest = Request("GET", ("executions", self.id, "logs"), query={**chosen, "after": last, "limit": 1})
            page = await self._client.transport.ask(of_rest, documents.LogPage, within_s=FOLLOW_PATIENCE_S)
            return page.state != "ended"

        async with aclosing(self._client.transport.follow(asked, after, has_more)) as frames:
            async for frame in frames:
                if frame.data:
                    yield document_of(frame.data, documents.LogLine, self._client.gateway.url)

    async def patch(
        self,
        changes: Mapping[str, Any],
        *,
        merge: bool = False,
        version: int | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> documents.Accepted:
        """Change its ``ctx``: each key is replaced whole.

        Args:
            merge: Merge deeply, where ``None`` deletes a key (RFC 7396).
            version: The required version of ``ctx``; ``None`` for any.
        """
        return await self._client.patch_ctx(
            self.id,
            changes,
            media="application/merge-patch+json" if merge else "application/json",
            if_match=None if version is None else f'"{version}"',
            reason=reason,
            request_id=request_id,
        )

    async def signal(
        self, name: str, payload: Any = None, *, reason: str | None = None, request_id: str | None = None
    ) -> documents.Accepted:
        """Send a signal to the waits for it, whose result is the payload."""
        return await self._client.send_signal(self.id, name, payload=payload, reason=reason, request_id=request_id)

    async def cancel(self, *, reason: str | None = None, request_id: str | None = None) -> documents.Accepted:
        """Cancel it, and the executions it has called."""
        return await self._client.cancel_execution(self.id, reason=reason, request_id=request_id)

    async def rerun(
        self,
        step: str | None = None,
        *,
        ctx: Mapping[str, Any] | None = None,
        args: Mapping[str, Any] | None = None,
        reason: str | None = None,
        request_id: str | None = None,
    ) -> AsyncExecutionHandle:
        """Run it again after its end, as a new execution from one of its steps.

        Args:
            step: The first step; ``None`` for the failed step run.
            ctx: Keys of ``ctx`` that are set first.
            args: The arguments that replace those of the step.
        """
        if step is None:
            made = await self._client.retry_execution(self.id, ctx=ctx, args=args, reason=reason, request_id=request_id)
        else:
            made = await self._client.rerun_execution(
                self.id, step=step, ctx=ctx, args=args, reason=reason, request_id=request_id
            )
        return self._client.execution(made.execution_id, made.path)
