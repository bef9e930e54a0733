"""Every example of the page about the command line does what it is there for, directly and through a gateway."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_stack import gateway_of

from effort import first_in_gate
from noetl_stream.cli.main import COMMANDS
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
EXAMPLES = [line for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
KEPT = re.compile(r"(\w+)=\$\((.+)\)")


@pytest.mark.parametrize("through", first_in_gate(["nothing", "a gateway"]))
def test_every_example_of_the_page_runs(shared_home: Path, tmp_path: Path, through: str) -> None:
    shutil.copytree(ROOT / "playbooks", tmp_path / "playbooks")
    target = {"NOETL_HOME": str(shared_home), "XDG_CONFIG_HOME": str(tmp_path)}
    if through == "a gateway":
        target |= {"NOETL_URL": gateway_of(shared_home)}
    known: dict[str, str] = {}
    for line in EXAMPLES:
        name, command = found.groups() if (found := KEPT.fullmatch(line)) else (None, line)
        words = shlex.split(re.sub(r"\$([A-Z]+)", lambda variable: known[variable[1]], command))
        assert words[0] == "noetl-stream"
        if words[2:3] == ["retry"] and not words[3].startswith("--"):
            assert noetl("execution", "wait", words[3], cwd=tmp_path, **target).returncode == 1
        ended = noetl(*words[1:], cwd=tmp_path, **target)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        if name is not None:
            known[name] = ended.stdout.strip()
    tokens = json.loads(noetl("token", "list", "-o", "json", **target).stdout)
    made = [token["id"] for token in tokens if token["name"] == "nightly" and not token["revoked"]]
    assert noetl("token", "revoke", *made, **target).returncode == 0


def test_the_page_shows_every_command() -> None:
    shown = {" ".join(re.findall(r"[a-z-]+", line.partition("noetl-stream ")[2])[:1]) for line in EXAMPLES}
    roles = {"setup", "dev", "server", "gateway", "database", "stream", "nats", "bench", "version"}
    # test_cli_deploy.py, test_cli_grant.py, test_cli_schedule.py, test_cli_trigger.py
    with_a_file = {"deploy", "grant", "pull", "schedule", "trigger"}
    # test_cli_doctor.py: it fails where other tests have left something to mend; journeys/test_journey_objects.py
    of_its_own = {"doctor", "objects"}
    assert shown | roles | with_a_file | of_its_own == set(COMMANDS)
    named = with_a_file | of_its_own
    assert all(f"`noetl-stream {command}" in PAGE or f"`{command}" in PAGE for command in named)
