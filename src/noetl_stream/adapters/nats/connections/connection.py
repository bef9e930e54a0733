"""A connection to NATS: opened with a time-out, restored for ever, its errors translated.

nats-py's defaults are dangerous (DESIGN §6): it gives up after 60 attempts, notices a dead peer after minutes, and its
first connect may never end. Options are set here, and holders of state are notified when the connection is lost or
restored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import FlushTimeoutError, NoRespondersError

from noetl_stream.adapters.nats.api_errors import JETSTREAM_OFF, rule_of
from noetl_stream.adapters.nats.connections.fast_path import FastWire, fast_path_fits
from noetl_stream.adapters.nats.connections.refusals import Refusals
from noetl_stream.adapters.nats.connections.wire import PlainWire
from noetl_stream.adapters.nats.protocol import NO_MESSAGES, ApiError
from noetl_stream.adapters.treatments import Treatment
from noetl_stream.concurrency import end_tasks, result_until
from noetl_stream.errors import LoginRefused, NotReady, Unreachable, UsageError
from noetl_stream.model.secrets.urls import redact_urls, split_address
from noetl_stream.nats_client import PatientClient
from noetl_stream.protocol.nats_permissions import IMPORTED_STREAMS, JETSTREAM, inbox_prefix, jetstream_prefix, pool_of
from noetl_stream.retries import RetryBudget, pauses

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0

CLOSE_S = 5.0
"""The longest wait for the library to close its socket."""

API_TIMEOUT_S = 5.0
_URL_HINT = "nats://host:port"
RECONNECT_WAIT_S = 0.2
PING_INTERVAL_S = 10
ASK_AGAIN_S = 1.0
LEADER_POLL_S = 0.25
MAX_AGAIN = 100
MAX_AGAIN_BYTES = 1 << 20
"""The requests that may be repeated at once after a time without any, and their bytes."""
PENDING_BYTES = 64 << 20
PLAIN_INBOXES = "_INBOX"

Hook = Callable[[], None]


class ApiRefused(Unreachable):
    """JetStream answered a request with an error. ``err_code`` is JetStream's stable number, ``rule`` the treatment."""

    def __init__(self, subject: str, error: ApiError) -> None:
        self.rule = rule_of(error)
        super().__init__(f"NATS refused {subject}: {error.description} (error {error.err_code})", hint=self.rule.hint)
        self.err_code = error.err_code
        self.description = error.description
        self._error = error

    def of(self, what: str) -> ApiRefused:
        """Returns this refusal with a name instead of a subject."""
        return ApiRefused(what, self._error)


def _accounts_of(identity: str) -> str:
    pool = pool_of(identity)
    return f"`noetl-stream nats accounts{f' --pool {pool}' if pool else ''}`"


class _Answer(msgspec.Struct, frozen=True):
    error: ApiError | None = None


_OFF = ApiError(503, 10076, "JetStream does not answer")


