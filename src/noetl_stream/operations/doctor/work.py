"""Checks of what the system works on: executions, dead letters, keys."""

from __future__ import annotations

from typing import Final

from noetl_stream.operations.doctor.finding import Finding, counted, named, ok, warning, wrong
from noetl_stream.operations.doctor.readings import COUNTED, MOST_TRIGGERS, Readings
from noetl_stream.operations.doctor.stores import DAY_MS, SOON_DAYS
from noetl_stream.ports.stores.dead_letters import LetterBounds
from noetl_stream.sealing.keys import KeyRing

FULL: Final = 0.95
REASON_CHARS: Final = 300


async def stuck(read: Readings) -> Finding:
    """Every execution that has not ended waits for something."""
    found, living = await read.stuck, sum((await read.living).values())
    if found:
        return wrong(
            f"{counted(found, 'execution', COUNTED)} without anything to wait for: {named(found)}",
            f"noetl-stream execution why {found[0]}; then cancel it, and report a defect",
        )
    return ok(f"{counted(living, 'execution')} not ended, and each waits for something")


async def quarantined(read: Readings) -> Finding:
    """No execution is set aside."""
    number = (await read.living).get("quarantined", 0)
    if number:
        return warning(
            f"{counted(number, 'execution')} set aside: `execution why` says what for",
            "noetl-stream execution list --status quarantined; then resume or cancel each",
        )
    return ok("no execution is set aside")


async def dead_letters(read: Readings) -> Finding:
    """No message or command was given up, and none that was is dropped."""
    found, held, most = await read.letters, await read.held_letters, LetterBounds()
    full = max(held.letters / most.letters, held.bytes / most.bytes)
    if full >= FULL:
        return wrong(
            f"{counted(held.letters, 'dead letter')} with {held.bytes} bytes: {min(full, 1):.0%} of what is kept; "
            "the oldest go",
            "noetl-stream dead-letter list; then end what sends them",
        )
    if found:
        return warning(
            f"{counted(found, 'message', COUNTED)} could not be delivered",
            "noetl-stream dead-letter list; then requeue or discard each",
        )
    return ok("every message could be delivered")


async def triggers(read: Readings, now_ms: int) -> Finding:
    """Every trigger can read its stream, and does with its events what it says."""
    found = await read.triggers
    unread = [one for one in found if one.reading.trouble]
    if unread:
        return wrong(
            f"{counted(unread, 'trigger')} whose stream cannot be read: {named(one.path for one in unread)}; "
            f"{unread[0].path}: {unread[0].reading.trouble}",
            f"noetl-stream trigger get {unread[0].path}",
        )
    faulty = [one for one in found if one.faults.count and now_ms - one.faults.at_ms < DAY_MS]
    if faulty:
        first = faulty[0]
        return warning(
            f"{counted(faulty, 'trigger')} with faults in the last day: "
            f"{named(f'{one.path} ({one.faults.count})' for one in faulty)}; "
            f"event {first.faults.number} of {first.path}: {first.faults.reason[:REASON_CHARS]}",
            f"noetl-stream trigger history {first.path} --status ignored; then register it mended, and resend",
        )
    return ok(f"{counted(found, 'trigger', MOST_TRIGGERS)}, without a fault in the last day")


async def keys(read: Readings, ring: KeyRing | None) -> Finding:
    """Every credential is encrypted with the current key."""
    stored = await read.credentials
    if ring is None:
        if not stored:
            return ok("no credential is stored")
        return Finding("skipped", f"this process has no key of the {counted(stored, 'credential')}")
    unknown = [one.name for one in stored if ring.find(one.key_id) is None]
    if unknown:
        return wrong(
            f"the key of {counted(unknown, 'credential')} is not configured: {named(unknown)}",
            "add it to NOETL_CREDENTIAL_OLD_KEYS, then: noetl-stream credential rotate",
        )
    old = [one.name for one in stored if one.key_id != ring.current.id]
    if old:
        return warning(f"{counted(old, 'credential')} under an old key: {named(old)}", "noetl-stream credential rotate")
    return ok(f"{counted(stored, 'credential')} under the current key")


async def tokens(read: Readings, now_ms: int) -> Finding:
    """No API token ends soon."""
    held = [token for token in await read.tokens if token.holds(now_ms)]
    soon = [one.name for one in held if one.expires_ms is not None and one.expires_ms - now_ms < SOON_DAYS * DAY_MS]
    if soon:
        return warning(
            f"within {SOON_DAYS} days end {counted(soon, 'token')}: {named(soon)}", "noetl-stream token create NAME"
        )
    return ok(f"{counted(held, 'token')}, and none ends within {SOON_DAYS} days")
