"""The pages move-files.md and react-to-new-files.md, followed on a stack of their own with an S3 server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from journey_stack import ROOT
from walkthrough import Step, Walkthrough, free_ports, steps

from homes import copy_home, folder_for_home
from object_storage import SECRET_KEY, object_storage
from warm_program import write_script

HIDDEN = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{ name: hidden, path: guides/hidden }}
workflow:
  - step: ask
    tool: {{ kind: files, stat: "s3://reports/of {SECRET_KEY}.csv", auth: reports_bucket }}
"""
AWAY = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: away, path: guides/away }
workflow:
  - step: ask
    tool:
      kind: files
      stat: s3://reports/2026/orders.csv
      auth: reports_bucket
      spec:
        policy:
          rules:
            - when: "{{ outcome.status == 'error' and outcome.error.retryable }}"
              then: { do: retry, attempts: 10, delay: 0.1 }
            - when: "{{ outcome.status == 'error' }}"
              then: { do: fail }
"""
GUIDES = ROOT / "docs" / "how-to"


@pytest.mark.xdist_group("own_stacks")
def test_the_pages_lead_to_reports_in_a_bucket_and_to_a_schedule_that_sees_what_arrives(
    used_home: Path, tmp_path: Path
) -> None:
    programs = f"{write_script(tmp_path).parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    with folder_for_home("files") as folder, object_storage() as storage:
        for name in ("reports", "mirror"):
            (storage.folder / name).mkdir()
        (folder / "inbox").mkdir()
        home = copy_home(used_home, folder / "home")
        (port,) = free_ports(1)
        elsewhere = {"http://127.0.0.1:9000": storage.url, "8080": port, "/srv/inbox": str(folder / "inbox")}
        environment = {"HOME": str(folder), "NOETL_HOME": str(home), "PATH": programs, "PYTHONUNBUFFERED": "1"}
        with Walkthrough(tmp_path, environment, elsewhere) as reader:
            for page in ("move-files.md", "react-to-new-files.md"):
                text = (GUIDES / page).read_text()
                for step in steps(text):
                    if not step.installs:
                        reader.do(step)
            reader.do(Step(HIDDEN, file="hidden.yaml"))
            reader.do(Step("noetl-stream run hidden.yaml", exit_code=1, shown="…s3://reports/of ***.csv is not there…"))
            refusals = iter(range(10))
            storage.refused = lambda _method, _path: next(refusals, None) is not None
            reader.do(Step(AWAY, file="away.yaml"))
            reader.do(Step("noetl-stream run away.yaml", shown="…\ncompleted…"))
            assert next(refusals, None) is None
        log = b"".join(file.read_bytes() for file in home.rglob("*.log"))
        assert SECRET_KEY.encode() not in log
