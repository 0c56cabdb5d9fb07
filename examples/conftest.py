"""Let the tests of an example import it by its name, as `python -m` does from this folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
