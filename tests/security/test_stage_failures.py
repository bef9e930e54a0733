"""A root for children that cannot be made whole, at whatever call: the files of the system stay as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from effort import first_in_gate
from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children import mounts
from noetl_stream.tools.children.confinement import go_apart, stage_of
from noetl_stream.tools.children.measures import confinement_of
from noetl_stream.tools.children.mounts import remove_folder
from noetl_stream.tools.children.view import clear_stage

MOST_CALLS = 1_000

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or confinement_of(ChildSettings()).level != "full", reason="nothing is mounted here"
)


def end_of_zygote(settings: ChildSettings, homes: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> bool:
    """Does what a zygote does from its start to its end, in a process. Returns whether everything was mounted."""
    zygote = os.fork()
    if zygote == 0:
        left, check = [fails_at], mounts.check_result

        def check_or_fail(result: int) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise OSError("the kernel refuses it")
            check(result)

        monkeypatch.setattr(mounts, "check_result", check_or_fail)
        is_whole = False
        try:
            go_apart(settings, str(homes))
            is_whole = True
        except OSError:
            pass
        finally:
            if clear_stage(stage_of(str(homes))):
                remove_folder(str(homes))
            os._exit(0 if is_whole else 1)
    return os.waitstatus_to_exitcode(os.waitpid(zygote, 0)[1]) == 0


@pytest.mark.parametrize("granted", first_in_gate(["around", "beside"]))
def test_files_of_the_system_outlive_a_stage_that_fails_at_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, granted: str
) -> None:
    """Folders stand for those of the system: one that tasks may write to, perhaps with the homes of children in it."""
    system = tmp_path / "system"
    system.mkdir()
    (system / "file").write_text("kept")
    paths = (str(system if granted == "beside" else tmp_path),)
    for fails_at in range(1, MOST_CALLS):
        homes = tmp_path / f"homes-{fails_at}"
        (homes / "1").mkdir(parents=True)
        (homes / "1" / "left").write_text("by a task")
        is_whole = end_of_zygote(ChildSettings(paths=paths), homes, monkeypatch, fails_at)
        assert (system / "file").read_text() == "kept"
        assert Path(sys.executable).exists()
        if is_whole and not homes.exists():
            return
        remove_folder(str(homes))
    pytest.fail("it never was whole")
