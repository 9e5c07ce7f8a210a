"""A corpus that grows: `refresh` reads what is new, embeds that alone, and publishes the next release.

python examples/nightly_refresh.py [FOLDER]
"""

import sys
from pathlib import Path

from made_corpus import SMALL, write_dump

from datamask import curate, refresh


def main(folder: Path) -> None:
    write_dump(folder / "dumps", "CC-2026-01")
    first = curate(folder / "dumps", folder / "out", config=SMALL)
    again = refresh(folder / "out")
    print(again.version == first.version, "nothing new, no new release")
    write_dump(folder / "dumps", "CC-2026-02")
    second = refresh(folder / "out")
    print(first.counts["rows"], "documents,", second.counts["rows"], "after the refresh;", second.version)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/nightly_refresh"))
