"""Objects in a folder and in a bucket, as servers and, by addresses, workers have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from cloud_emulators import BY_EMULATOR, CLOUDS, Cloud
from noetl_stream.adapters.files.object_places import ObjectPlace
from noetl_stream.adapters.object_addresses import AddressedObjects
from noetl_stream.errors import BlobMissing, Forbidden, Unreachable, UsageError
from noetl_stream.operations.doctor.findings import explained, remedy_of
from noetl_stream.settings.places import ObjectAddress, read_object_places
from noetl_testkit.conformance.blobs import BlobsConformance
from object_storage import SECRET_KEY, ObjectStorage, object_storage

BUCKET = ObjectAddress("s3", "bucket", "kept/here")


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as found:
        yield found


@pytest.fixture
def in_bucket(storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ObjectPlace:
    """A part of the bucket of this test's own."""
    for name, value in storage.variables().items():
        monkeypatch.setenv(name, value)
    return ObjectPlace(ObjectAddress("s3", "bucket", f"kept/{request.node.name[:60]}"))


@pytest.fixture(scope="module")
def cloud() -> Iterator[Callable[[str], Cloud]]:
    with ExitStack() as opened:
        yield cache(lambda name: opened.enter_context(CLOUDS[name]()))


@pytest.fixture
def in_cloud(
    cloud: Callable[[str], Cloud], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[str], ObjectPlace]:
    """A part of a service's bucket of this test's own."""

    def found(name: str) -> ObjectPlace:
        for variable, value in cloud(name).variables.items():
            monkeypatch.setenv(variable, value)
        return ObjectPlace(ObjectAddress(cloud(name).scheme, "bucket", f"kept/{request.node.name[:60]}"))

    return found


@pytest.fixture
def in_folder(tmp_path: Path) -> ObjectPlace:
    return ObjectPlace(tmp_path / "objects")


@pytest.fixture(params=["folder", "bucket", *BY_EMULATOR])
def place(request: pytest.FixtureRequest) -> ObjectPlace:
    if request.param in CLOUDS:
        in_cloud: Callable[[str], ObjectPlace] = request.getfixturevalue("in_cloud")
        return in_cloud(request.param)
    found: ObjectPlace = request.getfixturevalue(f"in_{request.param}")
    return found


@pytest.fixture
async def addressed() -> AsyncIterator[AddressedObjects]:
    objects = AddressedObjects()
    yield objects
    await objects.close()


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class TestFolder(BlobsConformance):
    @pytest.fixture
    def blobs(self, in_folder: ObjectPlace) -> ObjectPlace:
        return in_folder


class TestBucket(BlobsConformance):
    @pytest.fixture
    def blobs(self, in_bucket: ObjectPlace) -> ObjectPlace:
        return in_bucket


class TestClouds(BlobsConformance):
    @pytest.fixture(params=BY_EMULATOR)
    def blobs(self, in_cloud: Callable[[str], ObjectPlace], request: pytest.FixtureRequest) -> ObjectPlace:
        return in_cloud(request.param)


async def test_an_object_written_by_a_signed_address_is_read_by_servers_and_other_addresses(
    place: ObjectPlace, addressed: AddressedObjects
) -> None:
    key, data = "execution/command/1.1.n/0/0", bytes(range(256)) * 5_000
    (to_write,), (to_read,) = await place.addresses("PUT", [key]), await place.addresses("GET", [key])
    assert await addressed.get(to_read) is None
    await addressed.put(to_write, data)
    await addressed.put(to_write, b"other")
    is_replaced = place.place.startswith("gs://")  # Google takes no condition from who has only an address
    assert await place.get(key) == await addressed.get(to_read) == (b"other" if is_replaced else data)


async def test_an_address_is_good_for_one_object_and_one_use(
    in_bucket: ObjectPlace, addressed: AddressedObjects
) -> None:
    await in_bucket.put("a/0", b"zero")
    (address,) = await in_bucket.addresses("GET", ["a/0"])
    assert await addressed.get(address) == b"zero"
    for other in (address.replace("/a/0?", "/a/1?"), address.replace("X-Amz-Expires=600", "X-Amz-Expires=6000")):
        with pytest.raises(Forbidden) as refused:
            await addressed.get(other)
        assert "X-Amz" not in str(refused.value)
        assert remedy_of(str(refused.value)).startswith("compare the clocks")
    (to_read,) = await in_bucket.addresses("GET", ["a/1"])
    with pytest.raises(Forbidden):
        await addressed.put(to_read, b"written")
    assert SECRET_KEY not in address


async def test_a_bucket_that_is_away_is_waited_for_without_showing_an_address(
    in_bucket: ObjectPlace, addressed: AddressedObjects, storage: ObjectStorage
) -> None:
    (address,) = await in_bucket.addresses("PUT", ["a/0"])
    storage.refused = lambda _method, _path: True
    try:
        with pytest.raises(Unreachable, match=r"^http://127.0.0.1:\d+: object storage answers 503$") as refused:
            await addressed.put(address, b"data")
        assert remedy_of(str(refused.value)).startswith("look at its state")
    finally:
        storage.refused = storage.never
    port = storage.url.rpartition(":")[2]
    with pytest.raises(Unreachable, match="object storage does not answer") as away:
        await addressed.get(address.replace(port, "1"))
    assert "X-Amz" not in str(away.value)


