import sys
from pathlib import Path

# The load and the ledger of rolling upgrades serve here, too.
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "releases")]
