"""The embedded stack of a client: started where none runs, used where one does, ended with what started it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_program import all_gone, environment, processes_of
from homes import copy_home, folder_for_home
from noetl_stream_client import Client, LocalStackError
from noetl_stream_client.gateways import local_gateways

HELLO = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: hello, path: tests/hello }
workload: { name: nobody }
workflow:
  - step: greet
    tool: { kind: python, args: { name: "{{ workload.name }}" }, code: "print('hello', name)\\nreturn len(name)" }
"""
PROGRAM = """
import json, sys
from noetl_stream_client import Client

client = Client.local(home=sys.argv[1])
hello = client.start(playbook=sys.argv[2], workload={"name": "Ada"})
lines = [line.text for line in hello.logs(follow=True)]
print(json.dumps([client.gateway.url, hello.id, hello.result(), lines]), flush=True)
sys.stdin.read()
"""


@pytest.mark.xdist_group("stack")
def test_a_stack_is_started_shared_and_ends_with_the_program_that_started_it(used_home: Path) -> None:
    with folder_for_home("client") as folder:
        home = copy_home(used_home, folder / "home")
        command = [sys.executable, "-c", PROGRAM, str(home), HELLO]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as program:
            assert program.stdout is not None
            url, id, result, lines = json.loads(program.stdout.readline())
            assert result == 3
            assert "hello Ada" in lines
            with Client.local(home=str(home)) as other:
                assert other.gateway.url == url
                assert other.execution(id).result() == result
            assert [one.url for one in local_gateways(home)] == [url], "another client that is closed leaves it"
            processes = processes_of(home)
            program.kill()
        assert processes and all_gone(processes)
        assert local_gateways(home) == []


def test_a_stack_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalStackError, match=r"the embedded stack in .*/file did not start: .*file"):
        Client.local(home=str(tmp_path / "file"))
