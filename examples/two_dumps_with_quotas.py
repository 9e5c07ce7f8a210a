"""Two dumps as one pool, with a bound on the share of a source in the selection.

python examples/two_dumps_with_quotas.py [FOLDER]
"""

import sys
from collections import Counter
from pathlib import Path

from made_corpus import SMALL, write_dump

from datamask import curate


def main(folder: Path) -> None:
    dumps = [write_dump(folder / "dumps", dump) for dump in ("CC-2026-01", "CC-2026-02")]
    quota = {"column": "source", "maximum": {"law": 0.1}, "minimum": {"sea": 0.3}}
    release = curate(dumps, folder / "out", config=SMALL, select={"quotas": [quota]})
    table = release.dataset(library="pyarrow").to_table(["source", "dump"])
    print(len(table), Counter(table["source"].to_pylist()), Counter(table["dump"].to_pylist()))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/two_dumps_with_quotas"))
