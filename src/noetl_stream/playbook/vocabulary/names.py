"""Which names a playbook may give, and which names its templates may use (LANGUAGE §1, §2)."""

from __future__ import annotations

import re
from typing import Final

from noetl_stream.playbook.diagnostics import Location, Problems

_STATE: Final = frozenset(["workload", "ctx", "vars", "iter", "args", "keychain", "execution_id", "steps", "results"])
_MOMENT: Final = frozenset(["_prev", "_task", "_attempt", "outcome", "event", "token"])
NAMESPACES: Final = _STATE | _MOMENT

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
LONGEST_NAME: Final = 128


def check_name(name: str, what: str, at: Location, problems: Problems) -> bool:
    """Whether ``name`` may be given to a step, task or iterator; says why not.

    Args:
        what: What is named, as in ``a step's name``.
    """
    if not check_identifier(name, what, at, problems):
        return False
    if name in NAMESPACES:
        problems.error("reserved_name", f"{what} cannot be `{name}`, that is a namespace of templates", at)
        return False
    if "__" in name:
        hint = "`__` marks generated names"
        problems.error("reserved_name", f"{what} cannot hold two underscores in a row, as `{name}` does", at, hint)
        return False
    return True


def check_identifier(name: str, what: str, at: Location, problems: Problems) -> bool:
    """Whether ``name`` can be written after a dot in a template; says why not."""
    if not _IDENTIFIER.match(name):
        suggestion = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
        fits = suggestion and not suggestion[0].isdigit()
        hint = f"write `{suggestion}`" if fits else "a letter or `_` first, then letters, digits and `_`"
        problems.error("invalid_name", f"{what} must match [A-Za-z_][A-Za-z0-9_]*, `{name}` does not", at, hint)
        return False
    if len(name) > LONGEST_NAME:
        problems.error("invalid_name", f"{what} has {len(name)} characters, the limit is {LONGEST_NAME}", at)
        return False
    return True
