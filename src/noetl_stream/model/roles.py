"""Roles of whoever calls a gateway."""

from __future__ import annotations

from typing import Final, Literal

Role = Literal["viewer", "operator", "author", "admin"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "author", "admin")
"""The roles in order: each may do what those before it may. Viewers read; operators start executions and intervene;
authors register playbooks; admins keep credentials, tokens and the audit.
"""


def includes_role(role: Role, least: Role) -> bool:
    """Whether ``role`` includes the role ``least``."""
    return ROLES.index(role) >= ROLES.index(least)
