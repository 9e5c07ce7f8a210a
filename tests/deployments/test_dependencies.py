"""Every package that the code imports is declared, and every one that is declared is imported."""

import subprocess
import sys
from pathlib import Path


def test_what_is_imported_is_declared():
    done = subprocess.run(
        [sys.executable, "-m", "deptry", "."], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
