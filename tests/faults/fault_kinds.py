"""The faults of a storm: each breaks one thing of a running stack for a while, and mends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import psutil
from fault_stack import MENDED_WITHIN_S, REPLICAS, FaultStack, Role, persist
from fault_work import JOBS

from hostile_messages import requests_to
from hostile_storm import Storm
from nats_namespaces import DividedCluster
from nats_process import NatsCluster
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.errors import NoetlError
from noetl_stream.hosting.maintenance import reconcile_stream
from noetl_stream.model.ids import PARTITIONS, digest_of
from noetl_stream.model.json import codec
from noetl_stream.protocol.nats_permissions import ADMIN, SERVER, worker_identity
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, RESULTS
from noetl_stream.sealing.keys import key_ring
from noetl_stream.sealing.signing import Signer
from noetl_stream.settings.key_variables import ACCESS_KEY_VARIABLE
from noetl_stream.wiring.stores import connect_to_nats, ensure_all_streams
from slow_line import SlowLine

HOSTILE_AT_ONCE: Final = 40
DOUBLED_AT_ONCE: Final = 60
FAR_S: Final = 0.15
KEPT_FREE_BYTES: Final = 64 * 1024

Act = Callable[["Faults", Random, float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        touches: ``worker`` or ``stream`` if it may repeat effects, else ``""``.
        needs: ``disk``: small file systems; ``namespaces``: of the network, for the cluster; else ``""``.
    """

    name: str
    act: Act
    touches: str = ""
    needs: str = ""


