"""Words for hints: the known word that is nearest to a wrong one, and names in a list."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final

MAX_COMPARED: Final = 500
MAX_LISTED: Final = 20
REMEMBERED: Final = 100
MISSPELT: Final = 0.8
"""The least likeness, from 0 to 1, of a misspelt key: met by ``knd`` and ``kind``, not by ``args`` and ``arcs``."""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The hint ``did you mean `x`?`` for the closest known word, or ``None``."""
    near = nearest(word, known)
    return f"did you mean `{near}`?" if near else None


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known word closest to ``word``, or ``None``. Ignores case and treats ``-`` and ``_`` alike.

    Compares the first :data:`MAX_COMPARED` known words only, to bound the cost.
    """
    return _nearest(word, tuple(islice(known, MAX_COMPARED)), likeness)


def correct_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` misspells, if they are so close that it is read instead; or ``None``."""
    return nearest(word, known, likeness=MISSPELT)


@lru_cache(maxsize=REMEMBERED)
def _nearest(word: str, known: tuple[str, ...], likeness: float) -> str | None:
    from difflib import get_close_matches  # only for a mistake

    folded = {name.lower().replace("-", "_"): name for name in known}
    close = get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=likeness)
    return folded[close[0]] if close else None


def list_names(names: Iterable[str]) -> str:
    """Lists names for a message: `` `a`, `b` ``, at most :data:`MAX_LISTED` of them."""
    shown = [f"`{name}`" for name in names]
    return ", ".join(shown[:MAX_LISTED]) + (f" and {len(shown) - MAX_LISTED} more" if len(shown) > MAX_LISTED else "")
