"""Functions that tests run as tasks with tables of pandas, whose import takes a while."""

from __future__ import annotations

import pandas as pd


def total(orders: pd.DataFrame) -> int:
    return int(orders["amount"].sum())


def frame() -> pd.DataFrame:
    return pd.DataFrame({"a": [1]})