async def test_a_bucket_that_is_missing_is_waited_for_and_its_objects_are_not_lost(
    in_bucket: ObjectPlace, addressed: AddressedObjects
) -> None:
    unknown = ObjectPlace(ObjectAddress("s3", "unknown"))
    (to_read,), (to_write,) = await unknown.addresses("GET", ["a/0"]), await unknown.addresses("PUT", ["a/0"])
    for use in (addressed.get(to_read), addressed.put(to_write, b"data")):
        with pytest.raises(Unreachable, match="object storage answers 404 NoSuchBucket"):
            await use


async def test_an_object_counts_as_lost_only_if_the_storage_itself_reports_it_missing(
    in_bucket: ObjectPlace, addressed: AddressedObjects, storage: ObjectStorage
) -> None:
    (to_read,) = await in_bucket.addresses("GET", ["a/0"])
    assert await addressed.get(to_read) is None
    with pytest.raises(BlobMissing):
        await in_bucket.get("a/0")
    storage.refused, storage.refusal = (lambda _method, _path: True), 404  # as a proxy before it might
    try:
        for use in (addressed.get(to_read), in_bucket.get("a/0")):
            with pytest.raises(Unreachable, match=r"object storage answers 404$"):
                await use
    finally:
        storage.refused, storage.refusal = storage.never, 503


async def test_a_folder_that_is_not_shared_is_named(
    tmp_path: Path, in_folder: ObjectPlace, addressed: AddressedObjects
) -> None:
    (address,) = await in_folder.addresses("PUT", ["a/0"])
    (tmp_path / "objects").rename(tmp_path / "elsewhere")
    with pytest.raises(Unreachable, match=r"the folder /.*/objects of objects is not there .*share it"):
        await addressed.put(address, b"data")


async def test_concurrent_writers_of_one_object_leave_one_complete_object(
    tmp_path: Path, in_folder: ObjectPlace, addressed: AddressedObjects
) -> None:
    (address,) = await in_folder.addresses("PUT", ["a/0"])
    values = [bytes([65 + number]) * 300_000 for number in range(4)]
    await asyncio.gather(*(addressed.put(address, value) for value in values))
    assert await in_folder.get("a/0") in values
    assert below(tmp_path) == ["objects", "objects/a", "objects/a/0"]


async def test_a_wrong_key_is_reported_at_the_start_and_retried_later(
    in_bucket: ObjectPlace, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await in_bucket.verify()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-key-9876543210")
    wrong = ObjectPlace(BUCKET)
    said = r"s3://bucket/kept/here: access is refused \(403 SignatureDoesNotMatch\) \(look at the AWS_…, "
    with pytest.raises(UsageError, match=said):
        await wrong.verify()
    with pytest.raises(Unreachable, match=said) as refused:
        await wrong.put("a/0", b"data")
    assert explained(refused.value).says.startswith("the key of the bucket is wrong, missing, or lacks a right: s3://")


@pytest.mark.parametrize("value", ["AES256", "aws:kms"])
async def test_encryption_that_workers_could_not_ask_for_is_refused_at_the_start(
    in_bucket: ObjectPlace, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", value)
    place = ObjectPlace(BUCKET)
    with pytest.raises(UsageError, match=r"here: AWS_SERVER_SIDE_ENCRYPTION does not hold for what workers write"):
        await place.verify()
    await place.put("encrypted/0", b"data")  # as `backup restore` does
    assert await place.get("encrypted/0") == b"data"


@pytest.mark.parametrize(
    ("scheme", "variables"),
    [
        ("s3", {"AWS_SERVER_SIDE_ENCRYPTION": "sse-c", "AWS_SSE_CUSTOMER_KEY_BASE64": "c2VjcmV0"}),
        ("az", {"AZURE_STORAGE_ENCRYPTION_KEY": "c2VjcmV0"}),
    ],
)
def test_a_key_without_which_workers_could_read_nothing_is_refused(
    scheme: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match=rf"{scheme}://bucket: {[*variables][-1]} does not hold") as refused:
        ObjectPlace(ObjectAddress(scheme, "bucket"))
    assert "c2VjcmV0" not in str(refused.value)


async def test_a_bucket_that_does_not_exist_is_no_missing_object(in_bucket: ObjectPlace) -> None:
    with pytest.raises(Unreachable, match=r"there is no bucket 'unknown' \(make the bucket") as refused:
        await ObjectPlace(ObjectAddress("s3", "unknown")).get("a/0")
    assert remedy_of(str(refused.value)).startswith("make it, or correct its name in NOETL_OBJECTS")


async def test_no_key_leads_out_of_a_folder(tmp_path: Path, in_folder: ObjectPlace) -> None:
    for key in ("../../x", "...", "a/../../x", "/x", "a//x", "."):
        await in_folder.put(key, key.encode())
        assert await in_folder.get(key) == key.encode()
    assert {path.partition("/")[0] for path in below(tmp_path)} == {"objects"}


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", ()),
        ("nats", ()),
        ("s3://bucket/a, nats", (ObjectAddress("s3", "bucket", "a"), None)),
        ("gs://bucket", (ObjectAddress("gs", "bucket"), None)),
        ("nats,file:///srv/objects", (None, Path("/srv/objects"))),
    ],
)
def test_nats_is_always_among_the_places(text: str, places: tuple[object, ...]) -> None:
    assert read_object_places("NOETL_OBJECTS", {"NOETL_OBJECTS": text}) == places


@pytest.mark.parametrize(
    "text", ["/srv/objects", "file://srv", "file:///srv/../etc", "s3://key:secret@bucket/x", "s3://buck,s3://buck", "x"]
)
def test_an_invalid_place_for_objects_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError, match="NOETL_OBJECTS") as refused:
        read_object_places("NOETL_OBJECTS", {"NOETL_OBJECTS": text})
    assert "secret" not in str(refused.value)
