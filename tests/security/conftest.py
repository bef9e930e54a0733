"""Tests here use the stages of other folders."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / area) for area in ("gateway",)]
