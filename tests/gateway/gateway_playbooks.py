"""Playbooks that the gateway's tests start."""

from __future__ import annotations

from pathlib import Path

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
APPROVAL = (PLAYBOOKS / "approval.yaml").read_text()
LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: loop, path: tests/loop, version: "1.0", labels: {team: sales}}
workflow:
  - step: start
    loop: {in: [1, 2, 3], iterator: item}
    tool: {kind: noop, args: {seen: "{{ iter.item }}"}}
"""
FAILS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: fails, path: tests/fails}
workflow:
  - step: start
    tool: {kind: noop, args: {seen: "{{ ctx.missing.key }}"}}
"""
LIMITED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: limited, path: tests/limited}
executor: {spec: {policy: {concurrency: {key: "{{ workload.customer }}", limit: 1}}}}
workload: {customer: customers/a}
workflow:
  - step: gate
    spec: {policy: {admit: {wait: {timeout_s: 3600}, rules: [{when: "{{ ctx.open == true }}", then: {allow: true}}]}}}
    tool: {kind: noop}
"""
HELD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: held, path: tests/held}
workflow:
  - step: start
    spec:
      policy:
        admit:
          wait: {timeout_s: 3600, on_timeout: fail}
          rules:
            - when: "{{ ctx.go is defined }}"
              then: {allow: true}
    tool: {kind: noop}
"""
