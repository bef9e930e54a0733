"""docs/reference/limits.md is correct: every limit, its default, its unit and what it bounds, as in the code."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

from noetl_stream.model.limits import DEFAULT_LIMITS, NAMES, Limits

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
UNITS = {"bytes": "bytes of JSON", "s": "seconds", "chars": "characters", "bits": "bits", "items": "elements"}
FIXED_MODULES = tuple(
    f"noetl_stream.{name}"
    for name in (
        "playbook.yaml.source",
        "playbook.model.loop",
        "playbook.check.templates",
        "engine.runner.runner",
        "worker.worker_limits",
        "ports.streams.task_logs",
        "ports.stores.dead_letters",
        "operations.views.index",
        "model.secrets.credential",
        "adapters.nats.event_log",
        "adapters.nats.commands.command_source",
        "server.ticks.publications",
        "server.answers.credential_values",
        "operations.executions.redacted",
        "storage.used_secrets",
        "ports.stores.credentials",
    )
)


def described() -> dict[str, str]:
    """The docstring's text for each limit."""
    attributes = (inspect.getdoc(Limits) or "").split("Attributes:\n")[1]
    found = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def row(name: str, text: str) -> str:
    default = getattr(DEFAULT_LIMITS, name)
    shown = f"{default:,}" if isinstance(default, int) else f"{default:g}"
    return f"| `{name}` | {shown} | {UNITS.get(name.rpartition('_')[2], '')} | {text} |".replace("|  |", "| |")


def test_every_limit_is_described_where_it_is_defined() -> None:
    assert tuple(described()) == NAMES


def test_the_page_has_exactly_the_limits_with_default_unit_and_meaning() -> None:
    expected = [row(name, text) for name, text in described().items()]
    found = [line for line in PAGE.split("\n## ")[0].splitlines() if line.startswith("| `")]
    assert found == expected, "docs/reference/limits.md needs these rows:\n" + "\n".join(expected)


def fixed() -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| ([\d,.]+) \|", PAGE.split("\n## Fixed limits\n")[1], re.MULTILINE))


def test_the_page_has_every_fixed_limit_of_playbooks_and_workers_with_its_value() -> None:
    values = {
        name.lower(): f"{value:,}"
        for module in map(import_module, FIXED_MODULES)
        for name, value in vars(module).items()
        if name.startswith("MAX_")
    }
    assert fixed() == values
