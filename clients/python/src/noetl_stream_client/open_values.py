"""Values of which a newer gateway may have more."""

from __future__ import annotations


class AnyText:
    """A text in place of ``Literal`` when documents are read."""

    def __class_getitem__(cls, values: object) -> object:
        found = values if isinstance(values, tuple) else (values,)
        return str if all(isinstance(one, str) for one in found) else object
