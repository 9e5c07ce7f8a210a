"""What is compiled when datamask is installed is all that the default pipeline calls."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
from datamask.precompile import precompile
from datamask.corpus import word_hashes
from datamask.models import word_loops
from datamask.quality import inner_loops
from datamask.selection.cover import compiled
# called by others and compiled with them
INNER = ("pair_slot", "mixed", "mix", "gain", "move", "allowed", "book", "_sift_down")
precompile()
for module in (word_hashes, word_loops, inner_loops, compiled):
    for name, found in vars(module).items():
        if hasattr(found, "signatures") and not found.signatures and name not in INNER:
            print(module.__name__, name)
"""


@pytest.mark.slow  # where nothing is compiled yet
def test_every_loop_is_compiled() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
