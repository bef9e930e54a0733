"""Object storage as files, and what is said when it does not serve."""

from __future__ import annotations

import socket
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_emulators import BY_EMULATOR, CLOUDS
from noetl_stream.adapters.files import objects
from noetl_stream.adapters.files.objects import ObjectFiles
from noetl_stream.errors import NoetlError, NotFound, Unreachable, UsageError
from noetl_stream.settings.places import ObjectAddress, read_place
from noetl_stream.wiring.stores import open_files
from object_storage import SECRET_KEY, ObjectStorage, object_storage
from warm_program import noetl


@pytest.fixture(scope="module")
def buckets() -> Iterator[ObjectStorage]:
    with object_storage() as storage:
        yield storage


@pytest.fixture
def files(buckets: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> ObjectFiles:
    for name, value in buckets.variables().items():
        monkeypatch.setenv(name, value)
    return ObjectFiles(ObjectAddress("s3", "bucket", "team/kept"))


@pytest.fixture
def in_cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectFiles]:
    with CLOUDS[request.param]() as cloud:
        for name, value in cloud.variables.items():
            monkeypatch.setenv(name, value)
        yield ObjectFiles(ObjectAddress(cloud.scheme, "bucket", "team/kept"))


@pytest.mark.parametrize("in_cloud", BY_EMULATOR, indirect=True)
def test_files_of_a_backup_are_kept_in_each_cloud(
    in_cloud: ObjectFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 5 << 20)
    data = bytes(range(256)) * 4096 * 7
    (tmp_path / "made").write_bytes(data)
    in_cloud.put(tmp_path / "made", "whole")
    file = in_cloud.create("parts/large")
    file.write(data)
    file.close()
    assert in_cloud.sizes() == {"whole": len(data), "parts/large": len(data)}
    with in_cloud.open("parts/large") as read:
        assert read.read() == data
    in_cloud.remove("whole")
    assert in_cloud.below("parts").sizes() == {"large": len(data)}
    with pytest.raises(NotFound, match="/team/kept/whole is not there"):
        in_cloud.open("whole")


def test_a_file_in_parts_is_complete_or_absent(files: ObjectFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 5 << 20)
    data = bytes(range(256)) * 4096 * 7
    for name in ("parts/abandoned", "parts/large"):
        file = files.create(name)
        for at in range(0, len(data), 1 << 20):
            file.write(data[at : at + (1 << 20)])
        assert name not in files.sizes()
        file.abandon() if name == "parts/abandoned" else file.close()
    assert files.sizes("parts") == {"parts/large": len(data)}
    with files.open("parts/large") as read:
        assert read.read() == data
        assert read.seek(-3, 2) == len(data) - 3
        assert read.read() == data[-3:]
    files.remove("parts/large")
    assert files.sizes("parts") == {}
    with pytest.raises(NotFound, match=r"s3://bucket/team/kept/parts/large is not there"):
        files.open("parts/large")


KEY_MANAGED = {
    "AWS_SERVER_SIDE_ENCRYPTION": "aws:kms",
    "AWS_SSE_KMS_KEY_ID": "key-of-a-team",
    "AWS_SSE_BUCKET_KEY_ENABLED": "true",
}
CUSTOMER_KEY = {"AWS_SERVER_SIDE_ENCRYPTION": "sse-c", "AWS_SSE_CUSTOMER_KEY_BASE64": b64encode(b"k" * 32).decode()}


