"""An author limited to playbooks reads no file of the worker's machine that the operator did not offer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.errors import UsageError
from noetl_stream.playbook.plan import KeychainPlan
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.worker.secrets.files import MAX_LINKS
from noetl_stream.worker.secrets.keychain import Keychain

SECRET = "s3cret-of-the-engine"


@pytest.fixture
def offered(tmp_path: Path) -> Path:
    """The folder that the operator names, as Kubernetes fills it: the file is a link to a link in the folder."""
    folder = tmp_path / "offered"
    (folder / "..2026").mkdir(parents=True)
    (folder / "..2026" / "token").write_text("offered-token\n")
    (folder / "..data").symlink_to("..2026")
    (folder / "token").symlink_to("..data/token")
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """The engine's own files, beside the offered folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("passwords.json", "credential.key"):
        (folder / name).write_text(SECRET)
    return folder


async def read(path: object, *folders: Path) -> object:
    """``keychain.it``, of an entry ``{kind: file, path: …}``."""
    keychain = Keychain(SystemClock(), {}, folders=folders)
    secret, _ = await keychain.entry("execution-1", KeychainPlan("it", "file", {"path": str(path)}, line=1))
    return secret.value


async def refusal(path: object, *folders: Path) -> str:
    with pytest.raises(ToolFailure) as failed:
        await read(path, *folders)
    assert failed.value.error.kind == "credential"
    return failed.value.error.message


async def test_a_file_of_an_offered_folder_is_read_through_links_that_stay_in_it(offered: Path) -> None:
    assert await read(offered / "token", Path("/nowhere"), offered) == "offered-token"
    assert await read(offered / "..2026" / ".." / "..data" / "token", offered) == "offered-token"


async def test_the_offered_folder_itself_may_be_a_link(offered: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(offered)
    assert await read(tmp_path / "link" / "token", tmp_path / "link") == "offered-token"


@pytest.mark.parametrize("path", ["/proc/self/environ", "/etc/passwd", "passwords.json", "credential.key"])
async def test_no_file_is_read_that_was_not_offered(offered: Path, outside: Path, path: str) -> None:
    (offered / "offered.txt").write_text("a value")
    for folders in ((), (offered,), (offered.with_name("hom"),)):
        message = await refusal(outside / path, *folders)
        assert message == (
            f"keychain.it: {outside / path} is not in a folder that the worker's operator allows "
            "(NOETL_KEYCHAIN_FOLDERS)"
        )


@pytest.mark.parametrize("path", ["../home/passwords.json", "..2026/../../home/credential.key", ".."])
async def test_dots_do_not_lead_out(offered: Path, outside: Path, path: str) -> None:
    message = await refusal(f"{offered}/{path}", offered)
    assert message.endswith(f"leads out of {offered}, the folder that the worker's operator allows")


@pytest.mark.parametrize(
    "make",
    [
        lambda link, target: link.symlink_to(target / "passwords.json"),
        lambda link, target: link.symlink_to(os.path.relpath(target / "passwords.json", link.parent)),
        lambda link, _: link.symlink_to("/proc/self/environ"),
        lambda link, _: link.symlink_to(link.parent / "token"),
    ],
    ids=["absolute", "relative", "proc", "absolute, back into the folder"],
)
async def test_links_do_not_lead_out(offered: Path, outside: Path, make: Callable[[Path, Path], None]) -> None:
    make(offered / "link", outside)
    message = await refusal(offered / "link", offered)
    assert message.endswith(f"leads out of {offered}, the folder that the worker's operator allows")


async def test_a_folder_that_is_a_link_does_not_lead_out(offered: Path, outside: Path) -> None:
    (offered / "folder").symlink_to(outside, target_is_directory=True)
    assert "leads out of" in await refusal(offered / "folder" / "passwords.json", offered)


async def test_a_link_to_itself_ends(offered: Path) -> None:
    (offered / "loop").symlink_to("loop")
    assert "Too many levels of symbolic links" in await refusal(offered / "loop", offered)
    assert MAX_LINKS < 100


async def test_a_fifo_and_a_folder_are_refused_and_hold_nobody(offered: Path) -> None:
    os.mkfifo(offered / "fifo")
    assert (await refusal(offered / "fifo", offered)).endswith("is not a regular file")
    assert (await refusal(offered / "..2026", offered)).endswith("is not a regular file")
    assert (await refusal(offered, offered)).endswith("is not a regular file")


async def test_a_link_put_in_place_of_a_file_after_the_look_is_not_followed(
    offered: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race that checks by path lose: the name is a file when looked at, and a link when opened."""
    (offered / "file").write_text("a value")
    looked_at = os.readlink

    def swap_after_the_look(name: str, *, dir_fd: int) -> str:
        try:
            return looked_at(name, dir_fd=dir_fd)
        finally:
            (offered / "file").unlink()
            (offered / "file").symlink_to(outside / "passwords.json")

    monkeypatch.setattr(os, "readlink", swap_after_the_look)
    assert "Too many levels of symbolic links" in await refusal(offered / "file", offered)


@pytest.mark.parametrize("folder", ["/", "/home", "/home/ann", "/home/ann/.noetl", "/home/ann/.noetl/x", "/proc/1"])
def test_an_operator_cannot_offer_the_engines_own_files(folder: str) -> None:
    with pytest.raises(UsageError, match=f"NOETL_KEYCHAIN_FOLDERS names {folder}, where noetl-stream's own keys"):
        Settings.from_environment({"HOME": "/home/ann", "NOETL_KEYCHAIN_FOLDERS": f"/run/secrets:{folder}"})


def test_by_default_no_folder_is_offered() -> None:
    assert Settings.from_environment({}).tools("nats://localhost", embedded=True).keychain_folders == ()
    given = {"HOME": "/home/ann", "NOETL_KEYCHAIN_FOLDERS": "/run/secrets:/home/ann/secrets"}
    folders = Settings.from_environment(given).tools("nats://localhost", embedded=False).keychain_folders
    assert folders == (Path("/run/secrets"), Path("/home/ann/secrets"))
