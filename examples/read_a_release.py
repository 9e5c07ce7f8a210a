"""What a release holds, and how to ask it why a document is in or is not.

python examples/read_a_release.py [FOLDER]
"""

import sys
from pathlib import Path

import duckdb
from made_corpus import SMALL, write_dump

from datamask import Release, curate


def main(folder: Path) -> None:
    curate(write_dump(folder / "dumps"), folder / "out", config=SMALL, filter={"min_tokens": 95})
    release = Release(folder / "out")  # its latest
    print(release, release.verify() or "verified")
    print("objective", release.certificate["objective"], "at most", release.certificate["upper_bound"])
    for row in release.dataset(library="pyarrow").head(2).to_pylist():
        print(row["id"], row["quality_score"], row["text"][:40])
    decisions = release.decisions()
    print(duckdb.sql("select outcome, reason, count(*) from decisions group by all order by all"))
    fell = next(row for row in decisions.to_pylist() if row["outcome"] == "filtered")
    print(release.explain(fell["id"])[0]["decision"])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/read_a_release"))
