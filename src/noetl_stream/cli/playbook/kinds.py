"""The tool kinds and limits by which a command reads playbooks here."""

from __future__ import annotations

import click

from noetl_stream.model.limits import Limits, operator_limits
from noetl_stream.playbook.kinds.spec import Kinds, unchecked_kind
from noetl_stream.settings.sources.environment import kinds_off, limit_settings
from noetl_stream.tools.registry import kinds_of, load_tools

kinds_option = click.option(
    "--kinds", "extra", default="", metavar="KIND,…", help="Accept these tool kinds although they are not installed."
)


def accepted(extra: str) -> tuple[Kinds, Limits]:
    """The tool kinds installed here, with those switched off by the environment, and of ``--kinds``; its limits."""
    foreign = {kind: unchecked_kind(kind) for kind in map(str.strip, extra.split(",")) if kind}
    return {**foreign, **kinds_of(load_tools(), kinds_off())}, operator_limits(limit_settings())
