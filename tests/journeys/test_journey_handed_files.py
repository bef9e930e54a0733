"""A file that is fetched once goes through a called playbook and a rerun to the folder of a person."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_stack import gateway_of

from cli_program import only_json
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

CONTENT = b"n,square\n" + b"".join(b"%d,%d\n" % (n, n * n) for n in range(500_000))  # two parts

COPY = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: copy, path: tests/copy-file }
executor: { spec: { result: { file: "{{ workload.file }}", sent: "{{ send }}" } } }
workflow:
  - step: send
    tool: { kind: http, method: PUT, url: "{{ workload.url }}", body: "{{ workload.file }}" }
"""
FETCH = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: fetch, path: tests/fetch-file }
executor: { spec: { result: "{{ copy }}" } }
workflow:
  - step: fetch
    tool: { kind: http, url: "{{ workload.url }}", into: file }
    next: { arcs: [ { step: copy } ] }
  - step: copy
    tool:
      kind: playbook
      path: tests/copy-file
      args: { file: "{{ fetch.file }}", url: "{{ workload.url }}" }
"""

TABLE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: table, path: tests/look-into-table }
workflow:
  - step: load
    tool:
      kind: duckdb
      command: select i as id, case when i % 2 = 1 then 'odd' end as name from range(40) t(i)
      into: table
"""


@contextmanager
def files_served() -> Iterator[tuple[str, list[bytes]]]:
    """Where the file is, and what has been put there."""
    put: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(CONTENT)

        def do_PUT(self) -> None:
            put.append(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(b"kept")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/squares.csv", put
        finally:
            server.shutdown()


def test_a_file_is_handed_on_and_comes_to_a_folder(shared_home: Path, tmp_path: Path) -> None:
    direct = {"NOETL_HOME": str(shared_home)}
    token = noetl("token", "create", "reader", "--role", "viewer", "--home", shared_home).stdout.strip()
    gateway = {"NOETL_URL": gateway_of(shared_home), "NOETL_TOKEN": token}

    def said(*words: str | Path, code: int = 0, **settings: str) -> Any:
        ended = noetl(*words, **(settings or direct))
        assert ended.returncode == code, (ended.stdout, ended.stderr)
        return ended

    for name, text in (("copy", COPY), ("fetch", FETCH)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        said("playbook", "register", file)
    with files_served() as (url, put):
        first = only_json(said("execution", "start", "tests/fetch-file", "--set", f"url={url}", "--wait", "-o", "json"))
        again = said("execution", "rerun", first["execution_id"], "copy", "--wait", "-o", "json")
        assert put == [CONTENT, CONTENT]
    folders = tmp_path / "direct", tmp_path / "gateway"
    said("execution", "result", first["execution_id"], "--to", folders[0])
    said("execution", "result", only_json(again)["execution_id"], "--to", folders[1], **gateway)
    for folder in folders:
        assert {path.name for path in folder.iterdir()} == {"result.json", "squares.csv"}
        assert (folder / "squares.csv").read_bytes() == CONTENT
    found = said("execution", "get", first["execution_id"]).stdout
    assert "squares.csv (" in found and "seal" not in found
    refused = said("execution", "result", first["execution_id"], "--to", folders[0], code=2)
    assert "nothing written, because these files exist" in refused.stderr
    said("execution", "delete", first["execution_id"])
    said("execution", "result", only_json(again)["execution_id"], "--to", folders[0], "--force")
    assert (folders[0] / "squares.csv").read_bytes() == CONTENT


def test_a_table_is_looked_into_where_a_step_returned_it(shared_home: Path, tmp_path: Path) -> None:
    (tmp_path / "table.yaml").write_text(TABLE)
    ran = noetl("execution", "start", tmp_path / "table.yaml", "--wait", "--home", shared_home, "-o", "name")
    assert ran.returncode == 0, ran.stderr
    found = noetl("execution", "table", ran.stdout.strip(), "load", "--rows", "1", "--home", shared_home)
    assert found.stdout.splitlines() == [
        "column  type     nulls  lowest  highest  values",
        "id      BIGINT   0      0       39       ████████████████████",
        "name    VARCHAR  20     odd     odd      █",
        "",
        "id  name",
        "0",
        "1 of 40 rows",
    ]
