"""Makes the short ways and stages of the other areas importable, for tests that fill gaps of the table."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / area) for area in ("engine", "playbook", "worker", "cli")]
