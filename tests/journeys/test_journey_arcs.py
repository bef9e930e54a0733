"""Admissions that add metadata, and arcs with keys and a priority, on real NATS and Postgres (LANGUAGE §4, §7)."""

from __future__ import annotations

import json

import pytest

from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import Start

pytestmark = pytest.mark.xdist_group("stack")

PATIENCE_S = 60.0
ORDERS = [
    {"id": 1, "customer": "ann"},
    {"id": 2, "customer": "bob"},
    {"id": 1, "customer": "ann"},
    {"id": 3, "customer": "ann"},
    {"id": 4, "customer": "ann"},
]


def playbook() -> str:
    """Bills each order once, those of a customer one after another; the admission says who looks at large ones."""
    first, rest = "{{ args.left[0] }}", "{{ args.left[1:] }}"
    keys = {"dedupe": "{{ args.left[0].id }}", "partition": "{{ args.left[0].customer }}", "priority": 8}
    rules = [
        {"when": "{{ args.order.id > 2 }}", "then": {"allow": True, "token": {"review": "{{ args.order.customer }}"}}},
        {"when": "{{ args.order.id > 3 }}", "then": {"allow": True, "token": {"size": "large"}}},
        {"else": {"then": {"allow": True, "token": {"size": "small"}}}},
    ]
    billed = {
        "op": "append",
        "value": "{{ [args.order.id, token.review | default(none), token.size | default(none)] }}",
    }
    policy = {"rules": [{"else": {"then": {"do": "continue", "set_shared": {"billed": billed}}}}]}
    task = {
        "kind": "python",
        "code": "result = order",
        "args": {"order": "{{ args.order }}"},
        "spec": {"policy": policy},
    }
    again = {"step": "each", "when": "{{ args.left | length > 1 }}", "args": {"left": rest}}
    workflow = [
        {"step": "start", "next": {"arcs": [{"step": "each", "args": {"left": "{{ workload.orders }}"}}]}},
        {
            "step": "each",
            "next": {
                "spec": {"mode": "inclusive"},
                "arcs": [{"step": "bill", "args": {"order": first}, "spec": keys}, again],
            },
        },
        {"step": "bill", "spec": {"policy": {"admit": {"mode": "inclusive", "rules": rules}}}, "tool": task},
    ]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "bill", "path": "tests/bill"}}
    return json.dumps({**head, "workload": {"orders": ORDERS}, "workflow": workflow})


async def test_each_order_is_billed_once_and_those_of_a_customer_one_after_another(operations: Operations) -> None:
    executions = operations.executions
    started = await executions.start(Start(playbook=playbook()), "token:ann")
    ended = await executions.wait(started.execution_id, PATIENCE_S)
    assert ended.status == "completed"
    assert sorted(ended.ctx["billed"]) == [
        [1, None, "small"],
        [2, None, "small"],
        [3, "ann", None],
        [4, "ann", "large"],
    ]
    of_ann = [one[0] for one in ended.ctx["billed"] if one[0] != 2]
    assert of_ann == [1, 3, 4]
    events = await executions.events(started.execution_id, 0, 1000)
    keys = [one.data["keys"] for one in events if one.name == "next.evaluated" and one.data.get("keys")]
    assert [one["0"] for one in keys] == ["1", "2", "1", "3", "4"]
    turns = [one.data["key"] for one in events if one.name == "slot.granted"]
    assert turns == ["ann", "ann"]
