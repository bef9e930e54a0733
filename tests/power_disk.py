"""A file system in a file whose power can be cut: what was not synced by then is gone. It needs root."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SIZE_BYTES: Final = 4 << 30
"""Of the sparse file: it takes as much of the real disk as is written."""

COMMIT_S: Final = 300
"""How long the journal waits for a sync; by default 5 s, which would save most of what programs do not sync."""

SHUT_DOWN: Final = 0x8004587D
"""``EXT4_IOC_SHUTDOWN``: from now on nothing is written, by whomever."""

WITHOUT_JOURNAL: Final = (2).to_bytes(4, "little")


class PowerDisk:
    """An ext4 of its own at ``folder``, without its power until :meth:`mount`."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder, self._image, self._cuts = folder, image, 0
        folder.mkdir(parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)

    def mount(self) -> None:
        """Gives it power: what the journal has is done first."""
        subprocess.run(["mount", "-o", f"loop,commit={COMMIT_S}", str(self._image), str(self.folder)], check=True)
        self.folder.chmod(0o700)

    def cut(self) -> None:
        """Takes its power away. Who writes to it from now on gets an error, so kill them before."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUT_DOWN, WITHOUT_JOURNAL)
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Gives power to a copy of what was written before the cut.

        A copy, because other programs' sandboxes may hold this file system in mount namespaces of their own: it would
        be mounted again as it is, shut down.
        """
        cut, self._cuts = self._image, self._cuts + 1
        self._image = cut.with_name(f"{cut.name.partition('-')[0]}-{self._cuts}")
        subprocess.run(["cp", "--sparse=auto", str(cut), str(self._image)], check=True)
        self.end()
        os.truncate(cut, 0)  # it takes room as long as it is held
        cut.unlink()
        self.mount()

    def end(self) -> None:
        """Unmounts it, whoever still has files there."""
        if self.folder.is_mount():
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def no_power_disks(folder: Path) -> str:
    """Why none can be made below ``folder``; ``""`` if they can."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return "power cuts need root and mkfs.ext4"
    try:
        disk = PowerDisk(folder / "try", folder / "try.disk")
        disk.mount()
        disk.end()
    except (OSError, subprocess.CalledProcessError) as refused:
        return f"no file system in a file can be mounted here: {refused}"
    return ""