@pytest.mark.parametrize(
    ("variables", "said", "bound"),
    [
        ({"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}, {"": "AES256"}, {"PUT key", "POST uploads"}),
        (
            KEY_MANAGED,
            {"": "aws:kms", "-aws-kms-key-id": "key-of-a-team", "-bucket-key-enabled": "true"},
            {"PUT key", "POST uploads"},
        ),
        (
            CUSTOMER_KEY,
            {"-customer-algorithm": "AES256", "-customer-key": CUSTOMER_KEY["AWS_SSE_CUSTOMER_KEY_BASE64"]},
            {"PUT key", "POST uploads", "PUT part", "GET key", "HEAD key"},
        ),
    ],
)
def test_files_are_encrypted_at_rest_as_the_variables_say(
    buckets: ObjectStorage,
    files: ObjectFiles,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variables: dict[str, str],
    said: dict[str, str],
    bound: set[str],
) -> None:
    monkeypatch.setattr(objects, "PART_BYTES", 5 << 20)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    encrypted, first = ObjectFiles(ObjectAddress("s3", "bucket", "team/encrypted")), len(buckets.requests)
    (tmp_path / "small").write_bytes(b"small")
    encrypted.put(tmp_path / "small", "small")
    file = encrypted.create("large")
    file.write(bytes(6 << 20))
    file.close()
    with encrypted.open("large") as read:
        assert len(read.read()) == 6 << 20
    seen = set()
    for (method, path), headers in zip(buckets.requests[first:], buckets.headers[first:], strict=True):
        about = "uploads" if "uploads" in path else "part" if "partNumber" in path else "key"
        found = {name: headers.get(f"x-amz-server-side-encryption{name}") for name in said}
        assert found == (said if f"{method} {about}" in bound else dict.fromkeys(said)), (method, path)
        seen.add(f"{method} {about}")
    assert seen == {"PUT key", "POST uploads", "PUT part", "POST key", "GET key", "HEAD key"}


@pytest.mark.parametrize("name", ["AWS_SSE_KMS_KEY_ID", "AWS_SSE_BUCKET_KEY_ENABLED", "AWS_SSE_CUSTOMER_KEY_BASE64"])
def test_a_variable_of_encryption_without_effect_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "secret")
    with pytest.raises(UsageError, match=f"^{name} has no effect without AWS_SERVER_SIDE_ENCRYPTION") as refused:
        ObjectFiles(ObjectAddress("s3", "bucket"))
    assert "secret" not in str(refused.value)


def test_a_bucket_that_does_not_exist_is_named(files: ObjectFiles) -> None:
    other = ObjectFiles(ObjectAddress("s3", "unknown"))
    for ask in (other.sizes, lambda: other.open("name"), lambda: other.create("name").close()):
        with pytest.raises(UsageError, match=r"s3://unknown.*there is no bucket 'unknown'|is not there"):
            ask()


def test_wrong_keys_are_refused_and_shown_nowhere(files: ObjectFiles, buckets: ObjectStorage, tmp_path: Path) -> None:
    wrong = buckets.variables("wrong-secret-key-9876543210")
    for words in (
        ("backup", "list", "s3://bucket/team"),
        ("backup", "verify", "s3://bucket/team/one"),
        ("execution", "get", "unknown", "--archive", "s3://bucket/team"),
    ):
        refused = noetl(*words, HOME=str(tmp_path), **wrong)
        assert refused.returncode == 2
        assert "access is refused (403 SignatureDoesNotMatch)" in refused.stderr
        assert refused.stderr.count("\n") <= 2
        assert SECRET_KEY not in refused.stderr + refused.stdout
        assert "wrong-secret" not in refused.stderr + refused.stdout


def test_storage_that_is_away_ends_in_an_error(files: ObjectFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    away = ObjectFiles(ObjectAddress("s3", "bucket"))
    with pytest.raises(Unreachable, match="s3://bucket: object storage does not answer"):
        away.sizes()


def test_storage_that_never_answers_ends_in_an_error(
    files: ObjectFiles, monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    monkeypatch.setattr(objects, "REQUEST_S", 1)
    monkeypatch.setattr(objects, "RETRY_S", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent_port}")
    with pytest.raises(Unreachable, match="object storage does not answer"):
        ObjectFiles(ObjectAddress("s3", "bucket")).sizes()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("text", ["nonsense", "ftp://host", "http://user:password@host:9000", "http://"])
def test_an_invalid_endpoint_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", text)
    with pytest.raises(UsageError, match=r"^AWS_ENDPOINT_URL is not the address of a server") as refused:
        ObjectFiles(ObjectAddress("s3", "bucket"))
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://", "s3://b", "s3://key:secret@bucket/x", "s3://bucket/x?secret=1", "s3://bucket/../x", "s3://bucket//x",
        "s3://bucket/a b", "http://secret/x",
    ],
)  # fmt: skip
def test_an_invalid_address_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UsageError, match=r"^invalid --archive: ") as refused:
        read_place("--archive", text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["s3://bucket", "gs://bucket/a/b", "az://container/date=2026-11"])
def test_an_address_is_shown_as_it_was_written(text: str) -> None:
    assert str(read_place("--archive", text)) == str(read_place("--archive", text + "/")) == text
    assert read_place("--archive", "s3/bucket") == Path("s3/bucket")


def test_an_address_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "noetl_stream.adapters.files.objects")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(NoetlError, match=r"s3://bucket needs obstore \(install noetl-stream\[objects\]\)"):
        open_files(ObjectAddress("s3", "bucket"))
    assert open_files(tmp_path).sizes() == {}
