"""Bundles: the zip file of a project's packages, and what is refused before anything is unpacked."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest

from noetl_stream.model.bundles import (
    MAX_BUNDLE_BYTES,
    MAX_BUNDLE_FILES,
    BundleRefused,
    bundle_name,
    files_of,
    is_bundle,
    named_bundle,
    zip_of,
)

FILES = {"packages/etl/__init__.py": b"", "packages/etl/steps.py": b"def double(n): return 2 * n\n"}


def zipped(*entries: tuple[str, bytes], mode: int = 0, compression: int = zipfile.ZIP_STORED) -> bytes:
    written = BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for name, data in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = mode << 16, compression
            archive.writestr(entry, data)
    return written.getvalue()


def test_the_same_files_are_the_same_bytes_in_whatever_order_they_were_found() -> None:
    data = zip_of(FILES)
    assert data == zip_of(dict(reversed(FILES.items()))) and files_of(data) == FILES
    assert named_bundle("team/etl", data).digest == "219d4dc3acd52512e359abcc72896d731110eb701328018c8231b31a29e9bf37"
    assert is_bundle(str(named_bundle("team/etl", data)), data)
    assert not is_bundle(str(named_bundle("team/etl", data)), data + b"x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no zip", "not a bundle: File is not a zip file"),
        (zip_of(FILES)[:-10], "not a bundle"),
        (zipped(("packages/../../x.py", b"")), "packages/../../x.py: leads out of the bundle"),
        (zipped(("/etc/x.py", b"")), "/etc/x.py: leads out of the bundle"),
        (zipped(("packages/", b"")), "packages/: leads out of the bundle, or is a folder"),
        (zipped(("packages\\x.py", b"")), "not a path in a bundle"),
        (zipped(("packages/x\n.py", b"")), "not a path in a bundle"),
        (zipped(("packages/x.py", b"/etc/passwd"), mode=0o120777), "packages/x.py: a link or a device"),
        (zipped(("packages/x.py", b"0" * 99), compression=zipfile.ZIP_DEFLATED), "packages/x.py: compressed"),
        (zipped(("a", b""), ("a/b", b"")), "a: a file of the bundle, and a folder"),
        (zipped(*((f"{n}.py", b"") for n in range(MAX_BUNDLE_FILES + 1))), "4,001 files: a bundle has at most 4,000"),
        (bytes(MAX_BUNDLE_BYTES + 1), "8,388,609 bytes: a bundle has at most"),
        (zip_of(FILES).replace(b"double", b"triple"), "not a bundle: Bad CRC-32"),
    ],
)
def test_a_file_that_is_no_bundle_is_refused_with_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(BundleRefused) as refused:
        files_of(data)
    assert message in refused.value.message


def test_too_many_bytes_are_refused_before_a_zip_file_is_made() -> None:
    with pytest.raises(BundleRefused, match="bytes: a bundle has at most"):
        zip_of({"a": bytes(MAX_BUNDLE_BYTES + 1)})


@pytest.mark.parametrize("text", ["", "team/etl", f"team/etl@{'g' * 64}", f"/team@{'0' * 64}", f"a b@{'0' * 64}"])
def test_texts_of_another_form_name_no_bundle(text: str) -> None:
    assert bundle_name(text) is None