class Faults:
    """Breaks things of a stack.

    Attributes:
        disks: Small file systems by the server that stores on them; empty where none can be mounted.
        cluster: Of the NATS, if it is not the embedded one.
        spared: Roles that are never killed.
        lost_objects: Whether the bucket of objects was deleted, so that a large result may be lost.
    """

    def __init__(self, stack: FaultStack, disks: Mapping[str, Path], cluster: NatsCluster | None = None) -> None:
        self.stack, self.disks, self.cluster = stack, disks, cluster
        self._has = {"disk": bool(disks), "namespaces": isinstance(cluster, DividedCluster)}
        self.spared: Collection[str] = ()
        self.lost_objects = False

    def can(self, kind: Kind) -> bool:
        """Whether what it needs can be had here."""
        return not kind.needs or self._has[kind.needs]

    # --- processes ----------------------------------------------------------------------------------------------------

    async def kill_role(self, role: Role) -> None:
        if role.name not in self.spared:
            role.send(signal.SIGKILL)

    async def freeze_role(self, role: Role, lasts_s: float) -> None:
        """A zombie: it goes on later where it was."""
        role.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            role.send(signal.SIGCONT)

    async def kill_store(self, name: str) -> None:
        """The next look at the embedded servers starts it again."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.stack.embedded.pids()[name], signal.SIGKILL)

    async def freeze_store(self, name: str, lasts_s: float) -> None:
        try:
            process = psutil.Process(self.stack.embedded.pids()[name])
            frozen = [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return  # another fault has killed it
        try:
            for one in frozen:
                _signal(one, signal.SIGSTOP)
            await asyncio.sleep(lasts_s)
        finally:
            for one in frozen:
                _signal(one, signal.SIGCONT)

    # --- lines --------------------------------------------------------------------------------------------------------

    async def hold(self, lines: list[SlowLine], lasts_s: float) -> None:
        for line in lines:
            line.hold()
        try:
            await asyncio.sleep(lasts_s)
        finally:
            for line in lines:
                line.release()

    async def delay(self, lines: list[SlowLine], lasts_s: float) -> None:
        for line in lines:
            line.delay_s = FAR_S
        try:
            await asyncio.sleep(lasts_s)
        finally:
            for line in lines:
                line.delay_s = 0.0

    async def cut(self, lines: list[SlowLine]) -> None:
        for line in lines:
            line.cut()

    # --- stores -------------------------------------------------------------------------------------------------------

    async def fill_disk(self, name: str, lasts_s: float) -> None:
        """Leaves next to nothing free; an operator then makes room, and starts the server again."""
        filler = self.disks[name] / "filler"
        await asyncio.to_thread(fill_disk, filler)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            filler.unlink()
        await self.kill_store(name)

    async def refuse_writes(self, lasts_s: float) -> None:
        """Postgres is read-only, for sessions that exist as well."""
        home = self.stack.embedded.address.home
        settings = home / "postgres" / "data" / "postgresql.conf"
        before = settings.read_text()
        try:
            settings.write_text(f"{before}\ndefault_transaction_read_only = on\n")
            self._reload_postgres()
            await asyncio.sleep(lasts_s)
        finally:
            settings.write_text(before)
            self._reload_postgres()

    def _reload_postgres(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.stack.embedded.pids()["postgres"], signal.SIGHUP)

    async def delete_stream(self, name: str, lasts_s: float) -> None:
        """Deletes a stream with all it holds; an operator then makes it again."""
        async with self.admin() as admin:
            with contextlib.suppress(NoetlError):
                await admin.api(f"STREAM.DELETE.{name}")
        self.lost_objects |= name == RESULTS
        await asyncio.sleep(lasts_s)
        replicas = REPLICAS if self.cluster is not None else 1
        await persist(lambda: ensure_all_streams(self.stack.endpoint(ADMIN), replicas=replicas))
        if name == EVENTS:
            with contextlib.suppress(NoetlError):  # servers that run do it themselves
                await reconcile_stream(self.stack.endpoint(SERVER))

    async def delete_consumer(self) -> None:
        async with self.admin() as admin:
            with contextlib.suppress(NoetlError):
                names = codec.decode_json(await admin.api(f"CONSUMER.NAMES.{COMMANDS}"))["consumers"]
                for name in names:
                    await admin.api(f"CONSUMER.DELETE.{COMMANDS}.{name}")

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[NatsConnection]:
        endpoint = self.stack.endpoint(ADMIN)
        admin = await persist(
            lambda: NatsConnection.open(
                endpoint.nats_url, name="faults", nkey=endpoint.nats_nkey, identity=endpoint.identity
            )
        )
        try:
            yield admin
        finally:
            await admin.close()

    # --- messages -----------------------------------------------------------------------------------------------------

    async def double_requests(self, dice: Random) -> None:
        """The same request at once and again: one execution."""
        key, job = f"doubled-{dice.getrandbits(64):x}", JOBS["chain"]
        first, second = await asyncio.gather(self.stack.submit(job, key), self.stack.submit(job, key))
        assert first == second

    async def double_reports(self, dice: Random) -> None:
        """The last reports of workers once more, as if their acknowledgements were lost for long."""
        with contextlib.suppress(NoetlError, TimeoutError):  # another fault has cut it off
            server = await connect_to_nats(self.stack.endpoint(SERVER), name="faults")
            worker = await connect_to_nats(self.stack.endpoint(worker_identity("default")), name="faults")
            try:
                after = await server.log.last_sequence() - DOUBLED_AT_ONCE
                reader = await server.log.open_reader(range(PARTITIONS), max(0, after))
                async with asyncio.timeout(MENDED_WITHIN_S):
                    read = await reader.next_batch(DOUBLED_AT_ONCE)
                for one in read:
                    if b'"type":"report"' in one.body:
                        message_id = f"doubled-{dice.getrandbits(64):x}"
                        await worker.log.publish_report(one.execution_id, "default", message_id, one.body)
                await reader.close()
            finally:
                await server.close()
                await worker.close()

    async def send_hostile(self, dice: Random) -> None:
        """Messages that are well signed and wrong inside, about an execution of nobody's."""
        job = JOBS["waiting"]
        victim = await self.stack.submit(job, f"victim-{dice.getrandbits(64):x}", is_judged=False)
        ring = key_ring(self.stack.endpoint(SERVER).access_keys, ACCESS_KEY_VARIABLE)
        assert ring is not None
        digest, address = digest_of(job.source), self.stack.embedded.address
        async with AsyncExitStack() as closing:
            with contextlib.suppress(NoetlError, TimeoutError):  # another fault has cut it off
                storm = await Storm.open(dice.getrandbits(32), address.nats_url, dict(address.seeds), closing)
                begin = lambda one: requests_to(one, digest)  # noqa: E731
                await storm.blow(HOSTILE_AT_ONCE, Signer(ring, "request"), begin, [victim], [])

    # --- a cluster ----------------------------------------------------------------------------------------------------

    async def kill_leader(self, stream: str, lasts_s: float) -> None:
        name = await self._leader(stream)
        if name:
            assert self.cluster is not None
            self.cluster.servers[name].kill()
            await asyncio.sleep(lasts_s)
            self.cluster.servers[name].start("--name", name)

    async def freeze_leader(self, stream: str, lasts_s: float) -> None:
        name = await self._leader(stream)
        if name:
            assert self.cluster is not None
            self.cluster.servers[name].pause()
            await asyncio.sleep(lasts_s)
            self.cluster.servers[name].resume()

    async def cut_leader_off(self, stream: str, lasts_s: float) -> None:
        """From the other servers; its clients still reach it."""
        name = await self._leader(stream)
        if name:
            assert isinstance(self.cluster, DividedCluster)
            self.cluster.cut_off(name)
            await asyncio.sleep(lasts_s)
            self.cluster.join(name)

    async def _leader(self, stream: str) -> str:
        """The server that leads the stream; ``""`` while none does."""
        async with self.admin() as admin:
            with contextlib.suppress(NoetlError):
                info = codec.decode_json(await admin.api(f"STREAM.INFO.{stream}"))
                return str(info["cluster"].get("leader", ""))
        return ""


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def fill_disk(filler: Path) -> None:
    """Fills the file system of a file with it, but for a little."""
    free = os.statvfs(filler.parent)
    size = free.f_bavail * free.f_frsize - KEPT_FREE_BYTES
    with filler.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            if error.errno != errno.ENOSPC:  # others have written meanwhile: it is full
                raise


