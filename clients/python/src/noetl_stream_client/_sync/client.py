"""The client of a gateway."""
# Made by scripts/client_code.py: do not edit.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from noetl_stream_client._sync.executions import ExecutionHandle
from noetl_stream_client._sync.transport import Transport
from noetl_stream_client._sync.verbs import StartOptions, Verbs
from noetl_stream_client.gateways import gateway_of
from noetl_stream_client.lazy import LazyModule
from noetl_stream_client.requests import Request, document_of

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from noetl_stream_client import documents
    from noetl_stream_client.local import LocalStack
else:
    documents = LazyModule("noetl_stream_client.documents")


class Client(Verbs):
    """A client of a gateway. Close it, or use it in a ``with`` statement. It may be shared, and created before its
    first use.

    The gateway is the first that is named by ``url`` or ``context``, NOETL_URL, NOETL_CONTEXT, the current context of
    the command line, or a stack that runs here (`noetl-stream dev`). The token is ``token``, else NOETL_TOKEN, else
    that of the context; a stack of this home has its own.

    Args:
        verify: The trusted certificates; ``False`` trusts any.
        proxy: The URL of a proxy. None is taken from the environment.
        stack: A stack that ends when the client is closed: see :meth:`local`.

    Raises:
        ConfigurationError: no gateway is named, or what names it cannot be read.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        context: str | None = None,
        verify: ssl.SSLContext | bool = True,
        proxy: str | None = None,
        stack: LocalStack | None = None,
    ) -> None:
        self.gateway: Final = gateway_of(url, token, context)._replace(verify=verify, proxy=proxy)
        self.transport = Transport(self.gateway)
        self._stack = stack

    @classmethod
    def local(cls, home: str | Path | None = None) -> Self:
        """The embedded stack of this machine: the running one, or a new one that runs until the client is closed.

        It needs the package ``noetl-stream`` in this environment, and blocks while the stack starts.

        Args:
            home: Its folder; else NOETL_HOME, else ``~/.noetl``.

        Raises:
            LocalStackError: it is not installed, or does not start.
        """
        from noetl_stream_client.local import LocalStack

        stack = LocalStack(home)
        return cls(stack.gateway.url, stack.gateway.token, stack=stack)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.gateway.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and the stack that :meth:`local` has started."""
        self.transport.close()
        if self._stack is not None:
            self._stack.close()

    def execution(self, id: str, path: str = "") -> ExecutionHandle:
        """The execution with this id. No request is made."""
        return ExecutionHandle(self, id, path)

    def start(
        self,
        path: str | None = None,
        workload: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        **options: Unpack[StartOptions],
    ) -> ExecutionHandle:
        """Start an execution of the playbook at a path, or of a text as ``playbook=…``.

        Args:
            request_id: A repeated call with it starts nothing.

        Raises:
            NotFound: there is no such playbook.
            PlaybookRefused: it has errors.
        """
        made = self.start_execution(path=path, workload=workload, request_id=request_id, **options)
        return self.execution(made.execution_id, made.path)

    def run(
        self,
        path: str | None = None,
        workload: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """Start an execution, wait for its end, and get its result: see :meth:`start`, and ``result`` of an execution.

        Raises:
            ExecutionFailed: it has failed; ``why`` has the explanation.
            ExecutionCancelled: it was cancelled.
            StillRunning: it has not ended within ``timeout`` seconds. It continues.
        """
        started = self.start(path, workload, request_id=request_id, **options)
        return started.result(timeout)

    def events(self, after: str | None = None, names: Sequence[str] = ()) -> Iterator[documents.FeedEvent]:
        """Follow the events of all executions, from now on, without end. A broken connection is resumed.

        Args:
            after: The ``feed_id`` of an event; the stream begins after it.
            names: Only events of these names.
        """
        from msgspec.structs import replace

        asked = Request("GET", ("events", "stream"), query={"name": names})

        def has_more(last: str | None) -> bool:
            return True

        with closing(self.transport.follow(asked, after, has_more)) as frames:
            for frame in frames:
                if frame.data:
                    event = document_of(frame.data, documents.FeedEvent, self.gateway.url)
                    yield replace(event, feed_id=frame.id)
