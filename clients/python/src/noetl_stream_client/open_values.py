"""Values that a newer gateway may have more of."""

from __future__ import annotations


class AnyText:
    """Stands for ``Literal`` where documents are read."""

    def __class_getitem__(cls, values: object) -> object:
        found = values if isinstance(values, tuple) else (values,)
        return str if all(isinstance(one, str) for one in found) else object