def small_disk(folder: Path, size_gb: int) -> bool:
    """Mounts a file system of its own there; returns whether that is allowed.

    It is a sparse file, which takes as much of the real disk as is written: a filler takes none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    image = folder.parent.parent / f"{folder.name}.disk"
    with image.open("wb") as file:
        file.truncate(size_gb << 30)
    for command in (["mkfs.ext4", "-q", "-F", "-m", "0"], ["mount", "-o", "loop"]):
        target = [str(image)] if "mkfs" in command[0] else [str(image), str(folder)]
        if shutil.which(command[0]) is None or subprocess.run([*command, *target], check=False).returncode:
            return False
    folder.chmod(0o700)
    return True


def _of_role(kind: str, touches: str = "") -> tuple[Kind, ...]:
    """The faults of processes of a role."""

    def role(faults: Faults, dice: Random) -> Role:
        return dice.choice(faults.stack.of_kind(kind))

    async def hold_nats(faults: Faults, dice: Random, lasts_s: float) -> None:
        await faults.hold(role(faults, dice).lines.nats, lasts_s)

    async def hold_postgres(faults: Faults, dice: Random, lasts_s: float) -> None:
        await faults.hold(role(faults, dice).lines.postgres, lasts_s)

    async def delay(faults: Faults, dice: Random, lasts_s: float) -> None:
        lines = role(faults, dice).lines
        await faults.delay([*lines.nats, *lines.postgres], lasts_s)

    async def cut(faults: Faults, dice: Random, lasts_s: float) -> None:
        lines = role(faults, dice).lines
        await faults.cut([*lines.nats, *lines.postgres])

    return (
        Kind(f"{kind} killed", lambda faults, dice, _: faults.kill_role(role(faults, dice)), touches),
        Kind(f"{kind} frozen", lambda faults, dice, s: faults.freeze_role(role(faults, dice), s), touches),
        Kind(f"{kind} cut off from NATS", hold_nats, touches),
        *(() if kind == "worker" else (Kind(f"{kind} cut off from Postgres", hold_postgres, touches),)),
        Kind(f"{kind} far away", delay, touches),
        Kind(f"{kind}'s connections broken", cut, touches),
    )


SERVER_SIDE: Final = (
    *_of_role("server"),
    *_of_role("gateway"),
    Kind("Postgres killed", lambda faults, dice, _: faults.kill_store("postgres")),
    Kind("Postgres frozen", lambda faults, dice, s: faults.freeze_store("postgres", s)),
    Kind("Postgres read-only", lambda faults, dice, s: faults.refuse_writes(s)),
    Kind("disk of Postgres full", lambda faults, dice, s: faults.fill_disk("postgres", s), needs="disk"),
    Kind("requests doubled", lambda faults, dice, _: faults.double_requests(dice)),
)
"""Faults that touch neither a worker nor a stream: no effect may happen twice."""

TOUCHING: Final = (
    *_of_role("worker", "worker"),
    Kind("NATS killed", lambda faults, dice, _: faults.kill_store("nats"), "stream"),
    Kind("NATS frozen", lambda faults, dice, s: faults.freeze_store("nats", s), "stream"),
    Kind("disk of NATS full", lambda faults, dice, s: faults.fill_disk("nats", s), "stream", "disk"),
    Kind("COMMANDS deleted", lambda faults, dice, s: faults.delete_stream(COMMANDS, s), "stream"),
    Kind("EVENTS deleted", lambda faults, dice, s: faults.delete_stream(EVENTS, s), "stream"),
    Kind("objects deleted", lambda faults, dice, s: faults.delete_stream(RESULTS, s), "stream"),
    Kind("consumers deleted", lambda faults, dice, _: faults.delete_consumer(), "stream"),
    Kind("reports doubled", lambda faults, dice, _: faults.double_reports(dice)),
    Kind("hostile messages", lambda faults, dice, _: faults.send_hostile(dice), "stream"),
)

CLUSTERED: Final = (
    Kind("leader of EVENTS killed", lambda faults, _, s: faults.kill_leader(EVENTS, s), "stream"),
    Kind("leader of COMMANDS killed", lambda faults, _, s: faults.kill_leader(COMMANDS, s), "stream"),
    Kind("leader of the objects killed", lambda faults, _, s: faults.kill_leader(RESULTS, s), "stream"),
    Kind("leader of EVENTS frozen", lambda faults, _, s: faults.freeze_leader(EVENTS, s), "stream"),
    Kind("leader of COMMANDS frozen", lambda faults, _, s: faults.freeze_leader(COMMANDS, s), "stream"),
    Kind("leader of EVENTS cut off", lambda faults, _, s: faults.cut_leader_off(EVENTS, s), "stream", "namespaces"),
    Kind("leader of COMMANDS cut off", lambda faults, _, s: faults.cut_leader_off(COMMANDS, s), "stream", "namespaces"),
    Kind("server killed", SERVER_SIDE[0].act),
    Kind("worker killed", TOUCHING[0].act, "worker"),
)
"""Faults of a stack whose NATS is three servers."""
