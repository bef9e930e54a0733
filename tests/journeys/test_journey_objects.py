"""A stack whose files, tables and large results are in a bucket, which its worker has no key of."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest
from journey_stack import NOETL, ROOT

from cli_program import only_json
from homes import copy_home, folder_for_home
from noetl_stream.local.processes import choose_port
from object_storage import object_storage
from warm_program import noetl

ROWS, KEPT = 500_000, ["0", "0", "0", "1", "2", "head"]
BOTH, BUCKET = re.findall(
    r"^NOETL_OBJECTS=(\S+)$", (ROOT / "docs" / "how-to" / "keep-objects-in-a-bucket.md").read_text(), re.MULTILINE
)
"""What the page sets first, and then."""
AWAY_FOR = 10
"""The requests that a bucket refuses while it is away."""
LOST = ("result_lost", "the file squares.csv is lost: the object store has nothing")
JOIN = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: join, path: tests/objects-join }
executor: { spec: { result: { rows: "{{ (count.table | head(10))[0].found }}", long: "{{ large | length }}" } } }
workflow:
  - step: fetch
    tool: { kind: http, url: "{{ workload.url }}", into: file }
    next: { arcs: [ { step: large } ] }
  - step: large
    tool: { kind: python, code: "result = 'x' * 200_000" }
    next: { arcs: [ { step: count } ] }
  - step: count
    tool:
      kind: duckdb
      tables: { squares: "{{ fetch.file }}" }
      command: select count(*) as found from squares
      into: table
"""
THIEF = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: thief, path: tests/objects-thief }
keychain: [ { name: bucket, kind: env, variable: AWS_SECRET_ACCESS_KEY } ]
workflow:
  - step: steal
    tool: { kind: http, url: "http://127.0.0.1:1", auth: "{{ keychain.bucket }}" }
"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of an HTTP server of the files in a folder."""
    serving = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def running(home: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """A stack in a home, with these settings."""
    command = [*NOETL, "dev", "--home", str(home), "--gateway-port", str(choose_port())]
    environment = {**os.environ, **settings}
    process = subprocess.Popen(command, stdout=PIPE, stdin=DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None and "is running" in process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.xdist_group("own_stacks")
def test_a_stack_whose_worker_has_no_key_of_the_bucket_waits_for_it_and_names_what_is_lost_in_it(
    used_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "squares.csv").write_text("n,square\n" + "".join(f"{n},{n * n}\n" for n in range(ROWS)))
    for name, text in (("join", JOIN), ("thief", THIEF)):
        (tmp_path / f"{name}.yaml").write_text(text)
    with folder_for_home("objects") as folder, object_storage() as storage, served(tmp_path) as url:
        home = copy_home(used_home, folder / "home")
        (storage.folder / "objects").mkdir()
        settings = {"NOETL_HOME": str(home), "NOETL_OBJECTS": BUCKET, **storage.variables()}

        def kept() -> list[str]:
            """The names of what is in the bucket, besides the sources of playbooks on their way."""
            files = [path for path in (storage.folder / "objects" / "noetl").rglob("*") if path.is_file()]
            return sorted(path.name for path in files if path.parent.name != "playbook")

        with running(home, settings):
            run = partial(
                noetl, "run", tmp_path / "join.yaml", "--set", f"url={url}/squares.csv", "-o", "json", **settings
            )
            execution = only_json(run())
            assert execution["result"] == {"rows": ROWS, "long": 200_000}
            assert kept() == KEPT, "a large result, a table and its first rows, and the parts of a file"

            refusals = iter(range(AWAY_FOR))
            storage.refused = lambda _method, _path: next(refusals, None) is not None
            waited = only_json(run())
            assert next(refusals, None) is None and waited["result"] == execution["result"]
            assert noetl("execution", "delete", waited["execution_id"], **settings).returncode == 0
            assert kept() == KEPT

            refused = noetl("run", tmp_path / "thief.yaml", **settings)
            assert "the variable AWS_SECRET_ACCESS_KEY is not set for this worker" in refused.stdout + refused.stderr
            checked = noetl("doctor", **settings)
            assert f"can be written, read and deleted in {BUCKET}, nats" in checked.stdout
            moved = noetl("objects", "move", **{**settings, "NOETL_OBJECTS": BOTH})
            assert (moved.stdout[:17], kept()) == (f"moved {len(KEPT)} objects, ", []), moved.stderr
            assert noetl("objects", "move", **settings).stdout == moved.stdout
            assert kept() == KEPT

            (part,) = [path for path in (storage.folder / "objects").rglob("*/1") if path.is_file()]
            storage.delete("objects", part.relative_to(storage.folder / "objects").as_posix())
            again = noetl("execution", "rerun", execution["execution_id"], "count", "--wait", "-o", "json", **settings)
            failed = only_json(again)
            assert (failed["error"]["kind"], failed["error"]["message"].partition(" under ")[0]) == LOST
            deleted = noetl("execution", "delete", execution["execution_id"], failed["execution_id"], **settings)
            assert (deleted.returncode, kept()) == (0, []), deleted.stderr
