"""Work on a Dask cluster: `run.engine: dask`, and `run.address` of its scheduler; without one, one of this machine.

pip install 'datamask[dask]'
python examples/dask_cluster.py [FOLDER] [tcp://SCHEDULER:8786]
"""

import sys
from pathlib import Path

from made_corpus import SMALL, write_dump

from datamask import curate


def main(folder: Path, address: str | None = None) -> None:
    for dump in ("CC-2026-01", "CC-2026-02"):
        write_dump(folder / "dumps", dump, 60)
    run = {"engine": "dask", "address": address, "workers": 2}
    release = curate(folder / "dumps", folder / "out", config=SMALL, corpus={"group_bytes": 0}, run=run)
    print(release)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/dask_cluster"), *sys.argv[2:3])
