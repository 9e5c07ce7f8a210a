"""What becomes of every way that real files are broken: a row per file, its outcome and its reason.

    python benchmarks/dirty_files.py ../shared/data/real/dirty

Each file is read as a corpus of its own. Of a file in a format that is not read, the bytes are tried as the one
document of a parquet file too (`as a row`).
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datamask.config import Config, Corpus
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.shards import plan_shards
from datamask.errors import DatamaskError
from datamask.models.encoder_ref import EncoderRef


@dataclass(frozen=True)
class Outcome:
    """What became of a file."""

    file: str
    outcome: str  # documents, failed, no rows, not read
    rows: int
    documents: int
    reason: str


def outcome(path: Path, name: str, work: Path) -> Outcome:
    """Reads `path` as a corpus of its own; rows = documents + quarantined is checked here once more."""
    config = Config(corpus=Corpus(input=[str(path)]))
    words = EncoderRef("column", "", "", None, "words", 768, 512, "first", "", "float32")  # counts words
    try:
        plan = plan_shards(config.corpus, str(work))
        (shard,) = plan.shards
        output = index_shard(convert_shard(shard, config, str(work)), words, config, str(work))
    except DatamaskError as error:
        message = str(error).replace(f"{path.absolute()}: ", "").split(";")[0].split(" (Parquet")[0]
        kind = "not read" if "not a format" in message else "no rows" if "no rows" in message else "failed"
        return Outcome(name, kind, 0, 0, {"no rows": "a sound file without rows"}.get(kind, message))
    facts = output.facts
    assert facts["rows"] == facts["documents"] + sum(facts["reasons"].values()) == output.rows
    notes = [f"{count} {reason}" for reason, count in facts["reasons"].items()]
    notes += [f"{facts[fact]} {label}" for fact, label in _FACTS.items() if facts[fact]]
    kind = "documents" if facts["documents"] else "quarantined"
    return Outcome(name, kind, facts["rows"], facts["documents"], ", ".join(notes))


_FACTS = {"ids_made": "ids made", "duplicate_ids": "ids seen before"}


def outcomes(root: Path, work: Path) -> list[Outcome]:
    """The outcome of every file below `root`, in order."""
    found = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        first = outcome(path, name, work / f"{len(found)}")
        found.append(first)
        if first.outcome == "not read":
            found.pop()
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            row = work / f"{len(found)}.parquet"
            pq.write_table(pa.table({"text": pa.array([data], pa.binary())}), row)
            second = outcome(row, name, work / f"{len(found)}-row")
            reason = f"not a format datamask reads; as a row: {second.outcome} ({second.reason})"
            found.append(Outcome(name, "not read", 0, 0, reason))
    return found


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/real/dirty").resolve()
    with tempfile.TemporaryDirectory() as folder:
        found = outcomes(root, Path(folder))
    print("| file | outcome | rows | documents | reason |")
    print("|---|---|---:|---:|---|")
    for item in found:
        print(f"| {item.file} | {item.outcome} | {item.rows} | {item.documents} | {item.reason} |")
    print("\n" + ", ".join(f"{count} {kind}" for kind, count in Counter(item.outcome for item in found).most_common()))


if __name__ == "__main__":
    main()
