"""The rights of callers: their roles, and the paths of playbooks that tokens and grants cover."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, get_args

Role = Literal["viewer", "operator", "author", "admin"]
ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "author", "admin")
"""The roles in order: each may do what those before it may. Viewers read; operators start executions and intervene;
authors register playbooks; admins keep credentials, tokens and the audit.
"""


def includes_role(role: Role, least: Role) -> bool:
    """Whether ``role`` includes the role ``least``."""
    return ROLES.index(role) >= ROLES.index(least)


GrantsDefault = Literal["everything", "own", "nothing"]
"""The rights of a playbook without a grant; ``own``: the resources of its namespace, in any pool and of any kind."""

GRANTS_DEFAULTS: Final[tuple[GrantsDefault, ...]] = get_args(GrantsDefault)

MAX_PATH_CHARS: Final = 512
"""The longest path. With four bytes a character it fits the narrowest index of a path, which takes 2,704 bytes."""


def covers(paths: Sequence[str], path: str) -> bool:
    """Whether a playbook's path is one of ``paths`` or below one: ``team/a`` covers ``team/a/b``, but not ``team/ab``.

    Without ``paths`` every path is covered.
    """
    return not paths or any(path == one or path.startswith(f"{one}/") for one in paths)


@lru_cache(maxsize=4096)  # asked several times for each step
def namespace_of(path: str, namespaces: tuple[str, ...] = ()) -> str:
    """Returns the namespace of a playbook's path: the longest of ``namespaces`` that covers it, else its first part."""
    covering = [namespace for namespace in namespaces if covers((namespace,), path)]
    return max(covering, key=len) if covering else path.partition("/")[0]


def has_valid_segments(path: str) -> bool:
    """Whether all segments of a path are names: none is empty, ``.`` or ``..``."""
    return all(name not in ("", ".", "..") for name in path.split("/"))
