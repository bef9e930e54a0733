"""Where each command of the how-to guides is run: a block without an entry here fails a test.

``bash`` blocks of a page are run in order, so a page has one entry for all of them. A ``text`` block that is no output
has one of its own, by its first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from journey_stack import ROOT
from walkthrough import BLOCK

GUIDES: Final = ROOT / "docs" / "how-to"


class Stage(StrEnum):
    """What commands are run on."""

    EMBEDDED = "test_journey_guides.py: the embedded stack, in the gate"
    OWN = "test_journey_own_guides.py: own stores with accounts, two servers, three workers, a gateway"
    STOPPED = "test_journey_own_guides.py: as OWN, with servers that are stopped, or stores that are lost"
    CLUSTER = "test_journey_own_guides.py: a cluster of three nats-servers with accounts"
    KUBERNETES = "deploy/test_guide_commands.py: kubectl and helm take it, and no cluster answers"
    POSTGRES = "deploy/test_guide_commands.py: a Postgres"


EVERYWHERE: Final = (Stage.EMBEDDED, Stage.OWN)

PAGES: Final[Mapping[str, tuple[Stage, ...] | str]] = {
    **dict.fromkeys(
        (
            *("approval.md", "back-up-and-restore.md", "declare-inputs.md", "disaster.md", "drain-a-node.md"),
            *(
                "examples.md",
                "find-an-execution.md",
                "find-out-why.md",
                "give-access.md",
                "let-an-agent-work.md",
                "limit-concurrency.md",
            ),
            *("notify.md", "page-an-api.md", "prioritize.md", "production.md", "quantum.md", "read-logs.md"),
            *(
                "rerun.md",
                "retention.md",
                "rotate.md",
                "run-for-a-date.md",
                "run-on-a-schedule.md",
                "scale.md",
                "secrets.md",
            ),
            *("set-up-an-editor.md", "start-on-events.md", "test-a-playbook.md", "trace-executions.md"),
            *("undo.md", "upgrade-playbooks.md", "upgrade.md"),
        ),
        EVERYWHERE,
    ),
    "move-data.md": (Stage.EMBEDDED,),  # it names the database of the embedded stack
    "use-http.md": (Stage.OWN,),  # and gateway/test_gateway_docs.py, on the embedded stack
    "run-in-containers.md": "deploy/test_compose_page.py",
    "run-with-systemd.md": "deploy/test_systemd_units.py",
    "own-servers.md": "journeys/test_journey_tutorials.py",  # as each stage OWN does, with accounts
    "move-to-another-cluster.md": "journeys/test_journey_move.py",
    "deploy-a-project.md": "journeys/test_journey_deploy.py",
    "call-a-function.md": "journeys/test_journey_functions.py",
    "move-files.md": "journeys/test_journey_files.py",
    "react-to-new-files.md": "journeys/test_journey_files.py",
    "write-a-tool-kind.md": "journeys/test_journey_tool_kind.py",
    "release.md": "quality/test_quality_contributing.py",  # it tags and pushes
}
"""The stages of a page's ``bash`` blocks, or the test of another folder that follows it."""

