"""Failed iterations that the loops of an execution tolerated, in words (LANGUAGE §6 *Failure*)."""

from __future__ import annotations

from noetl_stream.model.events import ToleratedFailures


def tolerated_text(failures: ToleratedFailures) -> str:
    """Such as ``4 of 200 iterations of fetch failed``; of nested loops, the innermost iterations too."""
    failed, leaves, step = failures.failed, failures.failed_leaves, failures.step
    if not failed:
        return f"{_iterations(leaves, 'innermost ')} of {step} failed"
    innermost = f", {_iterations(leaves, 'innermost ')}" if leaves != failed else ""
    return f"{failed} of {_iterations(failures.count)} of {step} failed{innermost}"


def _iterations(number: int, which: str = "") -> str:
    return f"{number} {which}iteration{'' if number == 1 else 's'}"
