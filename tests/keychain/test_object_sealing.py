"""Objects in the store: sealed with a key of their execution, bound to their names."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import BlobMissing
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.sealing.objects import (
    MARK,
    CannotUnseal,
    DerivedKeys,
    GivenKeys,
    open_object,
    owner_of,
    seal_object,
)
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_testkit.conformance.blobs import BlobsConformance
from noetl_testkit.memory.broker import StagedBroker

FIRST, SECOND = (read_key(new_key(), "a test") for _ in range(2))
KEYS = DerivedKeys(KeyRing(FIRST))
NAME = "execution-1/command-1/1.1.n/0"


class TestSealedBlobs(BlobsConformance):
    """Sealed, the object store behaves as without."""

    @pytest.fixture
    def blobs(self) -> Blobs:
        return SealedBlobs(StagedBroker(ManualClock()).blobs, KEYS)


def test_a_value_is_sealed_and_opened_under_its_name_alone() -> None:
    stored = seal_object(KEYS, NAME, b"a value")
    assert stored.startswith(MARK) and b"a value" not in stored
    assert open_object(KEYS, NAME, stored) == b"a value"
    with pytest.raises(CannotUnseal, match="was modified in the store, or stored under another name"):
        open_object(KEYS, "execution-1/command-1/1.1.n/1", stored)
    with pytest.raises(CannotUnseal, match="was modified"):
        open_object(KEYS, NAME, stored[:-1] + bytes([stored[-1] ^ 1]))
    with pytest.raises(CannotUnseal, match="was modified"):
        open_object(KEYS, NAME, stored[: len(MARK) + 14])


def test_each_execution_has_a_key_of_its_own() -> None:
    rings = [KEYS.ring(owner) for owner in ("execution-1", "execution-2", "playbook", owner_of("playbook/digest"))]
    assert len({ring.current.value for ring in rings}) == 4
    assert FIRST.value not in [ring.current.value for ring in rings]


def test_keys_derive_as_hkdf_expands_them() -> None:
    info = b"noetl objects\0execution-1"
    assert KEYS.ring("execution-1").current.value == HKDFExpand(SHA256(), 32, info).derive(FIRST.value)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("execution-1/c/1.1.n/0", "execution-1"),
        ("execution-1/step/loop", "execution-1"),
        ("playbook/0123", ""),
        ("playbook/step/loop", "playbook"),
    ],
)
def test_the_owner_of_an_object_is_in_its_name(name: str, owner: str) -> None:
    assert owner_of(name) == owner


def test_a_command_opens_what_its_keys_are_for() -> None:
    given = GivenKeys({"execution-1": list(KEYS.ring("execution-1").all)})
    assert open_object(KEYS, NAME, seal_object(given, NAME, b"a value")) == b"a value"
    with pytest.raises(CannotUnseal, match="was not given to this command"):
        seal_object(given, "execution-2/c/1.1.n/0", b"a value")


def test_after_a_rotation_old_objects_are_read_with_the_old_key() -> None:
    stored = seal_object(KEYS, NAME, b"a value")
    rotated = DerivedKeys(KeyRing(SECOND, (FIRST,)))
    assert open_object(rotated, NAME, stored) == b"a value"
    with pytest.raises(CannotUnseal, match=f"sealed with key {FIRST.id}, which is not configured"):
        open_object(DerivedKeys(KeyRing(SECOND)), NAME, stored)


async def test_objects_stored_before_they_were_sealed_are_read_as_they_are() -> None:
    blobs = StagedBroker(ManualClock()).blobs
    await blobs.put(NAME, b'{"rows":[1]}')
    assert await SealedBlobs(blobs, KEYS).get(NAME) == b'{"rows":[1]}'


async def test_an_object_that_cannot_be_opened_is_missing() -> None:
    blobs = StagedBroker(ManualClock()).blobs
    await SealedBlobs(blobs, KEYS).put(NAME, b"a value")
    with pytest.raises(BlobMissing, match="which is not configured") as caught:
        await SealedBlobs(blobs, DerivedKeys(KeyRing(SECOND))).get(NAME)
    assert caught.value.hint == "add it to NOETL_ACCESS_KEY, after the current one"
