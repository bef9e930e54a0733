"""Plans that all servers and workers of a simulation share: each would compile the same few playbooks again."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.playbook.compile.compiler import CheckResult, check
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec

PLAYBOOKS_KEPT: Final = 512


def check_once(
    text: str | bytes, kinds: Kinds, *, file: str = "<playbook>", limits: Limits = DEFAULT_LIMITS
) -> CheckResult:
    """As :func:`~noetl_stream.playbook.compile.compiler.check`; the same arguments give the same result again."""
    return _checked(text, tuple(kinds.items()), file, limits)


@lru_cache(maxsize=PLAYBOOKS_KEPT)
def _checked(text: str | bytes, kinds: tuple[tuple[str, KindSpec], ...], file: str, limits: Limits) -> CheckResult:
    return check(text, dict(kinds), file=file, limits=limits)