TEXTS: Final[Mapping[str, Mapping[str, Stage | str]]] = {
    "back-up-and-restore.md": {
        "noetl-stream backup create s3://backups/noetl --name nightly": Stage.OWN,
        "17 2 * * * noetl-stream backup create s3://backups/noetl": Stage.OWN,
        "kubectl -n noetl create secret generic": Stage.KUBERNETES,
        "createdb noetl": Stage.STOPPED,
        "mkdir -m 700 restored": "store/test_backups.py",
        "pg_basebackup": Stage.POSTGRES,
        "cp -a /base": "store/test_point_in_time.py",
        "noetl-stream stream delete EVENTS": "store/test_point_in_time.py",
    },
    "disaster.md": {
        "noetl-stream backup list": Stage.STOPPED,
        "noetl-stream database migrate": Stage.STOPPED,
        "noetl-stream stream ensure": Stage.STOPPED,
        "noetl-stream backup verify": Stage.STOPPED,
    },
    "drain-a-node.md": {"systemctl stop": "deploy/test_systemd_units.py"},
    "give-access.md": {
        "noetl-stream grant apply": Stage.OWN,
        "noetl-stream grant get": Stage.OWN,
    },
    "keep-objects-in-a-bucket.md": {"noetl-stream objects move": "journeys/test_journey_objects.py"},
    "move-to-another-cluster.md": {"noetl-stream database migrate --roles": Stage.OWN},
    "own-servers.md": {
        "noetl-stream nats accounts --pool default": Stage.OWN,
        "NOETL_NATS_NKEY=": Stage.OWN,
        "noetl-stream nats accounts --trigger-stream ORDERS": Stage.OWN,
        "noetl-stream database migrate --roles": Stage.OWN,
        "CREATE ROLE": Stage.POSTGRES,
    },
    "production.md": {"noetl-stream worker --pool gpu": Stage.OWN},
    "retention.md": {
        "noetl-stream execution list --archive": "store/test_archive.py",
        "NOETL_ARCHIVE_TRUSTED_KEYS=": "store/test_archive.py",
        "47 * * * * noetl-stream retention apply": Stage.OWN,
    },
    "rotate.md": {"CREATE USER": Stage.POSTGRES, "nats-server --signal reload": Stage.OWN},
    "run-on-clusters.md": {"noetl-stream stream ensure": Stage.CLUSTER},
    "run-on-kubernetes.md": {
        "kubectl create namespace nats": Stage.KUBERNETES,
        "noetl-stream nats accounts --pool default": Stage.KUBERNETES,
        "kubectl create namespace postgres": Stage.KUBERNETES,
        "kubectl --namespace noetl create secret generic noetl-keys": Stage.KUBERNETES,
        "helm upgrade --install noetl": Stage.KUBERNETES,
        "helm template noetl": Stage.KUBERNETES,
        "helm --namespace noetl test": Stage.KUBERNETES,
        "NOETL_TOKEN=": "deploy/test_rendered_cluster.py",
        "kubectl --namespace noetl exec": Stage.KUBERNETES,
        "helm upgrade noetl": Stage.KUBERNETES,
        "kubectl --namespace noetl delete job": Stage.KUBERNETES,
    },
    "scale.md": {
        "noetl-stream database repartition 64": Stage.STOPPED,
        "noetl-stream database migrate": Stage.STOPPED,
    },
    "start-on-events.md": {"NOETL_TRIGGER_STREAMS=VISITS noetl-stream dev": "conftest.py"},
    "upgrade.md": {"noetl-stream nats accounts": Stage.OWN},
}
"""By page and how its first line begins, the stage of each ``text`` block that is no output, or the test of another
folder that does what it says.
"""

SHOWN: Final = {
    ("run-on-clusters.md", "stream"): "cli/test_cli_own_servers.py compares the columns",
    ("run-on-kubernetes.md", "…"): "deploy/test_kubernetes_docs.py compares it with what Helm says",
}
"""``text`` blocks that are output, by their first word, and what compares it."""

SETTING: Final = re.compile(r"[A-Z][A-Z0-9_]*=\S.*|\w+ = .+")


def typed_texts(page: Path) -> Iterator[str]:
    """The first lines of a page's ``text`` blocks that have commands: those that follow ``bash`` are its output."""
    text, end, before = page.read_text(), 0, ""
    for block in BLOCK.finditer(text):
        is_output = before == "bash" and not text[end : block.start()].strip()
        is_output |= (page.name, block["text"].split()[0]) in SHOWN
        lines = block["text"].splitlines()
        has_commands = any(" noetl-stream " in line or not SETTING.fullmatch(line) for line in lines)
        if block["info"] == "text" and not is_output and has_commands:
            yield lines[0]
        end, before = block.end(), block["info"]


def typed_on(stage: Stage, name: str) -> list[str]:
    """The first lines of a page's ``text`` blocks that this stage runs."""
    known = TEXTS.get(name, {})
    return [
        line for line in typed_texts(GUIDES / name) if stage in {known[one] for one in known if line.startswith(one)}
    ]
