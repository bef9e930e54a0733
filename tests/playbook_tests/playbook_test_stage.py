"""Runs test documents that a test writes beside a playbook."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from textwrap import dedent, indent

from noetl_stream.playbook_tests.loading import LoadedDocument, load
from noetl_stream.playbook_tests.run import TestOutcome, TestRunner
from noetl_stream.tools.registry import load_tools

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: p, path: tests/p }\n"
TESTS = "apiVersion: noetl.io/v2\nkind: PlaybookTest\n"

FETCH = """
    workflow:
      - step: fetch
        tool:
          name: get
          kind: http
          url: "https://example.com/{{ workload.id }}"
          spec:
            policy:
              rules:
                - when: "{{ outcome.status == 'error' and outcome.error.retryable }}"
                  then: { do: retry, attempts: 4, backoff: exponential, delay: 10 }
                - when: "{{ outcome.status == 'error' }}"
                  then: { do: fail, set_ctx: { seen: "{{ outcome.http.status }}" } }
        next:
          arcs:
            - { step: use, when: "{{ event.name == 'step.done' }}" }
            - { step: mend, when: "{{ event.name == 'step.failed' and event.error.kind == 'http_status' }}" }
      - step: use
        tool: { kind: noop, args: { got: "{{ fetch.data }}" } }
      - step: mend
        tool: { kind: noop, args: { mended: "{{ ctx.seen }}" } }
    workload: { id: 7 }
"""
"""A request that is retried, and what follows from its end."""


@cache
def runner(seed: int = 0) -> TestRunner:
    return TestRunner(load_tools(), seed=seed)


def written(folder: Path, playbook: str, tests: str, name: str = "p") -> Path:
    """Writes both; returns the test document. ``tests`` is the list, or the document after its head."""
    (folder / f"{name}.yaml").write_text(HEAD + dedent(playbook))
    tests = dedent(tests).strip("\n")
    listed = f"tests:\n{indent(tests, '  ')}" if tests.startswith("-") else tests
    document = folder / f"{name}.test.yaml"
    document.write_text(f"{TESTS}{listed}\n")
    return document


def loaded(folder: Path, playbook: str, tests: str) -> LoadedDocument:
    return load(written(folder, playbook, tests), runner().compiled.kinds, runner().compiled.limits)


def ran(folder: Path, playbook: str, tests: str, seed: int = 0) -> list[TestOutcome]:
    """The outcomes of valid tests."""
    document = loaded(folder, playbook, tests)
    assert document.diagnostics == (), "\n".join(one.render() for one in document.diagnostics)
    return [runner(seed).run(test) for test in document.tests]


def problems(folder: Path, playbook: str, tests: str) -> list[str]:
    """What the tests find wrong, without places."""
    return [problem.message for outcome in ran(folder, playbook, tests) for problem in outcome.problems]