class NatsConnection:
    """A connection with its helpers: ``wire`` sends and receives raw messages, :meth:`api` calls JetStream. ``line``
    counts how often it was made or restored; ``jetstream`` is the prefix of requests to JetStream; ``refusals`` are the
    subjects that this user may not use.
    """

    wire: PlainWire

    def __init__(self, url: str, name: str, nkey: str | None, identity: str, certificate: Path | None = None) -> None:
        self._url = url
        self._certificate = certificate
        self._name = name
        self._nkey = nkey
        self.identity = identity
        self.jetstream = jetstream_prefix(identity) if identity else JETSTREAM
        self._connected = asyncio.Event()
        self._down = asyncio.Event()
        self._closing = self._has_answered = False
        self._again = RetryBudget(asyncio.get_running_loop().time, MAX_AGAIN, MAX_AGAIN_BYTES)
        self.line = 1
        self._error: Exception | None = None
        self._refused = asyncio.Event()
        self._lost: list[Hook] = []
        self._restored: list[Hook] = []
        self._ended: list[Hook] = []
        self.client = PatientClient(certificate)
        self.shown_url = redact_urls(url)
        self.refusals = Refusals(self.shown_url, f"the identity {identity!r}" if identity else "this user")

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        name: str,
        nkey: str | None = None,
        identity: str = "",
        certificate: Path | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        fast: bool = True,
    ) -> NatsConnection:
        """Connects within ``connect_timeout_s``; from then on the connection restores itself for ever.

        Args:
            url: ``nats://[user:password@]host:port``, or several with commas between.
            name: Shown by the server's monitoring.
            nkey: The seed of a NATS user (``SU…``); without it the URL contains the user.
            identity: The identity whose rights that user has (:mod:`noetl_stream.protocol.nats_permissions`), which
                decides on the inboxes and the names of JetStream's requests. Of no effect without ``nkey``.
            certificate: A folder with ``tls.crt`` and ``tls.key``, for servers that verify their clients.
            fast: Whether to use the fast path if the client supports it.

        Raises:
            Unreachable: nothing answers there.
            LoginRefused: the server does not know this user, or as another identity.
            UsageError: the url is invalid.
        """
        if any(split_address(one.strip()) is None for one in url.split(",")):
            raise UsageError(f"{redact_urls(url)!r} is not a NATS url", hint=_URL_HINT)
        if any(one.strip().startswith(("ws:", "wss:")) for one in url.split(",")):
            raise UsageError(f"{redact_urls(url)!r} is a WebSocket url, which is not supported", hint=_URL_HINT)
        connection = cls(url, name, nkey, identity if nkey is not None else "", certificate)
        try:
            _ = connection.client.ssl_context if certificate is not None else None
        except (OSError, ssl.SSLError) as error:
            hint = "NOETL_NATS_CERTIFICATE names a folder with tls.crt and tls.key"
            raise UsageError(f"no client certificate for NATS in {certificate}: {error}", hint=hint) from error
        await connection._connect(connect_timeout_s)
        fits = fast and fast_path_fits(connection.client)
        connection.wire = (FastWire if fits else PlainWire)(connection.client)
        if connection.identity:
            await connection._require_own_inboxes()
        return connection

    async def sibling(self, name: str) -> NatsConnection:
        """Opens another connection to the same server, for the calling loop."""
        return await NatsConnection.open(
            self._url, name=name, nkey=self._nkey, identity=self.identity, certificate=self._certificate
        )

    @property
    def is_connected(self) -> bool:
        return self._connected.is_set() and self.client.is_connected

    @property
    def streams(self) -> str:
        """The prefix of requests to JetStream about streams that triggers read, which are in another account."""
        return IMPORTED_STREAMS if self.identity else JETSTREAM

    @property
    def may_purge(self) -> bool:
        """Whether this user may purge streams: servers, and users without identity."""
        return self.jetstream == JETSTREAM

    @property
    def may_miss_its_end(self) -> bool:
        """Whether JetStream may be on another NATS server, which keeps sending to an inbox that was closed here, since
        it sees only the answers of the account.
        """
        found = self.client._server_info  # noqa: SLF001
        return self.jetstream != JETSTREAM and ("cluster" in found or not found.get("jetstream"))

    @property
    def _may_have_jetstream(self) -> bool:
        """Whether JetStream may become available: it has answered before, the server's greeting announces it, or
        another server may have it, as in a cluster, or behind a leaf node, which has users with identities.
        """
        found = self.client._server_info  # noqa: SLF001
        return self._has_answered or bool(self.identity or found.get("jetstream")) or "cluster" in found

    @property
    def server_version(self) -> str:
        """The release of the nats-server."""
        return str(self.client._server_info["version"])  # noqa: SLF001

    @property
    def max_payload(self) -> int:
        """The largest message the server accepts, in bytes."""
        return self.client.max_payload

    def on_lost(self, hook: Hook) -> None:
        """Calls ``hook`` whenever the connection is lost; the last sent messages may or may not have arrived."""
        self._lost.append(hook)

    def on_restored(self, hook: Hook) -> None:
        """Calls ``hook`` whenever the connection and its subscriptions are restored."""
        self._restored.append(hook)

    def on_ended(self, hook: Hook) -> None:
        """Calls ``hook`` if the connection ends for good without :meth:`close`: the role must exit."""
        self._ended.append(hook)

    def forget(self, *hooks: Hook) -> None:
        for registered in (self._lost, self._restored, self._ended):
            registered[:] = [hook for hook in registered if hook not in hooks]

    async def wait_connected(self, timeout_s: float) -> None:
        """Waits until the connection is up.

        Raises:
            Unreachable: the connection was not restored in time.
        """
        try:
            await asyncio.wait_for(self._connected.wait(), timeout_s)
        except TimeoutError:
            raise self.unreachable(f"no connection for {timeout_s:g} s") from None

    async def flush(self, timeout_s: float = API_TIMEOUT_S) -> None:
        """Waits until the server has received everything sent before.

        If the connection is lost meanwhile, this waits for it: its subscriptions are made again.

        Raises:
            Unreachable: no answer in time.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while (left_s := until_s - loop.time()) > 0:
            await self.wait_connected(left_s)
            if await result_until(self._flush(left_s), self._down.wait()):
                return
        raise self.unreachable(f"no answer within {timeout_s:g} s")

    async def _flush(self, timeout_s: float) -> bool:
        await self.wire.push()
        try:
            await self.client.flush(max(1, round(timeout_s)))
        except FlushTimeoutError:
            raise self.unreachable(f"no answer within {timeout_s:g} s") from None
        except (NatsError, OSError) as error:
            raise self.unreachable(error) from error
        return True

    async def api(
        self,
        subject: str,
        request: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = API_TIMEOUT_S,
        prefix: str = "",
    ) -> bytes:
        """Returns JetStream's JSON answer to a request like ``STREAM.INFO.EVENTS``; waits while the connection is lost.
        ``prefix`` is :attr:`streams` for a stream that triggers read.

        Raises:
            ApiRefused: JetStream answered with an error.
            NotReady: the server has no JetStream, by its greeting, and no other can have it.
            Unreachable: no answer in time; or JetStream does not answer yet, or no longer.
        """
        body = msgspec.json.encode(request) if request else b""
        loop = asyncio.get_running_loop()
        until_s, waits = loop.time() + timeout_s, pauses(LEADER_POLL_S, ASK_AGAIN_S)
        while True:
            message = await self._request(f"{prefix or self.jetstream}.{subject}", body, timeout_s)
            error_part = _OFF if message is None else msgspec.json.decode(message.data, type=_Answer).error
            if error_part is None and message is not None:
                self._has_answered = True
                return message.data
            assert error_part is not None
            if error_part.err_code in JETSTREAM_OFF and not self._may_have_jetstream:
                raise self._without_jetstream()
            refused = ApiRefused(subject, error_part)
            if refused.rule.treatment is not Treatment.AGAIN or loop.time() > until_s:
                raise refused
            await asyncio.sleep(next(waits))

    async def direct_get(self, stream: str, wanted: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Returns the header fields of the first message that JetStream's ``DIRECT.GET`` finds; ``None`` if none.

        With ``batch`` in ``wanted``, their ``Nats-Num-Pending`` is the number of further messages.

        Raises:
            NotReady: the stream does not exist, or does not allow this.
            Unreachable: no answer in time.
        """
        message = await self._request(
            f"{self.jetstream}.DIRECT.GET.{stream}", msgspec.json.encode(wanted), API_TIMEOUT_S
        )
        if message is None:
            raise NotReady(f"stream {stream} does not allow direct reads", hint="run `noetl-stream stream ensure`")
        fields = message.headers or {}
        status = fields.get("Status", "")
        if not status:
            return fields
        if status == str(NO_MESSAGES):
            return None
        raise self.unreachable(f"DIRECT.GET.{stream} was refused: {status} {fields.get('Description', '')}".rstrip())

    def unreachable(self, why: object) -> Unreachable:
        """Returns the error for a server that does not answer, with the reason."""
        return Unreachable(f"cannot reach NATS at {self.shown_url}: {why or 'no answer'}")

    async def close(self) -> None:
        """Sends pending messages and closes the connection; no hook is called."""
        if self._closing:
            return
        self._closing = True
        try:
            if self.is_connected:
                await self.flush(1)
        except Unreachable as error:
            log.debug("closing without a flush: %s", error)
        await self.wire.close()
        await self._close_client()
        reconnecting = self.client._reconnection_task  # noqa: SLF001
        if reconnecting is not None and reconnecting is not asyncio.current_task():
            # The library cancels it once, which it may swallow (see end_tasks) and then try for ever.
            await end_tasks([reconnecting])

    async def request(self, subject: str, body: bytes, timeout_s: float) -> Msg | None:
        """Returns the answer to a message; ``None`` if no subscriber listens.

        Raises:
            NotPermitted: this user may not publish there.
            TimeoutError: no answer in time.
            Unreachable: the connection is closed.
        """
        with self.refusals.until_refused("publish", subject) as refused:
            answering = asyncio.ensure_future(self.client.request(subject, body, timeout=timeout_s))
            try:
                await asyncio.wait((answering, refused), return_when=asyncio.FIRST_COMPLETED)
                if refused.done():
                    raise self.refusals.error("publish", subject)
                return answering.result()
            except NoRespondersError:
                return None
            except TimeoutError:
                raise
            except (NatsError, OSError) as error:
                raise self.unreachable(error) from error
            finally:
                await end_tasks([answering])

    async def _request(self, subject: str, body: bytes, timeout_s: float) -> Msg | None:
        """Returns JetStream's answer. Asks again, within a budget, which is harmless: nobody answers while a leader is
        elected, and messages sent on a lost connection never arrive.
        """
        await self.wait_connected(timeout_s)
        asking: set[asyncio.Future[Msg | None]] = set()
        loop = asyncio.get_running_loop()
        until_s, waits = loop.time() + timeout_s, pauses(ASK_AGAIN_S)
        self._again.note_first(len(body))
        try:
            while (left_s := until_s - loop.time()) > 0:
                if not asking or self._again.take(len(body)):
                    asking.add(asyncio.ensure_future(self.request(subject, body, left_s)))
                wait_s = min(next(waits), left_s)
                done, asking = await asyncio.wait(asking, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    with contextlib.suppress(TimeoutError):
                        return one.result()
        finally:
            await end_tasks(asking)
        raise self.unreachable(f"no answer to {subject.removeprefix(self.jetstream + '.')} within {timeout_s:g} s")

    async def _connect(self, timeout_s: float) -> None:
        attempt = asyncio.ensure_future(
            self.client.connect(
                self._url.split(","),
                name=self._name,
                error_cb=self._note_error,
                disconnected_cb=self._note_lost,
                reconnected_cb=self._note_restored,
                closed_cb=self._note_closed,
                connect_timeout=max(1, round(timeout_s)),
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]
                ping_interval=PING_INTERVAL_S,
                pending_size=PENDING_BYTES,
                skip_subject_validation=True,
                nkeys_seed_str=self._nkey,
                inbox_prefix=inbox_prefix(self.identity) if self.identity else PLAIN_INBOXES,
            )
        )
        refusal = asyncio.ensure_future(self._refused.wait())
        try:
            await asyncio.wait({attempt, refusal}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = attempt.done()
            await end_tasks([attempt, refusal])
        if not ended or not self.client.is_connected:
            self._closing = True
            failure = attempt.exception() if ended else None
            if failure is not None:
                raise UsageError(f"{self.shown_url!r} is not a NATS url: {failure}", hint=_URL_HINT) from failure
            await self._close_client()
            found = self.unreachable(self._why())
            if self._refused.is_set():
                hint = f"give it the accounts that {_accounts_of(self.identity)} prints, and reload it twice"
                found = LoginRefused(found.message, hint=hint if self.identity else None)
            raise found from self._error
        self._connected.set()

    async def _close_client(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):  # a socket that TLS has refused may never say that it is closed
                await self.client.close()
        except (RuntimeError, OSError, TimeoutError) as error:  # nats-py flushes even to a closed socket
            log.debug("closing an already closed socket: %s", error)

    async def _require_own_inboxes(self) -> None:
        """Raises :class:`~noetl_stream.errors.LoginRefused` if the seed is another identity's: each identity has its
        own inboxes, and no answers would arrive.
        """
        inbox = f"{inbox_prefix(self.identity)}.own"
        try:
            with self.refusals.until_refused("subscribe", inbox, quiet=True) as refused:
                subscription = await self.client.subscribe(inbox)
                await self.flush()
                if refused.done():
                    raise LoginRefused(
                        f"NATS at {self.shown_url} knows the seed of this process as another identity than "
                        f"{self.identity!r}",
                        hint=f"give the process the seed of {self.identity}, which {_accounts_of(self.identity)} makes",
                    )
                await subscription.unsubscribe()
        except Unreachable:
            await self.close()
            raise
        except (NatsError, OSError) as error:
            await self.close()
            raise self.unreachable(error) from error

    def _why(self) -> str:
        error = self._error
        if self._certificate is None and self.client.verifies_clients:
            return "it verifies its clients: name a certificate by NOETL_NATS_CERTIFICATE"
        if self.client.is_ungreeted:
            return "what accepts the connection does not greet as NATS does"
        if error is None:
            return "no answer"
        if isinstance(error, ConnectionRefusedError):
            return "connection refused"
        return str(error) or type(error).__name__

    def _without_jetstream(self) -> NotReady:
        return NotReady(
            f"the NATS server at {self.shown_url} has no JetStream",
            hint="start it with -js, or with `jetstream {}` in its configuration",
        )

    async def _note_error(self, error: Exception) -> None:
        if self._refused.is_set() or self.refusals.take(error):
            return
        self._error = error
        if "uthorization" in str(error) or "uthentication" in str(error):
            self._refused.set()
        log.debug("NATS at %s: %r", self.shown_url, error)

    async def _note_lost(self) -> None:
        if self._closing or not self._connected.is_set():
            return
        self._connected.clear()
        self._down.set()
        log.warning("lost the connection to NATS at %s", self.shown_url)
        for hook in list(self._lost):
            hook()

    async def _note_restored(self) -> None:
        if self._closing:
            return
        self._connected.set()
        self._down.clear()
        self.refusals.restart()
        self.line += 1
        log.info("reconnected to NATS at %s", self.shown_url)
        for hook in list(self._restored):
            hook()

    async def _note_closed(self) -> None:
        if self._closing:
            return
        self._connected.clear()
        self._down.set()
        log.error("the connection to NATS at %s has ended: %s", self.shown_url, self.client.last_error or self._error)
        for hook in list(self._ended):
            hook()
